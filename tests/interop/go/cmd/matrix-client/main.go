// matrix-client runs the nine cases of the README's matrix, as a grpc-go or as a dubbo-go client, against
// a provider or the proxy: -kind grpc|dubbo -target HOST:PORT [-cases a,b,c]. One JSON line for each case:
// {"case", "ok", "detail", "facts"}. The same cases, with the same names and the same requests, are in the
// Java, JavaScript and Python clients; they ask only for what every provider promises, where the cases of
// grpc-client and dubbo-client are about dubbo-go in particular.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"tributary/interop/internal/echopb"
)

const (
	fourMiB      = 4 << 20
	streamLength = 20
	errorText    = "no such thing: 100% + two"
	trailerKey   = "x-interop-trailer"
	caseLimit    = 20 * time.Second

	codeCancelled = 1
	codeDeadline  = 4
	codeNotFound  = 5
)

// failed is how a call ended, in terms that both clients have.
type failed struct {
	code    uint32
	message string
	trailer string
}

func (f *failed) Error() string { return fmt.Sprintf("code %d: %s", f.code, f.message) }

// caller is one kind of client. Errors of calls are *failed.
type caller interface {
	say(ctx context.Context, request *echopb.SayRequest) (*echopb.SayReply, error)
	sayGzip(ctx context.Context, request *echopb.SayRequest) (*echopb.SayReply, error)
	expand(ctx context.Context, request *echopb.SayRequest) ([]*echopb.SayReply, error)
	collect(ctx context.Context, requests []*echopb.SayRequest) (*echopb.SayReply, error)
	// chat sends each request after the reply to the one before.
	chat(ctx context.Context, requests []*echopb.SayRequest) ([]*echopb.SayReply, error)
}

type facts map[string]any

var cases = []struct {
	name string
	do   func(context.Context, caller, facts) error
}{
	{"unary", unary},
	{"error", errorWithMetadata},
	{"deadline", deadline},
	{"cancel", cancel},
	{"server", server},
	{"client", clientStream},
	{"bidi", bidi},
	{"gzip", gzipRequest},
	{"big", big}, // last: directly it may cost the connection
}

func main() {
	kind := flag.String("kind", "grpc", "grpc or dubbo")
	target := flag.String("target", "", "HOST:PORT")
	wanted := flag.String("cases", "", "names with commas between; default: all")
	flag.Parse()

	var client caller
	var err error
	switch *kind {
	case "grpc":
		client, err = newGrpc(*target)
	case "dubbo":
		client, err = newDubbo(*target)
	default:
		err = fmt.Errorf("no kind %q", *kind)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "matrix-client:", err)
		os.Exit(2)
	}
	code := 0
	for _, each := range cases {
		if *wanted != "" && !strings.Contains(","+*wanted+",", ","+each.name+",") {
			continue
		}
		ctx, stop := context.WithTimeout(context.Background(), caseLimit)
		seen := facts{}
		err := each.do(ctx, client, seen)
		stop()
		detail := ""
		if err != nil {
			code = 1
			detail = strings.Join(strings.Fields(err.Error()), " ")
		}
		line, _ := json.Marshal(map[string]any{"case": each.name, "ok": err == nil, "detail": detail, "facts": seen})
		fmt.Println(string(line))
	}
	os.Exit(code)
}

func payload(length int) []byte {
	made := make([]byte, length)
	for i := range made {
		made[i] = byte(i % 251)
	}
	return made
}

func numbered() []*echopb.SayRequest {
	var all []*echopb.SayRequest
	for i := range streamLength {
		all = append(all, &echopb.SayRequest{Text: fmt.Sprint("n", i), Payload: payload(100 + i)})
	}
	return all
}

func echoed(request *echopb.SayRequest, reply *echopb.SayReply) error {
	if request.Text != reply.Text {
		return fmt.Errorf("text of %d bytes came back as %d", len(request.Text), len(reply.Text))
	}
	if !bytes.Equal(request.Payload, reply.Payload) {
		return fmt.Errorf("payload of %d bytes came back as %d, or different", len(request.Payload), len(reply.Payload))
	}
	return nil
}

