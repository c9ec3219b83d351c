package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"

	"tributary/interop/internal/echopb"
)

func streamCases() []testCase {
	return []testCase{
		{"server_stream_delivers_in_order", serverStream},
		{"server_stream_of_no_messages", emptyServerStream},
		{"client_stream_is_counted", clientStream},
		{"client_stream_of_no_messages", emptyClientStream},
		{"bidi_stream_ping_pong_100", pingPong},
		{"bidi_stream_of_no_messages", emptyBidiStream},
		{"half_close_then_more_replies", halfClose},
		{"streamed_messages_are_not_held_back", notHeldBack},
		{"response_headers_arrive_before_the_first_message", headersFirst},
		{"stream_metadata_both_ways", streamMetadata},
		{"server_stream_fails_midway", serverStreamFails},
		{"server_stream_fails_before_its_first_message", serverStreamFailsAtOnce},
		{"client_stream_fails_before_half_close", clientStreamFails},
		{"bidi_stream_fails_midway", bidiStreamFails},
		{"stream_details_and_trailers_on_failure", streamDetails},
		{"stream_plain_error_is_a_business_error", streamPlainError},
		{"stream_of_large_messages", largeStream},
		{"slow_reader_does_not_stop_other_calls", slowReader},
		{"stream_group_and_version", streamGroup},
	}
}

// grpc-go writes head, message and end of a unary call at once, so these look unary to a proxy until
// the provider refuses the bare form: dubbo-go with 415, and bidi over HTTP/1.1 with 505.
func oneMessageAtOnce(ctx context.Context, r *run) error {
	for _, method := range []string{"Chat", "Expand", "Collect"} {
		for i := range 3 {
			o := r.unary(ctx, service+method, &echopb.SayRequest{Text: "one", Count: 1})
			if err := o.wantOK(1); err != nil {
				return fmt.Errorf("%s, call %d: %w", method, i, err)
			}
			if o.reply().Text != "one" {
				return fmt.Errorf("%s was answered %q", method, o.reply().Text)
			}
		}
	}
	return nil
}

func numbered(n int) []*echopb.SayRequest {
	var all []*echopb.SayRequest
	for i := range n {
		all = append(all, &echopb.SayRequest{Text: fmt.Sprint(i), Payload: pattern(10)})
	}
	return all
}

func wantIndexes(o *outcome, n int) error {
	if err := o.wantOK(n); err != nil {
		return err
	}
	for i, reply := range o.replies {
		if int(reply.Index) != i {
			return fmt.Errorf("reply %d has index %d", i, reply.Index)
		}
	}
	return nil
}

func serverStream(ctx context.Context, r *run) error {
	return wantIndexes(r.all(ctx, "Expand", &echopb.SayRequest{Text: "x", Count: 500, ReplyBytes: 700}), 500)
}

func emptyServerStream(ctx context.Context, r *run) error {
	o := r.all(ctx, "Expand", &echopb.SayRequest{Trailing: entries("x-trail", "1")})
	if err := o.wantOK(0); err != nil {
		return err
	}
	return wantValues("trailer", o.trailer, "x-trail", "1")
}

func clientStream(ctx context.Context, r *run) error {
	o := r.all(ctx, "Collect", numbered(50)...)
	if err := o.wantOK(1); err != nil {
		return err
	}
	if o.reply().Index != 50 || o.reply().TotalBytes != 500 {
		return fmt.Errorf("counted %d with %d bytes", o.reply().Index, o.reply().TotalBytes)
	}
	return nil
}

func emptyClientStream(ctx context.Context, r *run) error {
	o := r.all(ctx, "Collect")
	if err := o.wantOK(1); err != nil {
		return err
	}
	if o.reply().Index != 0 {
		return fmt.Errorf("counted %d", o.reply().Index)
	}
	return nil
}

func emptyBidiStream(ctx context.Context, r *run) error {
	return r.all(ctx, "Chat").wantOK(0)
}

