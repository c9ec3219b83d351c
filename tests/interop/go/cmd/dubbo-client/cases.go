package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	tri "dubbo.apache.org/dubbo-go/v3/protocol/triple/triple_protocol"

	"golang.org/x/net/http2"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"tributary/interop/internal/echopb"
)

type tlsConfig = tls.Config

const (
	specialMessage = "100% of 世界\nsecond line\ttab \"quoted\" \\ <b>&amp; + %zz %41 ~"
	framedModes    = "framework grpc"
	bareModes      = "triple triple-http1 triple-json"
)

func allCases() []testCase {
	all := []testCase{
		{"echo", "", echoes},
		{"message_of_zero_bytes", "", zeroBytes},
		{"message_of_3_mib", "", threeMiB},
		{"reply_sizes_around_the_content_length_limit", "", replySizes},
		{"request_metadata_arrives", "", requestMetadata},
		{"response_metadata_arrives", "", responseMetadata},
		{"plain_error_is_code_17", framedModes, plainErrorFramed},
		// dubbo-go's own client takes only 1 to 16 out of a JSON error.
		{"plain_error_is_unknown", bareModes, plainErrorBare},
		{"details_arrive_in_order", "", detailsInOrder},
		{"error_metadata_arrives", bareModes + " grpc", errorMetadata},
		{"deadline_expires", "", deadlineExpires},
		{"deadline_is_answered_by_one_voice", bareModes, deadlineByOneVoice},
		{"cancelled_call_stops_the_provider", "grpc triple triple-json", cancelled},
		{"group_and_version_choose_the_implementation", "", groupAndVersion},
		{"unknown_group_is_unimplemented", "", unknownGroup},
		{"concurrent_100_calls", "", concurrent100},
		{"server_stream", framedModes, serverStream},
		{"server_stream_fails_midway", framedModes, serverStreamFails},
		{"client_stream", framedModes, clientStream},
		{"bidi_stream", framedModes, bidiStream},
		{"health_check", "grpc", healthCheck},
		{"health_watch_stays_open_beside_calls", "grpc", healthWatch},
	}
	for code := tri.CodeCanceled; code <= tri.CodeUnauthenticated; code++ {
		all = append(all, testCase{fmt.Sprintf("status_%02d_with_special_message", code), "", statusOf(code)})
	}
	return all
}

func pattern(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i*7 + i>>8)
	}
	return data
}

