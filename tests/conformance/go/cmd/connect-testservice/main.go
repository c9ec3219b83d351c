// connect-testservice is gRPC's interop TestService on connect-go, over cleartext HTTP/2. It prints
// "READY 127.0.0.1:PORT" and leaves with 0 on SIGTERM.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"connectrpc.com/connect"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"tributary/conformance/internal/testservice"
)

func main() {
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, "connect-testservice:", err)
		os.Exit(1)
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: routes(), Protocols: &protocols}
	go server.Serve(listener)
	fmt.Println("READY", listener.Addr())
	<-stopped.Done()
	server.Close()
}

func routes() http.Handler {
	mux := http.NewServeMux()
	path := func(method string) string { return "/" + testservice.Service + "/" + method }
	handle := func(method string, handler *connect.Handler) { mux.Handle(path(method), handler) }
	handle("EmptyCall", connect.NewUnaryHandler(path("EmptyCall"), emptyCall))
	handle("UnaryCall", connect.NewUnaryHandler(path("UnaryCall"), unaryCall))
	handle("StreamingOutputCall", connect.NewServerStreamHandler(path("StreamingOutputCall"), streamingOutputCall))
	handle("StreamingInputCall", connect.NewClientStreamHandler(path("StreamingInputCall"), streamingInputCall))
	handle("FullDuplexCall", connect.NewBidiStreamHandler(path("FullDuplexCall"), fullDuplexCall))
	return mux
}

func emptyCall(context.Context, *connect.Request[pb.Empty]) (*connect.Response[pb.Empty], error) {
	return connect.NewResponse(&pb.Empty{}), nil
}

func unaryCall(_ context.Context, request *connect.Request[pb.SimpleRequest]) (*connect.Response[pb.SimpleResponse], error) {
	if err := statusError(request.Msg.GetResponseStatus()); err != nil {
		return nil, err
	}
	message, err := testservice.Unary(request.Msg)
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	response := connect.NewResponse(message)
	echo(request.Header(), response.Header(), response.Trailer())
	return response, nil
}

func streamingOutputCall(_ context.Context, request *connect.Request[pb.StreamingOutputCallRequest],
	stream *connect.ServerStream[pb.StreamingOutputCallResponse]) error {
	return testservice.Output(request.Msg, stream.Send)
}

func streamingInputCall(_ context.Context, stream *connect.ClientStream[pb.StreamingInputCallRequest],
) (*connect.Response[pb.StreamingInputCallResponse], error) {
	sum := 0
	for stream.Receive() {
		sum += len(stream.Msg().GetPayload().GetBody())
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	return connect.NewResponse(&pb.StreamingInputCallResponse{AggregatedPayloadSize: int32(sum)}), nil
}

func fullDuplexCall(_ context.Context,
	stream *connect.BidiStream[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]) error {
	echo(stream.RequestHeader(), stream.ResponseHeader(), stream.ResponseTrailer())
	for {
		request, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := statusError(request.GetResponseStatus()); err != nil {
			return err
		}
		if err := testservice.Output(request, stream.Send); err != nil {
			return err
		}
	}
}

func statusError(status *pb.EchoStatus) error {
	if status.GetCode() == 0 {
		return nil
	}
	return connect.NewError(connect.Code(status.GetCode()), errors.New(status.GetMessage()))
}

func echo(request, header, trailer http.Header) {
	for _, value := range request.Values(testservice.InitialKey) {
		header.Add(testservice.InitialKey, value)
	}
	for _, value := range request.Values(testservice.TrailingKey) {
		trailer.Add(testservice.TrailingKey, value)
	}
}
