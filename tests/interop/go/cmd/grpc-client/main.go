// grpc-client runs named cases with grpc-go against a provider of the Echo service, directly or
// through a proxy, and prints a JSON line for each: {"case": "...", "ok": true, "detail": "..."}.
//
//	grpc-client -addr 127.0.0.1:20000 -direct          the baseline: what dubbo-go itself answers
//	grpc-client -addr 127.0.0.1:17000                  the same cases through the proxy
//	grpc-client -cases status_*,echo -addr ...         some of them
//	grpc-client -list                                  their names
//	grpc-client -parity -target fast=127.0.0.1:17000 -target framed=127.0.0.1:17001
//	                                                   the same calls over several addresses, compared
//
// Exit code 0 when every case is ok.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"tributary/interop/internal/report"
)

// target is one address the calls go to.
type target struct {
	name string
	conn *grpc.ClientConn
}

// run is what a case may use.
type run struct {
	target
	// direct: no proxy in between. dubbo-go's own answers differ in one thing that these cases see:
	// code 17 arrives as 17.
	direct bool
}

type testCase struct {
	name string
	do   func(context.Context, *run) error
}

type targetList []string

func (l *targetList) String() string { return strings.Join(*l, ",") }

func (l *targetList) Set(value string) error {
	*l = append(*l, value)
	return nil
}

func main() {
	addr := flag.String("addr", "", "HOST:PORT or unix:PATH")
	authority := flag.String("authority", "", ":authority of the calls; default: the address")
	direct := flag.Bool("direct", false, "the address is a dubbo-go provider, not the proxy")
	cases := flag.String("cases", "", "comma-separated names, NAME* for a prefix; default: all")
	list := flag.Bool("list", false, "print the names and leave")
	parity := flag.Bool("parity", false, "compare calls over the -target addresses")
	timeout := flag.Duration("timeout", 30*time.Second, "for each case")
	var targets targetList
	flag.Var(&targets, "target", "NAME=ADDRESS[@AUTHORITY], for -parity; may repeat")
	flag.Parse()

	if *list {
		for _, c := range allCases() {
			fmt.Println(c.name)
		}
		return
	}
	var err error
	reporter := new(report.Reporter)
	if *parity {
		err = runParity(reporter, targets, *timeout)
	} else {
		err = runCases(reporter, *addr, *authority, *cases, *direct, *timeout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "grpc-client:", err)
		os.Exit(2)
	}
	reporter.Exit()
}

func runCases(reporter *report.Reporter, addr, authority, selection string, direct bool, timeout time.Duration) error {
	conn, err := dial(addr, authority)
	if err != nil {
		return err
	}
	defer conn.Close()
	r := &run{target: target{name: addr, conn: conn}, direct: direct}
	ran := 0
	for _, c := range allCases() {
		if !report.Selected(c.name, selection) {
			continue
		}
		ran++
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		err := c.do(ctx, r)
		cancel()
		if err != nil {
			reporter.Add(c.name, false, err)
		} else {
			reporter.Add(c.name, true, nil)
		}
	}
	if ran == 0 {
		return fmt.Errorf("no case is named %q", selection)
	}
	return nil
}

const maxMessageBytes = 64 << 20

// dial makes a channel with one connection; it connects with the first call.
func dial(addr, authority string) (*grpc.ClientConn, error) {
	if addr == "" {
		return nil, errors.New("an address is needed")
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.MaxCallSendMsgSize(maxMessageBytes)),
		// Retries would hide what a proxy does wrong.
		grpc.WithDisableRetry(),
	}
	if authority != "" {
		options = append(options, grpc.WithAuthority(authority))
	}
	return grpc.NewClient("passthrough:///"+addr, options...)
}
