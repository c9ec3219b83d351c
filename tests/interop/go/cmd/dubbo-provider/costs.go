package main

import (
	"encoding/json"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
)

// costs is what SIGUSR1 prints, sums since the start: the benchmarks take the difference of two lines.
// Unary calls only; mallocs and bytes are the whole process's, so nothing else should call meanwhile.
type costs struct {
	Calls      uint64  `json:"calls"`
	Framed     uint64  `json:"framed"`
	Bare       uint64  `json:"bare"`
	GzipIn     uint64  `json:"gzip_in"`     // requests that came compressed
	GzipOffers uint64  `json:"gzip_offers"` // requests that offered to take a compressed reply
	Mallocs    uint64  `json:"mallocs"`
	AllocBytes uint64  `json:"alloc_bytes"`
	Collected  uint32  `json:"gc_runs"`
	CPUSeconds float64 `json:"cpu_s"`
}

func tellCosts(seen *counters) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	out := json.NewEncoder(os.Stdout)
	go func() {
		for range asked {
			_ = out.Encode(seen.costs())
		}
	}()
}

func (c *counters) costs() costs {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	framed, bare := c.framed.Load(), c.bare.Load()
	return costs{
		Calls: framed + bare, Framed: framed, Bare: bare,
		GzipIn: c.gzipIn.Load(), GzipOffers: c.gzipOffers.Load(),
		Mallocs: memory.Mallocs, AllocBytes: memory.TotalAlloc, Collected: memory.NumGC,
		CPUSeconds: seconds(usage.Utime) + seconds(usage.Stime),
	}
}

func seconds(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }

// came counts what a unary call's head says; gRPC framing and bare bodies name compression differently.
func (c *counters) came(headers http.Header) {
	framed := strings.HasPrefix(first(headers, "Content-Type"), "application/grpc")
	encoding, accept := first(headers, "Content-Encoding"), first(headers, "Accept-Encoding")
	if framed {
		encoding, accept = first(headers, "Grpc-Encoding"), first(headers, "Grpc-Accept-Encoding")
		c.framed.Add(1)
	} else {
		c.bare.Add(1)
	}
	if encoding == "gzip" {
		c.gzipIn.Add(1)
	}
	if strings.Contains(accept, "gzip") {
		c.gzipOffers.Add(1)
	}
}

// first looks for both spellings: dubbo-go keeps metadata in lower case, net/http in canonical.
func first(headers http.Header, name string) string {
	if values := headers[name]; len(values) > 0 {
		return values[0]
	}
	if values := headers[strings.ToLower(name)]; len(values) > 0 {
		return values[0]
	}
	return ""
}
