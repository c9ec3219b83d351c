package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"tributary/interop/internal/echopb"
)

const service = "/tributary.interop.Echo/"

// outcome is all that a caller can observe of a call.
type outcome struct {
	replies []*echopb.SayReply
	header  metadata.MD
	trailer metadata.MD
	status  *status.Status
}

func (o *outcome) code() codes.Code { return o.status.Code() }

func (o *outcome) reply() *echopb.SayReply {
	if len(o.replies) == 0 {
		return nil
	}
	return o.replies[0]
}

// wantOK returns an error unless the call succeeded with n replies.
func (o *outcome) wantOK(n int) error {
	if o.code() != codes.OK {
		return fmt.Errorf("status %v %q, want OK", o.code(), o.status.Message())
	}
	if len(o.replies) != n {
		return fmt.Errorf("%d replies, want %d", len(o.replies), n)
	}
	return nil
}

func (o *outcome) wantStatus(code codes.Code, message string) error {
	if o.code() != code || o.status.Message() != message {
		return fmt.Errorf("status %v %q, want %v %q", o.code(), o.status.Message(), code, message)
	}
	return nil
}

func (t *target) say(ctx context.Context, request *echopb.SayRequest, options ...grpc.CallOption) *outcome {
	return t.unary(ctx, service+"Say", request, options...)
}

func (t *target) unary(ctx context.Context, path string, request *echopb.SayRequest, options ...grpc.CallOption) *outcome {
	o := new(outcome)
	reply := new(echopb.SayReply)
	options = append(options, grpc.Header(&o.header), grpc.Trailer(&o.trailer))
	err := t.conn.Invoke(ctx, path, request, reply, options...)
	o.status = status.Convert(err)
	if err == nil {
		o.replies = []*echopb.SayReply{reply}
	}
	return o
}

func (t *target) count(ctx context.Context) (*echopb.CountReply, error) {
	reply := new(echopb.CountReply)
	return reply, t.conn.Invoke(ctx, service+"Count", &echopb.CountRequest{}, reply)
}

// stream is a client stream of any of the three kinds.
type stream struct {
	grpc.ClientStream
}

func (t *target) open(ctx context.Context, method string, options ...grpc.CallOption) (*stream, error) {
	desc := &grpc.StreamDesc{
		ServerStreams: method != "Collect",
		ClientStreams: method != "Expand",
	}
	s, err := t.conn.NewStream(ctx, desc, service+method, options...)
	if err != nil {
		return nil, err
	}
	return &stream{s}, nil
}

// openWith also sends the requests; it half-closes.
func (t *target) openWith(ctx context.Context, method string, requests ...*echopb.SayRequest) (*stream, error) {
	s, err := t.open(ctx, method)
	if err != nil {
		return nil, err
	}
	for _, request := range requests {
		// EOF: the call has ended already, its status comes with the next receive.
		if err := s.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	return s, s.CloseSend()
}

func (s *stream) receive() (*echopb.SayReply, error) {
	reply := new(echopb.SayReply)
	if err := s.RecvMsg(reply); err != nil {
		return nil, err
	}
	return reply, nil
}

// drain reads to the end of the call.
func (s *stream) drain() *outcome {
	o := new(outcome)
	for {
		reply, err := s.receive()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				o.status = status.Convert(err)
			}
			break
		}
		o.replies = append(o.replies, reply)
	}
	if o.status == nil {
		o.status = status.New(codes.OK, "")
	}
	o.header, _ = s.Header()
	o.trailer = s.Trailer()
	return o
}

// all runs a whole streaming call.
func (t *target) all(ctx context.Context, method string, requests ...*echopb.SayRequest) *outcome {
	s, err := t.openWith(ctx, method, requests...)
	if err != nil {
		return &outcome{status: status.Convert(err)}
	}
	return s.drain()
}

func entries(pairs ...string) []*echopb.Entry {
	var all []*echopb.Entry
	for i := 0; i+1 < len(pairs); i += 2 {
		all = append(all, &echopb.Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return all
}

// headerValues are the values of one request header as the provider saw them.
func headerValues(reply *echopb.SayReply, key string) []string {
	var values []string
	for _, entry := range reply.GetHeaders() {
		if entry.Key == key {
			values = append(values, entry.Value)
		}
	}
	return values
}

func sameMessage(a, b proto.Message) error {
	if !proto.Equal(a, b) {
		return fmt.Errorf("got %v, want %v", a, b)
	}
	return nil
}