func entries(pairs ...string) []*echopb.Entry {
	var all []*echopb.Entry
	for i := 0; i+1 < len(pairs); i += 2 {
		all = append(all, &echopb.Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return all
}

func wantValues(where string, got http.Header, key string, want ...string) error {
	values := got.Values(key)
	if fmt.Sprintf("%q", values) != fmt.Sprintf("%q", want) {
		return fmt.Errorf("%s %s: %q, want %q", where, key, values, want)
	}
	return nil
}

// wantError compares code and text of what dubbo-go's client made of the answer.
func wantError(err error, code tri.Code, message string) error {
	var got *tri.Error
	if !errors.As(err, &got) {
		return fmt.Errorf("error %v, want code %d", err, code)
	}
	if got.Code() != code || got.Message() != message {
		return fmt.Errorf("code %d %q, want %d %q", got.Code(), got.Message(), code, message)
	}
	return nil
}

func echoes(ctx context.Context, r *run) error {
	o := r.say(ctx, &echopb.SayRequest{Text: "héllo ☃", Payload: pattern(300)}, nil)
	if o.err != nil {
		return o.err
	}
	if o.reply.Text != "héllo ☃" || !bytes.Equal(o.reply.Payload, pattern(300)) || o.reply.Implementation != "/" {
		return fmt.Errorf("reply %v", o.reply)
	}
	return nil
}

func zeroBytes(ctx context.Context, r *run) error {
	if o := r.say(ctx, &echopb.SayRequest{}, nil); o.err != nil || o.reply.Implementation != "/" {
		return fmt.Errorf("reply %v, error %v", o.reply, o.err)
	}
	if o := r.say(ctx, &echopb.SayRequest{EmptyReply: true}, nil); o.err != nil || o.reply.Implementation != "" {
		return fmt.Errorf("reply %v, error %v", o.reply, o.err)
	}
	return nil
}

func threeMiB(ctx context.Context, r *run) error {
	o := r.say(ctx, &echopb.SayRequest{Payload: pattern(3 << 20)}, nil)
	if o.err != nil {
		return o.err
	}
	if !bytes.Equal(o.reply.Payload, pattern(3<<20)) {
		return fmt.Errorf("%d bytes came back different", len(o.reply.Payload))
	}
	return nil
}

func replySizes(ctx context.Context, r *run) error {
	for _, n := range []uint32{1, 2000, 2040, 2045, 2050, 4080, 4085, 4090, 4096, 4100, 65535, 70000} {
		o := r.say(ctx, &echopb.SayRequest{ReplyBytes: n}, nil)
		if o.err != nil {
			return fmt.Errorf("reply of %d: %w", n, o.err)
		}
		if len(o.reply.Payload) != int(n) {
			return fmt.Errorf("reply of %d: %d came", n, len(o.reply.Payload))
		}
	}
	return nil
}

func requestMetadata(ctx context.Context, r *run) error {
	header := http.Header{
		"x-plain":   {"one"},
		"x-many":    {"a", "b, with comma", "a"},
		"x-raw-bin": {base64.RawStdEncoding.EncodeToString([]byte{0, 255, 10})},
	}
	o := r.say(ctx, &echopb.SayRequest{WantHeaders: true}, header)
	if o.err != nil {
		return o.err
	}
	saw := make(http.Header)
	for _, entry := range o.reply.Headers {
		saw.Add(entry.Key, entry.Value)
	}
	for key, values := range header {
		if err := wantValues("provider saw", saw, key, values...); err != nil {
			return err
		}
	}
	return nil
}

func responseMetadata(ctx context.Context, r *run) error {
	o := r.say(ctx, &echopb.SayRequest{
		Leading:  entries("x-lead", "1", "x-lead", "2, 3", "x-lead-bin", "AAEC//4K"),
		Trailing: entries("x-trail", "z", "x-trail", "a"),
	}, nil)
	if o.err != nil {
		return o.err
	}
	return errors.Join(
		wantValues("header", o.header, "x-lead", "1", "2, 3"),
		wantValues("header", o.header, "x-lead-bin", "AAEC//4K"),
		wantValues("trailer", o.trailer, "x-trail", "z", "a"))
}

func statusOf(code tri.Code) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		o := r.say(ctx, &echopb.SayRequest{Fail: &echopb.Failure{Code: uint32(code), Message: specialMessage}}, nil)
		return wantError(o.err, code, specialMessage)
	}
}

func plainErrorFramed(ctx context.Context, r *run) error {
	o := r.say(ctx, &echopb.SayRequest{Fail: &echopb.Failure{Plain: true, Message: specialMessage}}, nil)
	return wantError(o.err, tri.CodeBizError, specialMessage)
}

func plainErrorBare(ctx context.Context, r *run) error {
	o := r.say(ctx, &echopb.SayRequest{Fail: &echopb.Failure{Plain: true, Message: specialMessage}}, nil)
	return wantError(o.err, tri.CodeUnknown, specialMessage)
}

func detailsInOrder(ctx context.Context, r *run) error {
	details := []*echopb.Detail{
		{Type: "acme.v1.NeverHeardOf", Value: []byte{0xff, 0, 1}},
		{Type: "google.rpc.RequestInfo", Value: []byte("\x0a\x03r-1")},
		{Type: "acme.v1.Empty"},
	}
	o := r.say(ctx, &echopb.SayRequest{Fail: &echopb.Failure{Code: 5, Message: "gone", KeepDetails: true,
		Details: details}}, nil)
	if err := wantError(o.err, tri.CodeNotFound, "gone"); err != nil {
		return err
	}
	var got *tri.Error
	errors.As(o.err, &got)
	if len(got.Details()) != len(details) {
		return fmt.Errorf("%d details, want %d", len(got.Details()), len(details))
	}
	for i, d := range got.Details() {
		if d.Type() != details[i].Type || !bytes.Equal(d.Bytes(), details[i].Value) {
			return fmt.Errorf("detail %d is %s %x", i, d.Type(), d.Bytes())
		}
	}
	return nil
}

func errorMetadata(ctx context.Context, r *run) error {
	o := r.say(ctx, &echopb.SayRequest{Leading: entries("x-lead", "1"), Trailing: entries("x-trail", "z", "x-trail", "a"),
		Fail: &echopb.Failure{Code: 7, Message: "no"}}, nil)
	if err := wantError(o.err, tri.CodePermissionDenied, "no"); err != nil {
		return err
	}
	var got *tri.Error
	errors.As(o.err, &got)
	return errors.Join(wantValues("metadata", got.Meta(), "x-lead", "1"), wantValues("metadata", got.Meta(), "x-trail", "z", "a"))
}