func pingPong(ctx context.Context, r *run) error {
	s, err := r.open(ctx, "Chat")
	if err != nil {
		return err
	}
	for i := range 100 {
		if err := s.SendMsg(&echopb.SayRequest{Text: fmt.Sprint(i)}); err != nil {
			return err
		}
		reply, err := s.receive()
		if err != nil {
			return err
		}
		if reply.Text != fmt.Sprint(i) {
			return fmt.Errorf("round %d was answered %q", i, reply.Text)
		}
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	return s.drain().wantOK(0)
}

func halfClose(ctx context.Context, r *run) error {
	requests := numbered(3)
	requests[0].GapMs = 100
	return wantIndexes(r.all(ctx, "Chat", requests...), 3)
}

func notHeldBack(ctx context.Context, r *run) error {
	start := time.Now()
	s, err := r.openWith(ctx, "Expand", &echopb.SayRequest{Text: "tick", Count: 4, GapMs: 300})
	if err != nil {
		return err
	}
	for i := range 4 {
		if _, err := s.receive(); err != nil {
			return err
		}
		due := time.Duration(i) * 300 * time.Millisecond
		if err := wantBetween(fmt.Sprintf("message %d", i), time.Since(start), due, due+250*time.Millisecond); err != nil {
			return err
		}
	}
	return s.drain().wantOK(0)
}

func headersFirst(ctx context.Context, r *run) error {
	start := time.Now()
	s, err := r.openWith(ctx, "Expand", &echopb.SayRequest{Count: 1, HeadersFirst: true, DelayMs: 1000,
		Leading: entries("x-session", "42")})
	if err != nil {
		return err
	}
	header, err := s.Header()
	if err != nil {
		return err
	}
	if err := wantBetween("the header", time.Since(start), 0, 500*time.Millisecond); err != nil {
		return err
	}
	if err := wantValues("header", header, "x-session", "42"); err != nil {
		return err
	}
	return s.drain().wantOK(1)
}

func streamMetadata(ctx context.Context, r *run) error {
	for _, method := range []string{"Expand", "Collect", "Chat"} {
		o := r.all(withMetadata(ctx, "x-many", "a", "x-many", "b", "x-raw-bin", "\x00\xff"), method,
			&echopb.SayRequest{Count: 1, WantHeaders: true, Leading: entries("x-lead", "1", "x-lead", "2"),
				Trailing: entries("x-trail", "z", "x-trail-bin", "AP8")})
		if err := o.wantOK(1); err != nil {
			return fmt.Errorf("%s: %w", method, err)
		}
		for _, err := range []error{
			wantStrings("provider saw x-many", headerValues(o.reply(), "x-many"), "a", "b"),
			wantStrings("provider saw x-raw-bin", headerValues(o.reply(), "x-raw-bin"), "AP8"),
			wantValues("header", o.header, "x-lead", "1", "2"),
			wantValues("trailer", o.trailer, "x-trail", "z"),
			wantValues("trailer", o.trailer, "x-trail-bin", "\x00\xff"),
		} {
			if err != nil {
				return fmt.Errorf("%s: %w", method, err)
			}
		}
	}
	return nil
}

func wantFailure(o *outcome, replies int, code codes.Code, message string) error {
	if err := o.wantStatus(code, message); err != nil {
		return err
	}
	if len(o.replies) != replies {
		return fmt.Errorf("%d replies before the failure, want %d", len(o.replies), replies)
	}
	return nil
}

func serverStreamFails(ctx context.Context, r *run) error {
	o := r.all(ctx, "Expand", &echopb.SayRequest{Count: 5, Leading: entries("x-lead", "1"), Trailing: entries("x-trail", "1"),
		Fail: &echopb.Failure{Code: 9, Message: specialMessage, After: 3}})
	if err := wantFailure(o, 3, codes.FailedPrecondition, specialMessage); err != nil {
		return err
	}
	if err := wantValues("header", o.header, "x-lead", "1"); err != nil {
		return err
	}
	return wantValues("trailer", o.trailer, "x-trail", "1")
}

func serverStreamFailsAtOnce(ctx context.Context, r *run) error {
	o := r.all(ctx, "Expand", &echopb.SayRequest{Count: 5, Fail: &echopb.Failure{Code: 16, Message: "who?"}})
	return wantFailure(o, 0, codes.Unauthenticated, "who?")
}

// The client keeps its side open: the failure must reach it all the same.
func clientStreamFails(ctx context.Context, r *run) error {
	s, err := r.open(ctx, "Collect")
	if err != nil {
		return err
	}
	for i := range 2 {
		request := &echopb.SayRequest{Text: fmt.Sprint(i), Fail: &echopb.Failure{Code: 8, Message: "enough", After: 2}}
		if err := s.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return wantFailure(s.drain(), 0, codes.ResourceExhausted, "enough")
}

func bidiStreamFails(ctx context.Context, r *run) error {
	s, err := r.open(ctx, "Chat")
	if err != nil {
		return err
	}
	for i := range 3 {
		request := &echopb.SayRequest{Text: fmt.Sprint(i), Fail: &echopb.Failure{Code: 10, Message: "abort", After: 2}}
		if err := s.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return wantFailure(s.drain(), 2, codes.Aborted, "abort")
}

func streamDetails(ctx context.Context, r *run) error {
	o := r.all(ctx, "Expand", &echopb.SayRequest{Count: 2, Trailing: entries("x-trail", "1", "x-trail", "2"),
		Fail: &echopb.Failure{Code: 11, Message: "far", After: 1, KeepDetails: true, Details: threeDetails()}})
	if err := wantFailure(o, 1, codes.OutOfRange, "far"); err != nil {
		return err
	}
	if err := wantValues("trailer", o.trailer, "x-trail", "1", "2"); err != nil {
		return err
	}
	return wantDetails(o, threeDetails())
}

func streamPlainError(ctx context.Context, r *run) error {
	o := r.all(ctx, "Expand", &echopb.SayRequest{Count: 2, Fail: &echopb.Failure{Plain: true, Message: "oops", After: 1}})
	if len(o.replies) != 1 {
		return fmt.Errorf("%d replies", len(o.replies))
	}
	return r.wantBusinessError(o, "oops")
}

func largeStream(ctx context.Context, r *run) error {
	var requests []*echopb.SayRequest
	for range 8 {
		requests = append(requests, &echopb.SayRequest{Payload: pattern(300000)})
	}
	o := r.all(ctx, "Collect", requests...)
	if err := o.wantOK(1); err != nil {
		return err
	}
	if o.reply().TotalBytes != 8*300000 {
		return fmt.Errorf("%d bytes arrived", o.reply().TotalBytes)
	}
	o = r.all(ctx, "Expand", &echopb.SayRequest{Count: 8, ReplyBytes: 300000})
	if err := wantIndexes(o, 8); err != nil {
		return err
	}
	for _, reply := range o.replies {
		if err := wantReplyBytes(reply, 300000); err != nil {
			return err
		}
	}
	return nil
}

// A stream whose client does not read holds its own window only.
func slowReader(ctx context.Context, r *run) error {
	s, err := r.openWith(ctx, "Expand", &echopb.SayRequest{Count: 100, ReplyBytes: 256 << 10})
	if err != nil {
		return err
	}
	if _, err := s.receive(); err != nil {
		return err
	}
	time.Sleep(300 * time.Millisecond)
	for i := range 20 {
		start := time.Now()
		o := r.say(ctx, &echopb.SayRequest{ReplyBytes: 20000})
		if err := o.wantOK(1); err != nil {
			return fmt.Errorf("call %d beside the slow stream: %w", i, err)
		}
		if err := wantBetween("a call beside the slow stream", time.Since(start), 0, 2*time.Second); err != nil {
			return err
		}
	}
	return s.drain().wantOK(99)
}

func streamGroup(ctx context.Context, r *run) error {
	o := r.all(withMetadata(ctx, "tri-service-group", "grey", "tri-service-version", "2.0"), "Expand",
		&echopb.SayRequest{Count: 1})
	if err := o.wantOK(1); err != nil {
		return err
	}
	return wantStrings("implementation", []string{o.reply().Implementation}, "grey/2.0")
}
