package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"tributary/interop/internal/echopb"
)

func unaryCases() []testCase {
	return []testCase{
		{"echo", echoes},
		{"request_of_zero_bytes", requestOfZeroBytes},
		{"reply_of_zero_bytes", replyOfZeroBytes},
		{"message_of_exactly_4_mib_both_ways", messageOf4MiB},
		{"message_just_over_1_mib", messageOf(1<<20 + 1)},
		{"message_of_exactly_1_mib", messageOf(1 << 20)},
		{"reply_of_1_mib_to_a_small_request", replyOf1MiB},
		{"reply_sizes_around_the_content_length_limit", replySizes},
		{"request_metadata_keeps_values_and_order", requestMetadata},
		{"response_metadata_keeps_values_and_order", responseMetadata},
		{"metadata_of_8_kib", bigMetadata},
		{"no_foreign_response_metadata", noForeignMetadata},
		{"request_headers_do_not_leak", requestHeadersDoNotLeak},
		{"gzip_request", gzipRequest},
		{"gzip_request_of_1_mib", gzipLargeRequest},
		{"group_and_version_choose_the_implementation", groupAndVersion},
		{"unknown_method_is_unimplemented", unknownMethod},
		{"unknown_service_is_unimplemented", unknownService},
		{"health_check", healthCheck},
		{"sequential_500_calls", sequential500},
		{"concurrent_1000_calls_on_one_connection", concurrent1000},
	}
}

func pattern(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i*7 + i>>8)
	}
	return data
}

func echoes(ctx context.Context, r *run) error {
	o := r.say(ctx, &echopb.SayRequest{Text: "héllo ☃", Payload: pattern(300)})
	if err := o.wantOK(1); err != nil {
		return err
	}
	return sameMessage(o.reply(), &echopb.SayReply{Text: "héllo ☃", Payload: pattern(300), Implementation: "/",
		RemainingMs: o.reply().RemainingMs})
}

func requestOfZeroBytes(ctx context.Context, r *run) error {
	o := r.say(ctx, &echopb.SayRequest{})
	if err := o.wantOK(1); err != nil {
		return err
	}
	if o.reply().Implementation != "/" {
		return fmt.Errorf("reply %v", o.reply())
	}
	return nil
}

func replyOfZeroBytes(ctx context.Context, r *run) error {
	o := r.say(ctx, &echopb.SayRequest{EmptyReply: true})
	if err := o.wantOK(1); err != nil {
		return err
	}
	return sameMessage(o.reply(), &echopb.SayReply{})
}

// requestOfSize fills the payload so that the whole message has exactly n bytes.
func requestOfSize(n int) *echopb.SayRequest {
	request := &echopb.SayRequest{Payload: pattern(n)}
	request.Payload = request.Payload[:n-(proto.Size(request)-n)]
	return request
}

func messageOf(n int) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		request := requestOfSize(n)
		if proto.Size(request) != n {
			return fmt.Errorf("this test is wrong: %d bytes instead of %d", proto.Size(request), n)
		}
		o := r.say(ctx, request)
		if err := o.wantOK(1); err != nil {
			return err
		}
		if !bytes.Equal(o.reply().Payload, request.Payload) {
			return fmt.Errorf("payload of %d bytes came back different", len(request.Payload))
		}
		return nil
	}
}

func messageOf4MiB(ctx context.Context, r *run) error { return messageOf(4<<20)(ctx, r) }

func replyOf1MiB(ctx context.Context, r *run) error {
	o := r.say(ctx, &echopb.SayRequest{ReplyBytes: 1 << 20})
	if err := o.wantOK(1); err != nil {
		return err
	}
	return wantReplyBytes(o.reply(), 1<<20)
}

func wantReplyBytes(reply *echopb.SayReply, n int) error {
	if len(reply.Payload) != n {
		return fmt.Errorf("reply of %d bytes, want %d", len(reply.Payload), n)
	}
	for i, b := range reply.Payload {
		if b != byte(i%251) {
			return fmt.Errorf("byte %d of the reply is %d", i, b)
		}
	}
	return nil
}

// dubbo-go sends content-length up to 4096 bytes on HTTP/2 and 2048 on HTTP/1.1, nothing above.
func replySizes(ctx context.Context, r *run) error {
	for _, n := range []int{1, 100, 2000, 2040, 2041, 2042, 2043, 2044, 2045, 2048, 4085, 4086, 4087, 4088, 4089,
		4090, 4096, 4097, 16384, 65530, 65535, 65536, 200000} {
		o := r.say(ctx, &echopb.SayRequest{ReplyBytes: uint32(n)})
		if err := o.wantOK(1); err != nil {
			return fmt.Errorf("reply of %d: %w", n, err)
		}
		if err := wantReplyBytes(o.reply(), n); err != nil {
			return err
		}
	}
	return nil
}

