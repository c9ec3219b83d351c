// dubbo-client runs named cases with dubbo-go's own clients against a provider of the Echo service,
// directly or through a proxy, and prints a JSON line for each: {"case": "MODE/NAME", ...}.
//
// Modes, each a way in which dubbo-go calls:
//
//	framework   the framework's client (what applications use): gRPC framing over HTTP/2, attachments,
//	            a Health/Watch stream on the side
//	grpc        package triple_protocol, gRPC framing over HTTP/2
//	triple      package triple_protocol, bare Triple over HTTP/2; unary only
//	triple-http1  the same over HTTP/1.1
//	triple-json   the same with the JSON codec, over HTTP/2
//
// Exit code 0 when every case is ok.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"dubbo.apache.org/dubbo-go/v3/client"

	"github.com/dubbogo/gost/log/logger"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"tributary/interop/internal/report"

	_ "dubbo.apache.org/dubbo-go/v3/cluster/cluster/failover"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/loadbalance/random"
	_ "dubbo.apache.org/dubbo-go/v3/filter/graceful_shutdown"
	_ "dubbo.apache.org/dubbo-go/v3/protocol/triple"
	_ "dubbo.apache.org/dubbo-go/v3/proxy/proxy_factory"
	_ "dubbo.apache.org/dubbo-go/v3/registry/directory"
)

// run is what a case may use.
type run struct {
	caller
	mode string
	addr string
	// No proxy in between.
	direct bool
}

type testCase struct {
	name string
	// Modes that have it; empty: all.
	modes string
	do    func(context.Context, *run) error
}

func (c *testCase) in(mode string) bool {
	return c.modes == "" || strings.Contains(" "+c.modes+" ", " "+mode+" ")
}

const allModes = "framework grpc triple triple-http1 triple-json"

func main() {
	addr := flag.String("addr", "", "HOST:PORT")
	direct := flag.Bool("direct", false, "the address is a dubbo-go provider, not the proxy")
	modes := flag.String("modes", strings.ReplaceAll(allModes, " ", ","), "comma-separated")
	cases := flag.String("cases", "", "comma-separated MODE/NAME, trailing * for a prefix; default: all")
	list := flag.Bool("list", false, "print MODE/NAME of all cases and leave")
	timeout := flag.Duration("timeout", 20*time.Second, "for each case")
	level := flag.String("log", "fatal", "level of dubbo-go's own log, on stderr")
	flag.Parse()

	if err := quietLog(*level); err != nil {
		fail(err)
	}
	reporter := new(report.Reporter)
	for _, mode := range strings.Split(*modes, ",") {
		if err := runMode(reporter, &run{mode: mode, addr: *addr, direct: *direct}, *cases, *list, *timeout); err != nil {
			fail(fmt.Errorf("%s: %w", mode, err))
		}
	}
	reporter.Exit()
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "dubbo-client:", err)
	os.Exit(2)
}

func runMode(reporter *report.Reporter, r *run, selection string, list bool, timeout time.Duration) error {
	for _, c := range allCases() {
		name := r.mode + "/" + c.name
		if !c.in(r.mode) || !report.Selected(name, selection) {
			continue
		}
		if list {
			fmt.Println(name)
			continue
		}
		if r.caller == nil {
			caller, err := newCaller(r.mode, r.addr)
			if err != nil {
				return err
			}
			r.caller = caller
		}
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		err := c.do(ctx, r)
		cancel()
		if err != nil {
			reporter.Add(name, false, err)
		} else {
			reporter.Add(name, true, nil)
		}
	}
	return nil
}

func newCaller(mode, addr string) (caller, error) {
	switch mode {
	case "framework":
		return newFramework(addr)
	case "grpc", "triple", "triple-http1", "triple-json":
		return newProtocol(mode, addr), nil
	}
	return nil, fmt.Errorf("unknown mode; known: %s", allModes)
}

// frameworkClient is made once: dubbo-go keeps process-wide state per client.
func frameworkClient() (*client.Client, error) {
	return client.NewClient(client.WithClientRetries(0), client.WithClientNoCheck())
}

func quietLog(level string) error {
	at, err := zapcore.ParseLevel(level)
	if err != nil {
		return err
	}
	config := zap.NewDevelopmentConfig()
	config.Level = zap.NewAtomicLevelAt(at)
	config.OutputPaths = []string{"stderr"}
	logger.InitLogger(&logger.Config{ZapConfig: &config})
	return nil
}
