package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sort"
	"strings"
	"sync/atomic"
	"time"

	"dubbo.apache.org/dubbo-go/v3/protocol/triple/triple_protocol"

	"google.golang.org/protobuf/types/known/anypb"

	"tributary/interop/internal/echopb"
)

// counters is shared by all implementations of one provider, and so is what its command line says of calls.
type counters struct {
	started, ended, cancelled        atomic.Uint64
	framed, bare, gzipIn, gzipOffers atomic.Uint64 // unary calls by what they came as
	delay                            time.Duration
	exact                            bool
}

// echo does what the request says; see tests/interop/proto/echo.proto.
type echo struct {
	seen *counters
	name string // "group/version"
}

// dubbo-go keeps one registration per Go type name and wants that exported: a type for each implementation.
type PlainEcho struct{ echo }
type GreyEcho struct{ echo }
type NextEcho struct{ echo }

func (e *echo) begin() func(context.Context) {
	e.seen.started.Add(1)
	return func(ctx context.Context) {
		if ctx.Err() != nil {
			e.seen.cancelled.Add(1)
		}
		e.seen.ended.Add(1)
	}
}

func (e *echo) Say(ctx context.Context, request *echopb.SayRequest) (*triple_protocol.Response, error) {
	arrived := time.Now()
	defer e.begin()(ctx)

	headers, _ := triple_protocol.FromIncomingContext(ctx)
	e.seen.came(headers)
	if err := wait(ctx, e.seen.delay+time.Duration(request.DelayMs)*time.Millisecond); err != nil {
		return nil, err
	}
	if err := addMetadata(ctx, request); err != nil {
		return nil, err
	}
	if request.Fail != nil {
		return nil, failure(ctx, request.Fail)
	}
	return triple_protocol.NewResponse(e.reply(ctx, request, headers, arrived)), nil
}

func (e *echo) Expand(ctx context.Context, request *echopb.SayRequest, stream *triple_protocol.ServerStream) error {
	arrived := time.Now()
	defer e.begin()(ctx)

	headers, _ := triple_protocol.FromIncomingContext(ctx)
	addAll(stream.ResponseHeader(), request.Leading)
	if request.HeadersFirst {
		flushHeaders(stream.Conn())
	}
	if err := pause(ctx, request.DelayMs); err != nil {
		return err
	}
	addAll(stream.ResponseTrailer(), request.Trailing)
	for i := uint32(0); i < request.Count; i++ {
		if request.Fail != nil && request.Fail.After == i {
			return failure(ctx, request.Fail)
		}
		if i > 0 {
			if err := pause(ctx, request.GapMs); err != nil {
				return err
			}
		}
		reply := e.reply(ctx, request, headers, arrived)
		reply.Index = i
		if err := stream.Send(reply); err != nil {
			return err
		}
	}
	if request.Fail != nil {
		return failure(ctx, request.Fail)
	}
	return nil
}