func inOrder(replies []*echopb.SayReply) error {
	if len(replies) != streamLength {
		return fmt.Errorf("%d replies, want %d", len(replies), streamLength)
	}
	for i, reply := range replies {
		if reply.Index != uint32(i) {
			return fmt.Errorf("reply %d has index %d", i, reply.Index)
		}
	}
	return nil
}

// failure is the error of a call that must fail with that code.
func failure(err error, code uint32) (*failed, error) {
	var how *failed
	if !errors.As(err, &how) {
		return nil, fmt.Errorf("want code %d, got %v", code, err)
	}
	if how.code != code {
		return nil, fmt.Errorf("want code %d, got %w", code, err)
	}
	return how, nil
}

func unary(ctx context.Context, client caller, _ facts) error {
	request := &echopb.SayRequest{Text: "hello", Payload: payload(64)}
	reply, err := client.say(ctx, request)
	if err != nil {
		return err
	}
	return echoed(request, reply)
}

func errorWithMetadata(ctx context.Context, client caller, seen facts) error {
	_, err := client.say(ctx, &echopb.SayRequest{
		Text:     "fails",
		Fail:     &echopb.Failure{Code: codeNotFound, Message: errorText},
		Trailing: []*echopb.Entry{{Key: trailerKey, Value: "kept"}},
	})
	how, err := failure(err, codeNotFound)
	if err != nil {
		return err
	}
	seen["message"] = how.message
	seen["metadata"] = how.trailer == "kept"
	if !strings.Contains(how.message, errorText) {
		return fmt.Errorf("message: %s", how.message)
	}
	return nil
}

func deadline(ctx context.Context, client caller, seen facts) error {
	start := time.Now()
	short, stop := context.WithTimeout(ctx, 300*time.Millisecond)
	defer stop()
	_, err := client.say(short, &echopb.SayRequest{Text: "slow", DelayMs: 1500})
	took := time.Since(start)
	if _, err := failure(err, codeDeadline); err != nil {
		return err
	}
	if took < 250*time.Millisecond || took > time.Second {
		return fmt.Errorf("deadline after %v", took)
	}
	return unary(ctx, client, seen)
}

func cancel(ctx context.Context, client caller, seen facts) error {
	start := time.Now()
	short, stop := context.WithCancel(ctx)
	time.AfterFunc(200*time.Millisecond, stop)
	_, err := client.say(short, &echopb.SayRequest{Text: "slow", DelayMs: 2000})
	if _, err := failure(err, codeCancelled); err != nil {
		return err
	}
	if took := time.Since(start); took > time.Second {
		return fmt.Errorf("cancelled after %v", took)
	}
	return unary(ctx, client, seen)
}

func server(ctx context.Context, client caller, _ facts) error {
	replies, err := client.expand(ctx, &echopb.SayRequest{Text: "stream", Count: streamLength, GapMs: 2})
	if err != nil {
		return err
	}
	return inOrder(replies)
}

func clientStream(ctx context.Context, client caller, _ facts) error {
	requests := numbered()
	total := uint64(0)
	for _, request := range requests {
		total += uint64(len(request.Payload))
	}
	reply, err := client.collect(ctx, requests)
	if err != nil {
		return err
	}
	if reply.Index != streamLength || reply.TotalBytes != total {
		return fmt.Errorf("counted %d requests of %d bytes, want %d of %d", reply.Index, reply.TotalBytes, streamLength, total)
	}
	return nil
}

func bidi(ctx context.Context, client caller, _ facts) error {
	requests := numbered()
	replies, err := client.chat(ctx, requests)
	if err != nil {
		return err
	}
	for i, reply := range replies {
		if err := echoed(requests[i], reply); err != nil {
			return err
		}
	}
	return inOrder(replies)
}

func big(ctx context.Context, client caller, _ facts) error {
	request := &echopb.SayRequest{Text: "big", Payload: payload(fourMiB)}
	reply, err := client.say(ctx, request)
	if err != nil {
		return err
	}
	return echoed(request, reply)
}

func gzipRequest(ctx context.Context, client caller, _ facts) error {
	request := &echopb.SayRequest{Text: strings.Repeat("squeezed", 8192)}
	reply, err := client.sayGzip(ctx, request)
	if err != nil {
		return err
	}
	return echoed(request, reply)
}
