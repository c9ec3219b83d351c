package main

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"tributary/interop/internal/echopb"
	"tributary/interop/internal/echotri"
)

const grpcMaxBytes = 16 << 20

// grpcCaller is a grpc-go channel. Importing the gzip package makes it offer gzip on every call, as
// most Go programs do.
type grpcCaller struct{ conn *grpc.ClientConn }

func newGrpc(target string) (caller, error) {
	conn, err := grpc.NewClient("passthrough:///"+target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(grpcMaxBytes), grpc.MaxCallSendMsgSize(grpcMaxBytes)))
	return &grpcCaller{conn}, err
}

func (c *grpcCaller) say(ctx context.Context, request *echopb.SayRequest) (*echopb.SayReply, error) {
	return c.unary(ctx, request)
}

func (c *grpcCaller) sayGzip(ctx context.Context, request *echopb.SayRequest) (*echopb.SayReply, error) {
	return c.unary(ctx, request, grpc.UseCompressor(gzip.Name))
}

func (c *grpcCaller) unary(ctx context.Context, request *echopb.SayRequest, options ...grpc.CallOption) (*echopb.SayReply, error) {
	reply := new(echopb.SayReply)
	var trailer metadata.MD
	err := c.conn.Invoke(ctx, "/"+echotri.Name+"/Say", request, reply, append(options, grpc.Trailer(&trailer))...)
	return reply, grpcFailure(err, trailer)
}

func grpcFailure(err error, trailer metadata.MD) error {
	if err == nil {
		return nil
	}
	how := &failed{code: uint32(status.Code(err)), message: status.Convert(err).Message()}
	if values := trailer.Get(trailerKey); len(values) > 0 {
		how.trailer = values[0]
	}
	return how
}

func (c *grpcCaller) open(ctx context.Context, method string) (grpc.ClientStream, error) {
	description := &grpc.StreamDesc{StreamName: method, ServerStreams: true, ClientStreams: true}
	return c.conn.NewStream(ctx, description, "/"+echotri.Name+"/"+method)
}

func (c *grpcCaller) expand(ctx context.Context, request *echopb.SayRequest) ([]*echopb.SayReply, error) {
	stream, err := c.open(ctx, "Expand")
	if err != nil {
		return nil, grpcFailure(err, nil)
	}
	if err := errors.Join(stream.SendMsg(request), stream.CloseSend()); err != nil {
		return nil, err
	}
	return receiveAll(stream)
}

func receiveAll(stream grpc.ClientStream) ([]*echopb.SayReply, error) {
	var all []*echopb.SayReply
	for {
		reply := new(echopb.SayReply)
		err := stream.RecvMsg(reply)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, grpcFailure(err, stream.Trailer())
		}
		all = append(all, reply)
	}
}

func (c *grpcCaller) collect(ctx context.Context, requests []*echopb.SayRequest) (*echopb.SayReply, error) {
	stream, err := c.open(ctx, "Collect")
	if err != nil {
		return nil, grpcFailure(err, nil)
	}
	for _, request := range requests {
		if err := stream.SendMsg(request); err != nil {
			return nil, err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	replies, err := receiveAll(stream)
	if err == nil && len(replies) != 1 {
		return nil, errors.New("not exactly one reply")
	}
	if err != nil {
		return nil, err
	}
	return replies[0], nil
}

func (c *grpcCaller) chat(ctx context.Context, requests []*echopb.SayRequest) ([]*echopb.SayReply, error) {
	stream, err := c.open(ctx, "Chat")
	if err != nil {
		return nil, grpcFailure(err, nil)
	}
	var all []*echopb.SayReply
	for _, request := range requests {
		if err := stream.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
			return all, grpcFailure(err, nil)
		}
		reply := new(echopb.SayReply)
		if err := stream.RecvMsg(reply); err != nil {
			return all, grpcFailure(err, stream.Trailer())
		}
		all = append(all, reply)
	}
	if err := stream.CloseSend(); err != nil {
		return all, err
	}
	rest, err := receiveAll(stream)
	return append(all, rest...), err
}