func (e *echo) Collect(ctx context.Context, stream *triple_protocol.ClientStream) (*triple_protocol.Response, error) {
	arrived := time.Now()
	defer e.begin()(ctx)

	var first *echopb.SayRequest
	var texts []string
	var count uint32
	var total uint64
	for {
		if first != nil && first.Fail != nil && count == first.Fail.After {
			addAll(stream.Conn().ResponseTrailer(), first.Trailing)
			return nil, failure(ctx, first.Fail)
		}
		request := new(echopb.SayRequest)
		if !stream.Receive(request) {
			break
		}
		if first == nil {
			first = request
			addAll(stream.Conn().ResponseHeader(), first.Leading)
			if first.HeadersFirst {
				flushHeaders(stream.Conn())
			}
		}
		texts = append(texts, request.Text)
		total += uint64(len(request.Payload))
		count++
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	if first == nil {
		first = new(echopb.SayRequest)
	}
	if err := pause(ctx, first.DelayMs); err != nil {
		return nil, err
	}
	addAll(stream.Conn().ResponseTrailer(), first.Trailing)
	if first.Fail != nil {
		return nil, failure(ctx, first.Fail)
	}
	reply := e.reply(ctx, first, stream.RequestHeader(), arrived)
	reply.Text = strings.Join(texts, ",")
	reply.Index = count
	reply.TotalBytes = total
	return triple_protocol.NewResponse(reply), nil
}

func (e *echo) Chat(ctx context.Context, stream *triple_protocol.BidiStream) error {
	arrived := time.Now()
	defer e.begin()(ctx)

	var first *echopb.SayRequest
	for i := uint32(0); ; i++ {
		request := new(echopb.SayRequest)
		err := stream.Receive(request)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if first == nil {
			first = request
			addAll(stream.ResponseHeader(), first.Leading)
			addAll(stream.ResponseTrailer(), first.Trailing)
			if first.HeadersFirst {
				flushHeaders(stream.Conn())
			}
		}
		if first.Fail != nil && first.Fail.After == i {
			return failure(ctx, first.Fail)
		}
		wait := request.DelayMs
		if i > 0 {
			wait += first.GapMs
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
		reply := e.reply(ctx, request, stream.RequestHeader(), arrived)
		reply.Index = i
		if err := stream.Send(reply); err != nil {
			return err
		}
	}
	if first != nil && first.Fail != nil {
		return failure(ctx, first.Fail)
	}
	return nil
}

func (e *echo) Count(context.Context, *echopb.CountRequest) (*triple_protocol.Response, error) {
	return triple_protocol.NewResponse(&echopb.CountReply{
		Started:   e.seen.started.Load(),
		Ended:     e.seen.ended.Load(),
		Cancelled: e.seen.cancelled.Load(),
	}), nil
}

func (e *echo) reply(ctx context.Context, request *echopb.SayRequest, headers http.Header, arrived time.Time) *echopb.SayReply {
	if request.EmptyReply {
		return &echopb.SayReply{}
	}
	reply := &echopb.SayReply{Text: request.Text, Payload: request.Payload}
	if e.seen.exact {
		return reply
	}
	reply.Implementation = e.name
	if request.ReplyBytes > 0 {
		reply.Payload = make([]byte, request.ReplyBytes)
		for i := range reply.Payload {
			reply.Payload[i] = byte(i % 251)
		}
	}
	if deadline, ok := ctx.Deadline(); ok {
		reply.RemainingMs = uint32(max(0, deadline.Sub(arrived).Milliseconds()))
	}
	if request.WantHeaders {
		reply.Headers = entries(headers)
	}
	return reply
}

// pause waits, or returns the context's own error: dubbo-go sends that as code 17, not 1 or 4.
func pause(ctx context.Context, milliseconds uint32) error {
	return wait(ctx, time.Duration(milliseconds)*time.Millisecond)
}

func wait(ctx context.Context, long time.Duration) error {
	if long == 0 {
		return nil
	}
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func failure(ctx context.Context, wanted *echopb.Failure) error {
	if wanted.Plain {
		return errors.New(wanted.Message)
	}
	err := triple_protocol.NewError(triple_protocol.Code(wanted.Code), errors.New(wanted.Message))
	for _, detail := range wanted.Details {
		any := &anypb.Any{TypeUrl: "type.googleapis.com/" + detail.Type, Value: detail.Value}
		added, addErr := triple_protocol.NewErrorDetail(any)
		if addErr != nil {
			return addErr
		}
		err.AddDetail(added)
	}
	addAll(err.Meta(), wanted.Metadata)
	if wanted.KeepDetails {
		keepError(ctx, err)
	}
	return err
}

func addMetadata(ctx context.Context, request *echopb.SayRequest) error {
	leading, trailing := make(http.Header), make(http.Header)
	addAll(leading, request.Leading)
	addAll(trailing, request.Trailing)
	return errors.Join(triple_protocol.SetHeader(ctx, leading), triple_protocol.SetTrailer(ctx, trailing))
}

func addAll(into http.Header, from []*echopb.Entry) {
	for _, entry := range from {
		into.Add(entry.Key, entry.Value)
	}
}

// flushHeaders sends the response headers alone: dubbo-go writes and flushes no bytes for a nil message.
func flushHeaders(conn triple_protocol.StreamingHandlerConn) {
	_ = conn.Send(nil)
}

func entries(headers http.Header) []*echopb.Entry {
	keys := make([]string, 0, len(headers))
	for key := range headers {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	var all []*echopb.Entry
	for _, key := range keys {
		for _, value := range headers[key] {
			all = append(all, &echopb.Entry{Key: strings.ToLower(key), Value: value})
		}
	}
	return all
}