func deadlineExpires(ctx context.Context, r *run) error {
	short, stop := context.WithTimeout(ctx, 200*time.Millisecond)
	defer stop()
	start := time.Now()
	o := r.say(short, &echopb.SayRequest{DelayMs: 5000}, nil)
	took := time.Since(start)
	// dubbo-go's provider answers an expired deadline with its own context error, code 17, which may
	// overtake the client's clock, whole or in part; a proxy that owns the deadline lets neither happen.
	overtaken := r.direct && tri.CodeOf(o.err) == tri.CodeUnknown
	if o.err == nil || (tri.CodeOf(o.err) != tri.CodeDeadlineExceeded && !overtaken) {
		return fmt.Errorf("error %v", o.err)
	}
	if took > time.Second {
		return fmt.Errorf("took %v", took)
	}
	return nil
}

// The client has no clock of its own here, only the header: what it gets is what the other side says
// at the deadline. dubbo-go says code 17, a proxy that owns the deadline says deadline_exceeded, and
// never a mixture, though the provider's answer comes in the same millisecond.
func deadlineByOneVoice(ctx context.Context, r *run) error {
	var wait sync.WaitGroup
	failures := make(chan error, 100)
	for i := range 100 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			time.Sleep(time.Duration(i) * 7 * time.Millisecond)
			o := r.say(context.WithoutCancel(ctx), &echopb.SayRequest{DelayMs: 5000}, http.Header{"triple-timeout-ms": {"60"}})
			code := tri.CodeOf(o.err)
			overtaken := r.direct && code == tri.CodeUnknown
			if o.err == nil || (code != tri.CodeDeadlineExceeded && !overtaken) {
				failures <- fmt.Errorf("call %d: %v", i, o.err)
			}
		}()
	}
	wait.Wait()
	close(failures)
	n := len(failures)
	for err := range failures {
		return fmt.Errorf("%d of 100, the first: %w", n, err)
	}
	return nil
}

// plain is a gRPC-framed client for what the modes do not offer themselves.
func plain(addr, service string) *tri.Client {
	transport := &http2.Transport{
		AllowHTTP: true,
		DialTLSContext: func(ctx context.Context, network, address string, _ *tls.Config) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}
	return tri.NewClient(&http.Client{Transport: transport}, "http://"+addr+"/"+service)
}

func cancelledSoFar(ctx context.Context, r *run) (uint64, error) {
	reply := new(echopb.CountReply)
	err := plain(r.addr, "tributary.interop.Echo").CallUnary(ctx, tri.NewRequest(&echopb.CountRequest{}), "Count",
		tri.NewResponse(reply))
	return reply.Cancelled, err
}

func cancelled(ctx context.Context, r *run) error {
	before, err := cancelledSoFar(ctx, r)
	if err != nil {
		return err
	}
	cancellable, cancel := context.WithCancel(ctx)
	time.AfterFunc(150*time.Millisecond, cancel)
	o := r.say(cancellable, &echopb.SayRequest{DelayMs: 5000}, nil)
	if o.err == nil || tri.CodeOf(o.err) != tri.CodeCanceled {
		return fmt.Errorf("error %v", o.err)
	}
	for range 100 {
		after, err := cancelledSoFar(ctx, r)
		if err != nil {
			return err
		}
		if after > before {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("the provider's handler went on for two seconds")
}

func groupAndVersion(ctx context.Context, r *run) error {
	for _, want := range []string{"grey/2.0", "/1.1"} {
		group, version, _ := strings.Cut(want, "/")
		o := r.sayTo(ctx, group, version, &echopb.SayRequest{})
		if o.err != nil {
			return fmt.Errorf("%s: %w", want, o.err)
		}
		if o.reply.Implementation != want {
			return fmt.Errorf("%s was answered by %s", want, o.reply.Implementation)
		}
	}
	return nil
}

func unknownGroup(ctx context.Context, r *run) error {
	o := r.sayTo(ctx, "nobody", "", &echopb.SayRequest{})
	return wantError(o.err, tri.CodeUnimplemented,
		"no implementation found for service group nobody and service version ")
}

func concurrent100(ctx context.Context, r *run) error {
	var wait sync.WaitGroup
	failures := make(chan error, 100)
	for i := range 100 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			text := fmt.Sprint("call ", i)
			o := r.say(ctx, &echopb.SayRequest{Text: text, DelayMs: uint32(i % 20)}, nil)
			if o.err != nil || o.reply.Text != text {
				failures <- fmt.Errorf("call %d: %v %v", i, o.err, o.reply.GetText())
			}
		}()
	}
	wait.Wait()
	close(failures)
	return <-failures
}

