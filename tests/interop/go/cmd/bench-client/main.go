// bench-client is a closed loop of unary calls by grpc-go: -in-flight calls on each of -connections, the
// next starts when one ends; every reply's bytes are checked. It prints a JSON object of the same shape
// as the C load generator's report, with its own cost and that of the processes named by -pid NAME=PID,
// both over the measured window only. Exit 1 when a call failed, 2 for a wrong command line.
//
// -offer-gzip does what linking grpc-go's gzip package into a client does: every call offers gzip.
// -gzip also compresses requests; grpc-go offers what it can send, so that it implies the offer.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"tributary/interop/internal/echopb"
)

type options struct {
	addr, method         string
	payload              int
	connections          int
	inFlight             int
	warmup, seconds      time.Duration
	warmupCalls, calls   int64
	offerGzip, sendGzip  bool
	random               bool
	timeout, longestWait time.Duration
	pids                 watched
}

func main() {
	var o options
	flag.StringVar(&o.addr, "addr", "", "HOST:PORT")
	flag.StringVar(&o.method, "method", "/tributary.interop.Echo/Say", "called; must send its request back")
	flag.IntVar(&o.payload, "payload", 128, "bytes of the payload field, both ways")
	flag.IntVar(&o.connections, "connections", 10, "connections")
	flag.IntVar(&o.inFlight, "in-flight", 5, "calls under way on each")
	flag.DurationVar(&o.warmup, "warmup", 500*time.Millisecond, "time before measuring")
	flag.DurationVar(&o.seconds, "duration", 2*time.Second, "time measured")
	flag.Int64Var(&o.warmupCalls, "warmup-count", 0, "calls before measuring, instead of -warmup")
	flag.Int64Var(&o.calls, "count", 0, "calls measured, instead of -duration")
	flag.BoolVar(&o.offerGzip, "offer-gzip", false, "offer to take compressed replies")
	flag.BoolVar(&o.sendGzip, "gzip", false, "compress requests")
	flag.BoolVar(&o.random, "random", false, "a payload that does not compress")
	flag.DurationVar(&o.timeout, "timeout", 0, "deadline of each call; 0: none")
	flag.DurationVar(&o.longestWait, "give-up", 2*time.Minute, "the whole run ends with an error after this time")
	flag.Var(&o.pids, "pid", "NAME=PID whose CPU is measured; may repeat")
	flag.Parse()
	if o.addr == "" || o.connections < 1 || o.inFlight < 1 || o.payload < 0 {
		fmt.Fprintln(os.Stderr, "bench-client: an address, and positive numbers of connections and calls are needed")
		os.Exit(2)
	}
	report, err := run(&o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-client:", err)
		os.Exit(1)
	}
	text, _ := json.MarshalIndent(report, "", " ")
	fmt.Println(string(text))
}

// load is one run. Workers add to their own latencies only; the rest is atomic.
type load struct {
	*options
	request   *echopb.SayRequest
	callOpts  []grpc.CallOption
	measuring atomic.Bool
	stopped   atomic.Bool
	ended     atomic.Int64 // calls since the phase began
	reached   chan struct{}
	target    atomic.Int64 // of ended; 0: the phase ends by time
	failed    chan error
}

func run(o *options) (*report, error) {
	l := &load{options: o, reached: make(chan struct{}, 1), failed: make(chan error, 1)}
	l.request = &echopb.SayRequest{Payload: payload(o)}
	if o.offerGzip || o.sendGzip {
		registerGzip()
	}
	if o.sendGzip {
		l.callOpts = append(l.callOpts, grpc.UseCompressor(gzipName))
	}
	l.callOpts = append(l.callOpts, grpc.MaxCallRecvMsgSize(64<<20), grpc.MaxCallSendMsgSize(64<<20))
	conns, err := l.dial()
	if err != nil {
		return nil, err
	}
	latencies := make([][]time.Duration, o.connections*o.inFlight)
	var workers sync.WaitGroup
	l.target.Store(o.warmupCalls)
	for i := range latencies {
		workers.Add(1)
		go func() {
			defer workers.Done()
			latencies[i] = l.work(conns[i%len(conns)])
		}()
	}
	report, err := l.phases()
	l.stopped.Store(true)
	// Calls still under way are cut off: what is measured is over.
	for _, conn := range conns {
		conn.Close()
	}
	workers.Wait()
	if err != nil {
		return nil, err
	}
	report.latencies(latencies)
	return report, nil
}

func (l *load) dial() ([]*grpc.ClientConn, error) {
	var conns []*grpc.ClientConn
	for range l.connections {
		conn, err := grpc.NewClient("passthrough:///"+l.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDisableRetry(), grpc.WithDefaultCallOptions(l.callOpts...))
		if err != nil {
			return nil, err
		}
		conns = append(conns, conn)
	}
	return conns, nil
}

// phases waits for warmup and window to end; the workers run beside it.
func (l *load) phases() (*report, error) {
	giveUp := time.After(l.longestWait)
	if err := l.wait(l.warmup, l.warmupCalls, giveUp); err != nil {
		return nil, err
	}
	r := &report{options: l.options}
	r.begin()
	l.ended.Store(0)
	l.target.Store(l.calls)
	l.measuring.Store(true)
	if err := l.wait(l.seconds, l.calls, giveUp); err != nil {
		return nil, err
	}
	l.measuring.Store(false)
	return r, r.end(l.ended.Load())
}

