package main

import (
	"context"
	"errors"
	"io"
	"net/http"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	tri "dubbo.apache.org/dubbo-go/v3/protocol/triple/triple_protocol"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"tributary/conformance/internal/testservice"
)

// TestService and its methods are exported because dubbo-go looks for them by reflection.
type TestService struct{}

// serviceInfo says by hand what dubbo-go's code generator would write.
func serviceInfo() *common.ServiceInfo {
	same := func(stream any) any { return stream }
	return &common.ServiceInfo{
		InterfaceName: testservice.Service,
		ServiceType:   (*any)(nil),
		Methods: []common.MethodInfo{
			{Name: "EmptyCall", Type: constant.CallUnary,
				ReqInitFunc: func() any { return new(pb.Empty) },
				MethodFunc: func(ctx context.Context, args []any, handler any) (any, error) {
					return reply(handler.(*TestService).EmptyCall(ctx, args[0].(*pb.Empty)))
				}},
			{Name: "UnaryCall", Type: constant.CallUnary,
				ReqInitFunc: func() any { return new(pb.SimpleRequest) },
				MethodFunc: func(ctx context.Context, args []any, handler any) (any, error) {
					return reply(handler.(*TestService).UnaryCall(ctx, args[0].(*pb.SimpleRequest)))
				}},
			{Name: "StreamingOutputCall", Type: constant.CallServerStream, StreamInitFunc: same,
				ReqInitFunc: func() any { return new(pb.StreamingOutputCallRequest) },
				MethodFunc: func(ctx context.Context, args []any, handler any) (any, error) {
					return nil, handler.(*TestService).StreamingOutputCall(ctx,
						args[0].(*pb.StreamingOutputCallRequest), args[1].(*tri.ServerStream))
				}},
			{Name: "StreamingInputCall", Type: constant.CallClientStream, StreamInitFunc: same,
				MethodFunc: func(ctx context.Context, args []any, handler any) (any, error) {
					return reply(handler.(*TestService).StreamingInputCall(ctx, args[0].(*tri.ClientStream)))
				}},
			{Name: "FullDuplexCall", Type: constant.CallBidiStream, StreamInitFunc: same,
				MethodFunc: func(ctx context.Context, args []any, handler any) (any, error) {
					return nil, handler.(*TestService).FullDuplexCall(ctx, args[0].(*tri.BidiStream))
				}},
		},
	}
}

// reply keeps a nil response an untyped nil, which is what dubbo-go tests for.
func reply(response *tri.Response, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return response, nil
}

func (*TestService) EmptyCall(context.Context, *pb.Empty) (*tri.Response, error) {
	return tri.NewResponse(&pb.Empty{}), nil
}

func (*TestService) UnaryCall(ctx context.Context, request *pb.SimpleRequest) (*tri.Response, error) {
	if err := statusError(request.GetResponseStatus()); err != nil {
		return nil, err
	}
	message, err := testservice.Unary(request)
	if err != nil {
		return nil, tri.NewError(tri.CodeInvalidArgument, err)
	}
	headers, _ := tri.FromIncomingContext(ctx)
	leading, trailing := make(http.Header), make(http.Header)
	echo(headers, leading, trailing)
	if err := errors.Join(tri.SetHeader(ctx, leading), tri.SetTrailer(ctx, trailing)); err != nil {
		return nil, err
	}
	return tri.NewResponse(message), nil
}

func (*TestService) StreamingOutputCall(_ context.Context, request *pb.StreamingOutputCallRequest,
	stream *tri.ServerStream) error {
	return testservice.Output(request, sendTo(stream.Send))
}

func (*TestService) StreamingInputCall(_ context.Context, stream *tri.ClientStream) (*tri.Response, error) {
	sum := 0
	request := new(pb.StreamingInputCallRequest)
	for stream.Receive(request) {
		sum += len(request.GetPayload().GetBody())
		request = new(pb.StreamingInputCallRequest)
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	return tri.NewResponse(&pb.StreamingInputCallResponse{AggregatedPayloadSize: int32(sum)}), nil
}

func (*TestService) FullDuplexCall(_ context.Context, stream *tri.BidiStream) error {
	echo(stream.RequestHeader(), stream.ResponseHeader(), stream.ResponseTrailer())
	for {
		request := new(pb.StreamingOutputCallRequest)
		err := stream.Receive(request)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := statusError(request.GetResponseStatus()); err != nil {
			return err
		}
		if err := testservice.Output(request, sendTo(stream.Send)); err != nil {
			return err
		}
	}
}

func sendTo(send func(any) error) func(*pb.StreamingOutputCallResponse) error {
	return func(response *pb.StreamingOutputCallResponse) error { return send(response) }
}

func statusError(status *pb.EchoStatus) error {
	if status.GetCode() == 0 {
		return nil
	}
	return tri.NewError(tri.Code(status.GetCode()), errors.New(status.GetMessage()))
}

func echo(request, header, trailer http.Header) {
	for _, value := range request.Values(testservice.InitialKey) {
		header.Add(testservice.InitialKey, value)
	}
	for _, value := range request.Values(testservice.TrailingKey) {
		trailer.Add(testservice.TrailingKey, value)
	}
}
