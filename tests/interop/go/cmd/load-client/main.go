// load-client calls Echo.Say at a steady rate with grpc-go and reports what came of every call, as one
// JSON object on stdout when the time is up. It is for tests that kill, reload or replace something
// under load. It prints "STARTED" on stderr with the first call.
//
// The loop is closed: at most -concurrency calls are under way, and a call that is due while all are
// busy is counted as skipped, never queued. grpc-go honours GOAWAY by itself: calls that the peer
// has not taken go to a new connection.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"tributary/interop/internal/echopb"
)

type options struct {
	addr         string
	policy       string
	rate         int
	seconds      float64
	concurrency  int
	connections  int
	timeout      time.Duration
	payload      int
	delay        uint
	streams      bool
	waitForReady bool
}

// result is the report. Times are Unix milliseconds, 0 when there was none.
type result struct {
	Calls        int            `json:"calls"`
	Skipped      int            `json:"skipped"`
	ByStatus     map[string]int `json:"by_status"`
	Messages     map[string]int `json:"messages"`
	WrongReplies int            `json:"wrong_replies"`
	FirstFailure int64          `json:"first_failure_ms"`
	LastFailure  int64          `json:"last_failure_ms"`
	LastOK       int64          `json:"last_ok_ms"`
	LongestGapMs int64          `json:"longest_gap_ms"` // between two successes
	LatencyP50Us int64          `json:"latency_p50_us"`
	LatencyP99Us int64          `json:"latency_p99_us"`
	LatencyMaxUs int64          `json:"latency_max_us"`
	lastOK       time.Time
	latencies    []time.Duration
	lock         sync.Mutex
}

func main() {
	var o options
	flag.StringVar(&o.addr, "addr", "", "HOST:PORT or unix:PATH; several with commas: the resolver's answer to every client")
	flag.StringVar(&o.policy, "policy", "pick_first", "of several addresses: pick_first or round_robin")
	flag.IntVar(&o.rate, "rate", 500, "calls per second")
	flag.Float64Var(&o.seconds, "seconds", 5, "how long")
	flag.IntVar(&o.concurrency, "concurrency", 32, "calls under way at most")
	flag.IntVar(&o.connections, "connections", 1, "client connections")
	flag.DurationVar(&o.timeout, "timeout", 5*time.Second, "deadline of each call")
	flag.IntVar(&o.payload, "payload", 128, "bytes of each request and reply")
	flag.UintVar(&o.delay, "delay", 0, "milliseconds that the provider waits in each call")
	flag.BoolVar(&o.streams, "streams", false, "every fifth call is a server stream of three messages")
	flag.BoolVar(&o.waitForReady, "wait-for-ready", false, "calls wait for a connection instead of failing")
	flag.Parse()

	report, err := run(&o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "load-client:", err)
		os.Exit(2)
	}
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		os.Exit(2)
	}
}

func run(o *options) (*result, error) {
	if o.addr == "" || o.rate < 1 || o.concurrency < 1 || o.connections < 1 {
		return nil, errors.New("an address, and a positive rate, concurrency and number of connections are needed")
	}
	conns, err := dialAll(o)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, conn := range conns {
			conn.Close()
		}
	}()

	r := &result{ByStatus: map[string]int{}, Messages: map[string]int{}}
	due := make(chan int) // unbuffered: a send succeeds only when a worker is free
	var workers sync.WaitGroup
	for i := range o.concurrency {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for n := range due {
				r.call(o, conns[i%len(conns)], n)
			}
		}()
	}
	fmt.Fprintln(os.Stderr, "STARTED")
	r.pace(o, due)
	close(due)
	workers.Wait()
	r.finish()
	return r, nil
}