func (l *load) wait(long time.Duration, calls int64, giveUp <-chan time.Time) error {
	var over <-chan time.Time
	if calls == 0 {
		over = time.After(long)
	}
	select {
	case <-over:
	case <-l.reached:
	case err := <-l.failed:
		return err
	case <-giveUp:
		return errors.New("not done in time")
	}
	return nil
}

func (l *load) work(conn *grpc.ClientConn) []time.Duration {
	var latencies []time.Duration
	for !l.stopped.Load() {
		began := time.Now()
		err := l.call(conn)
		if l.stopped.Load() {
			break
		}
		if err != nil {
			select {
			case l.failed <- err:
			default:
			}
			break
		}
		if l.measuring.Load() {
			latencies = append(latencies, time.Since(began))
		}
		if n := l.ended.Add(1); n == l.target.Load() {
			l.reached <- struct{}{}
		}
	}
	return latencies
}

func (l *load) call(conn *grpc.ClientConn) error {
	ctx := context.Background()
	if l.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.timeout)
		defer cancel()
	}
	reply := new(echopb.SayReply)
	if err := conn.Invoke(ctx, l.method, l.request, reply); err != nil {
		return err
	}
	if !bytes.Equal(reply.Payload, l.request.Payload) {
		return errors.New("a reply differs from its request")
	}
	return nil
}

// payload is text of letters that repeat, or random bytes.
func payload(o *options) []byte {
	out := make([]byte, o.payload)
	source := rand.New(rand.NewSource(1))
	for i := range out {
		if o.random {
			out[i] = byte(source.Intn(256))
		} else {
			out[i] = byte('a' + i%26)
		}
	}
	return out
}

// ---- the report ----

type processCost struct {
	PerCall float64 `json:"cpu_us_per_call"`
	Seconds float64 `json:"cpu_s"`
	Percent float64 `json:"cpu_avg_percent"`
}

type report struct {
	Calls       int64                  `json:"calls"`
	Concurrency int                    `json:"concurrency"`
	Payload     int                    `json:"payload_size"`
	Duration    float64                `json:"duration_s"`
	Rate        float64                `json:"qps"`
	Mean        float64                `json:"latency_mean_ms"`
	P50         float64                `json:"latency_p50_ms"`
	P90         float64                `json:"latency_p90_ms"`
	P99         float64                `json:"latency_p99_ms"`
	Max         float64                `json:"latency_max_ms"`
	OwnCPU      float64                `json:"load_cpu_us_per_call"`
	OwnMallocs  float64                `json:"load_mallocs_per_call"`
	Processes   map[string]processCost `json:"processes"`

	options *options
	start   time.Time
	before  []int64
	mallocs uint64
}

func (r *report) begin() {
	r.mallocs = mallocs()
	r.before = r.clocks()
	r.start = time.Now()
}

// clocks is the CPU time of ourselves and of every watched process, in nanoseconds.
func (r *report) clocks() []int64 {
	all := []int64{cpuClock(os.Getpid())}
	for _, each := range r.options.pids {
		all = append(all, cpuClock(each.pid))
	}
	return all
}

func (r *report) end(calls int64) error {
	if calls == 0 {
		return errors.New("no call ended in the measured time")
	}
	took, after := time.Since(r.start), r.clocks()
	perCall := func(i int) float64 { return float64(after[i]-r.before[i]) / 1000 / float64(calls) }
	r.Calls, r.Payload = calls, r.options.payload
	r.Concurrency = r.options.connections * r.options.inFlight
	r.Duration, r.Rate = took.Seconds(), float64(calls)/took.Seconds()
	r.OwnCPU, r.Processes = perCall(0), map[string]processCost{}
	r.OwnMallocs = float64(mallocs()-r.mallocs) / float64(calls)
	for i, each := range r.options.pids {
		spent := float64(after[i+1]-r.before[i+1]) / 1e9
		if after[i+1] == 0 {
			return fmt.Errorf("process %s has gone", each.name)
		}
		r.Processes[each.name] = processCost{perCall(i + 1), spent, 100 * spent / took.Seconds()}
	}
	return nil
}

func (r *report) latencies(all [][]time.Duration) {
	var flat []time.Duration
	var sum time.Duration
	for _, some := range all {
		flat = append(flat, some...)
	}
	if len(flat) == 0 {
		return
	}
	sort.Slice(flat, func(i, j int) bool { return flat[i] < flat[j] })
	for _, each := range flat {
		sum += each
	}
	at := func(share float64) float64 {
		return float64(flat[int(share*float64(len(flat)-1))].Nanoseconds()) / 1e6
	}
	r.Mean = float64(sum.Nanoseconds()) / 1e6 / float64(len(flat))
	r.P50, r.P90, r.P99, r.Max = at(0.5), at(0.9), at(0.99), at(1)
}

func mallocs() uint64 {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return memory.Mallocs
}

// ---- -pid ----

type process struct {
	name string
	pid  int
}

type watched []process

func (w *watched) String() string { return fmt.Sprint(*w) }

func (w *watched) Set(text string) error {
	name, number, _ := strings.Cut(text, "=")
	pid, err := strconv.Atoi(number)
	if err != nil || pid < 1 {
		return errors.New("NAME=PID is wanted")
	}
	*w = append(*w, process{name, pid})
	return nil
}