func requestMetadata(ctx context.Context, r *run) error {
	ctx = withMetadata(ctx,
		"x-plain", "one",
		"x-many", "a", "x-many", "b, with comma", "x-many", "a",
		"x-raw-bin", string([]byte{0, 1, 2, 255, 254, 10}),
		"x-many-bin", "\x01", "x-many-bin", "\x02\x03", "x-many-bin", "",
		"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"authorization", "Bearer abc")
	o := r.say(ctx, &echopb.SayRequest{WantHeaders: true})
	if err := o.wantOK(1); err != nil {
		return err
	}
	for _, want := range []struct {
		key    string
		values []string
	}{
		{"x-plain", []string{"one"}},
		{"x-many", []string{"a", "b, with comma", "a"}},
		{"x-raw-bin", []string{base64.RawStdEncoding.EncodeToString([]byte{0, 1, 2, 255, 254, 10})}},
		{"x-many-bin", []string{"AQ", "AgM", ""}},
		{"traceparent", []string{"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}},
		{"authorization", []string{"Bearer abc"}},
	} {
		if err := wantStrings("provider saw "+want.key, headerValues(o.reply(), want.key), want.values...); err != nil {
			return err
		}
	}
	return nil
}

func responseMetadata(ctx context.Context, r *run) error {
	o := r.say(ctx, &echopb.SayRequest{
		Leading:  entries("x-lead", "1", "x-lead", "2, 3", "x-lead-bin", "AAEC//4K", "x-lead-bin", "AQ"),
		Trailing: entries("x-trail", "z", "x-trail", "a", "x-trail-bin", "AgM", "x-trail-bin", "AAEC//4K"),
	})
	if err := o.wantOK(1); err != nil {
		return err
	}
	raw := string([]byte{0, 1, 2, 255, 254, 10})
	if err := wantValues("header", o.header, "x-lead", "1", "2, 3"); err != nil {
		return err
	}
	if err := wantValues("header", o.header, "x-lead-bin", raw, "\x01"); err != nil {
		return err
	}
	if err := wantValues("trailer", o.trailer, "x-trail", "z", "a"); err != nil {
		return err
	}
	if err := wantValues("trailer", o.trailer, "x-trail-bin", "\x02\x03", raw); err != nil {
		return err
	}
	if err := wantValues("header", o.header, "x-trail"); err != nil {
		return err
	}
	return wantValues("trailer", o.trailer, "x-lead")
}

func bigMetadata(ctx context.Context, r *run) error {
	value := strings.Repeat("0123456789abcdef", 512)
	o := r.say(withMetadata(ctx, "x-big", value), &echopb.SayRequest{WantHeaders: true, Trailing: entries("x-big", value)})
	if err := o.wantOK(1); err != nil {
		return err
	}
	if err := wantStrings("provider saw x-big", headerValues(o.reply(), "x-big"), value); err != nil {
		return err
	}
	return wantValues("trailer", o.trailer, "x-big", value)
}

// expectedMetadata is what a provider or HTTP adds besides custom metadata.
var expectedMetadata = map[string]bool{
	"content-type": true, "date": true, "trailer": true, "grpc-accept-encoding": true,
	"grpc-encoding": true, "grpc-status": true, "grpc-message": true, "grpc-status-details-bin": true,
}

func noForeignMetadata(ctx context.Context, r *run) error {
	for _, request := range []*echopb.SayRequest{
		{Text: "ok"},
		{ReplyBytes: 100000},
		{Fail: &echopb.Failure{Code: 5, Message: "no"}},
		{Fail: &echopb.Failure{Code: 14, Message: "no"}},
	} {
		o := r.say(ctx, request)
		for _, md := range []map[string][]string{o.header, o.trailer} {
			for key := range md {
				if !expectedMetadata[key] {
					return fmt.Errorf("unexpected %s: %q (status %v)", key, md[key], o.code())
				}
			}
		}
		if got := o.header.Get("content-type"); len(got) > 0 && got[0] != "application/grpc" {
			return fmt.Errorf("content-type %q", got)
		}
	}
	return nil
}

// requestHeadersDoNotLeak looks at all that the provider got: nothing that the proxy made up.
func requestHeadersDoNotLeak(ctx context.Context, r *run) error {
	known := map[string]bool{
		"content-type": true, "content-length": true, "user-agent": true, "te": true,
		"grpc-timeout": true, "grpc-accept-encoding": true, "triple-timeout-ms": true,
		"triple-protocol-version": true, "x-own": true,
	}
	o := r.say(withMetadata(ctx, "x-own", "1"), &echopb.SayRequest{WantHeaders: true})
	if err := o.wantOK(1); err != nil {
		return err
	}
	for _, entry := range o.reply().Headers {
		if !known[entry.Key] {
			return fmt.Errorf("the provider got %s: %q", entry.Key, entry.Value)
		}
	}
	if strings.HasPrefix(headerValues(o.reply(), "content-type")[0], "application/grpc") {
		return nil
	}
	for _, entry := range o.reply().Headers {
		if strings.HasPrefix(entry.Key, "grpc-") {
			return fmt.Errorf("a bare call carries %s", entry.Key)
		}
	}
	return nil
}

func gzipRequest(ctx context.Context, r *run) error {
	o := r.say(ctx, &echopb.SayRequest{Text: strings.Repeat("squeeze ", 100)}, grpc.UseCompressor(gzip.Name))
	if err := o.wantOK(1); err != nil {
		return err
	}
	return wantStrings("text", []string{o.reply().Text}, strings.Repeat("squeeze ", 100))
}

func gzipLargeRequest(ctx context.Context, r *run) error {
	text := strings.Repeat("0123456789abcdef", 1<<16)
	o := r.say(ctx, &echopb.SayRequest{Text: text}, grpc.UseCompressor(gzip.Name))
	if err := o.wantOK(1); err != nil {
		return err
	}
	if o.reply().Text != text {
		return fmt.Errorf("text of %d bytes came back different", len(text))
	}
	return nil
}

func groupAndVersion(ctx context.Context, r *run) error {
	o := r.say(withMetadata(ctx, "tri-service-group", "grey", "tri-service-version", "2.0"), &echopb.SayRequest{})
	if err := o.wantOK(1); err != nil {
		return err
	}
	if err := wantStrings("implementation", []string{o.reply().Implementation}, "grey/2.0"); err != nil {
		return err
	}
	o = r.say(withMetadata(ctx, "tri-service-version", "1.1"), &echopb.SayRequest{})
	if err := o.wantOK(1); err != nil {
		return err
	}
	if err := wantStrings("implementation", []string{o.reply().Implementation}, "/1.1"); err != nil {
		return err
	}
	o = r.say(withMetadata(ctx, "tri-service-group", "nobody"), &echopb.SayRequest{})
	return o.wantStatus(codes.Unimplemented, "no implementation found for service group nobody and service version ")
}

// dubbo-go answers an unknown path 404 text/plain without grpc-status, so the text differs by who
// turns that into a status.
func unknownMethod(ctx context.Context, r *run) error {
	o := r.unary(ctx, service+"Nothing", &echopb.SayRequest{})
	return o.wantStatus(codes.Unimplemented, o.status.Message())
}

func unknownService(ctx context.Context, r *run) error {
	o := r.unary(ctx, "/no.such.Service/Say", &echopb.SayRequest{})
	return o.wantStatus(codes.Unimplemented, o.status.Message())
}

func healthCheck(ctx context.Context, r *run) error {
	reply, err := healthpb.NewHealthClient(r.conn).Check(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return err
	}
	if reply.Status != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("status %v", reply.Status)
	}
	return nil
}

func sequential500(ctx context.Context, r *run) error {
	for i := range 500 {
		text := fmt.Sprint("call ", i)
		o := r.say(ctx, &echopb.SayRequest{Text: text})
		if err := o.wantOK(1); err != nil {
			return fmt.Errorf("call %d: %w", i, err)
		}
		if o.reply().Text != text {
			return fmt.Errorf("call %d was answered %q", i, o.reply().Text)
		}
	}
	return nil
}

func concurrent1000(ctx context.Context, r *run) error {
	var wait sync.WaitGroup
	failures := make(chan error, 1000)
	start := make(chan struct{})
	for i := range 1000 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			<-start
			text := fmt.Sprint("call ", i)
			o := r.say(ctx, &echopb.SayRequest{Text: text, Payload: pattern(1000 + i), DelayMs: uint32(i % 50)})
			if err := o.wantOK(1); err != nil {
				failures <- fmt.Errorf("call %d: %w", i, err)
			} else if o.reply().Text != text || len(o.reply().Payload) != 1000+i {
				failures <- fmt.Errorf("call %d got another's reply: %q", i, o.reply().Text)
			}
		}()
	}
	close(start)
	wait.Wait()
	close(failures)
	n := len(failures)
	for err := range failures {
		return fmt.Errorf("%d of 1000 failed, the first: %w", n, err)
	}
	return nil
}