func dialAll(o *options) ([]*grpc.ClientConn, error) {
	var conns []*grpc.ClientConn
	for range o.connections {
		conn, err := grpc.NewClient(target(o.addr), grpc.WithResolvers(addresses(o.addr)),
			grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"`+o.policy+`": {}}]}`),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.WaitForReady(o.waitForReady)),
			// The test measures how fast the proxy recovers, so its client must not wait longer.
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond},
				MinConnectTimeout: time.Second,
			}),
			// The framework's own retries would hide failures; GOAWAY is handled all the same.
			grpc.WithDisableRetry())
		if err != nil {
			return nil, err
		}
		conns = append(conns, conn)
	}
	return conns, nil
}

// Scheme of the resolver below: only for several addresses, so that one behaves as in any client.
const listScheme = "list"

func target(addr string) string {
	if strings.Contains(addr, ",") {
		return listScheme + ":///providers"
	}
	return "passthrough:///" + addr
}

// addresses answers as a name service would that knows all of them from the start.
func addresses(addr string) resolver.Builder {
	list := manual.NewBuilderWithScheme(listScheme)
	var state resolver.State
	for _, each := range strings.Split(addr, ",") {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: each}}})
	}
	list.InitialState(state)
	return list
}

func (r *result) pace(o *options, due chan<- int) {
	start := time.Now()
	total := int(o.seconds * float64(o.rate))
	for n := range total {
		at := start.Add(time.Duration(n) * time.Second / time.Duration(o.rate))
		if wait := time.Until(at); wait > 0 {
			time.Sleep(wait)
		}
		select {
		case due <- n:
		default:
			r.lock.Lock()
			r.Skipped++
			r.lock.Unlock()
		}
	}
}

func (r *result) call(o *options, conn *grpc.ClientConn, n int) {
	ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	request := &echopb.SayRequest{Text: fmt.Sprint(n), Payload: make([]byte, o.payload), DelayMs: uint32(o.delay)}
	began := time.Now()
	var text string
	var err error
	if o.streams && n%5 == 0 {
		text, err = expand(ctx, conn, request)
	} else {
		reply := new(echopb.SayReply)
		err = conn.Invoke(ctx, "/tributary.interop.Echo/Say", request, reply)
		text = reply.Text
	}
	r.add(time.Now(), time.Since(began), err, text == request.Text)
}

func expand(ctx context.Context, conn *grpc.ClientConn, request *echopb.SayRequest) (string, error) {
	request.Count = 3
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/tributary.interop.Echo/Expand")
	if err != nil {
		return "", err
	}
	if err := stream.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	if err := stream.CloseSend(); err != nil {
		return "", err
	}
	var text string
	for i := 0; ; i++ {
		reply := new(echopb.SayReply)
		err := stream.RecvMsg(reply)
		if errors.Is(err, io.EOF) {
			if i != 3 {
				return fmt.Sprintf("%d messages", i), nil
			}
			return text, nil
		}
		if err != nil {
			return "", err
		}
		text = reply.Text
	}
}

func (r *result) add(now time.Time, took time.Duration, err error, right bool) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.Calls++
	code := status.Code(err)
	r.ByStatus[code.String()]++
	r.latencies = append(r.latencies, took)
	if code != codes.OK {
		if len(r.Messages) < 10 {
			r.Messages[status.Convert(err).Message()]++
		}
		if r.FirstFailure == 0 {
			r.FirstFailure = now.UnixMilli()
		}
		r.LastFailure = now.UnixMilli()
		return
	}
	if !right {
		r.WrongReplies++
	}
	if !r.lastOK.IsZero() {
		r.LongestGapMs = max(r.LongestGapMs, now.Sub(r.lastOK).Milliseconds())
	}
	r.lastOK = now
	r.LastOK = now.UnixMilli()
}

func (r *result) finish() {
	if len(r.latencies) == 0 {
		return
	}
	sort.Slice(r.latencies, func(i, j int) bool { return r.latencies[i] < r.latencies[j] })
	at := func(share float64) int64 {
		return r.latencies[int(share*float64(len(r.latencies)-1))].Microseconds()
	}
	r.LatencyP50Us, r.LatencyP99Us, r.LatencyMaxUs = at(0.5), at(0.99), at(1)
}