func serverStream(ctx context.Context, r *run) error {
	stream, err := r.expand(ctx, &echopb.SayRequest{Text: "x", Count: 50, Leading: entries("x-lead", "1"),
		Trailing: entries("x-trail", "2")})
	if err != nil {
		return err
	}
	defer stream.Close()
	n := uint32(0)
	for reply := new(echopb.SayReply); stream.Receive(reply); reply = new(echopb.SayReply) {
		if reply.Index != n {
			return fmt.Errorf("reply %d has index %d", n, reply.Index)
		}
		n++
	}
	if stream.Err() != nil || n != 50 {
		return fmt.Errorf("%d replies, error %v", n, stream.Err())
	}
	return errors.Join(wantValues("header", stream.ResponseHeader(), "x-lead", "1"),
		wantValues("trailer", stream.ResponseTrailer(), "x-trail", "2"))
}

func serverStreamFails(ctx context.Context, r *run) error {
	for _, failure := range []*echopb.Failure{
		{Code: 9, Message: specialMessage, After: 3},
		{Plain: true, Message: specialMessage, After: 3},
	} {
		stream, err := r.expand(ctx, &echopb.SayRequest{Count: 5, Fail: failure})
		if err != nil {
			return err
		}
		n := 0
		for stream.Receive(new(echopb.SayReply)) {
			n++
		}
		code := tri.Code(failure.Code)
		if failure.Plain {
			code = tri.CodeBizError
		}
		if err := wantError(stream.Err(), code, specialMessage); err != nil {
			return err
		}
		if n != 3 {
			return fmt.Errorf("%d replies before the failure", n)
		}
		stream.Close()
	}
	return nil
}

func clientStream(ctx context.Context, r *run) error {
	stream, err := r.collect(ctx)
	if err != nil {
		return err
	}
	for i := range 20 {
		if err := stream.Send(&echopb.SayRequest{Text: fmt.Sprint(i), Payload: pattern(10)}); err != nil {
			return err
		}
	}
	reply := new(echopb.SayReply)
	if err := stream.CloseAndReceive(tri.NewResponse(reply)); err != nil {
		return err
	}
	if reply.Index != 20 || reply.TotalBytes != 200 {
		return fmt.Errorf("counted %d with %d bytes", reply.Index, reply.TotalBytes)
	}
	return nil
}

func bidiStream(ctx context.Context, r *run) error {
	stream, err := r.chat(ctx)
	if err != nil {
		return err
	}
	defer stream.CloseResponse()
	for i := range 20 {
		if err := stream.Send(&echopb.SayRequest{Text: fmt.Sprint(i)}); err != nil {
			return err
		}
		reply := new(echopb.SayReply)
		if err := stream.Receive(reply); err != nil {
			return err
		}
		if reply.Text != fmt.Sprint(i) {
			return fmt.Errorf("round %d was answered %q", i, reply.Text)
		}
	}
	if err := stream.CloseRequest(); err != nil {
		return err
	}
	if err := stream.Receive(new(echopb.SayReply)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("after half close: %v", err)
	}
	return nil
}

func healthCheck(ctx context.Context, r *run) error {
	reply := new(healthpb.HealthCheckResponse)
	err := plain(r.addr, "grpc.health.v1.Health").CallUnary(ctx, tri.NewRequest(&healthpb.HealthCheckRequest{}), "Check",
		tri.NewResponse(reply))
	if err != nil {
		return err
	}
	if reply.Status != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("status %v", reply.Status)
	}
	return nil
}

// The framework's client holds such a stream for good: its first message must come at once, and it
// must neither end nor be in the way.
func healthWatch(ctx context.Context, r *run) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	request := tri.NewRequest(&healthpb.HealthCheckRequest{})
	stream, err := plain(r.addr, "grpc.health.v1.Health").CallServerStream(watching, request, "Watch")
	if err != nil {
		return err
	}
	reply := new(healthpb.HealthCheckResponse)
	if !stream.Receive(reply) || reply.Status != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("first message %v, error %v", reply, stream.Err())
	}
	ended := make(chan error, 1)
	go func() {
		stream.Receive(new(healthpb.HealthCheckResponse))
		ended <- stream.Err()
	}()
	for range 5 {
		if err := echoes(ctx, r); err != nil {
			return err
		}
		select {
		case err := <-ended:
			return fmt.Errorf("the watch ended: %v", err)
		case <-time.After(200 * time.Millisecond):
		}
	}
	return nil
}
