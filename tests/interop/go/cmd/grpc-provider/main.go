// grpc-provider is Echo on grpc-go's own server, for the benchmark suite: a gRPC provider that is no
// Dubbo at all, which a proxy must learn to send nothing bare. Say, Chat and Count only; of a request's
// wishes it honours want_headers. It prints "READY 127.0.0.1:PORT" on stdout and leaves with 0 on SIGTERM.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sort"
	"strconv"
	"sync/atomic"
	"syscall"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"

	"tributary/interop/internal/echopb"
)

const longestMessage = 64 << 20

type echo struct{ started, ended atomic.Uint64 }

func main() {
	port := flag.Int("port", 0, "port on 127.0.0.1; 0 picks a free one")
	flag.Parse()
	if err := run(*port); err != nil {
		fmt.Fprintln(os.Stderr, "grpc-provider:", err)
		os.Exit(1)
	}
}

func run(port int) error {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(longestMessage), grpc.MaxSendMsgSize(longestMessage))
	server.RegisterService(description(), new(echo))
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		server.Stop()
	}()
	fmt.Println("READY", listener.Addr())
	return server.Serve(listener)
}

// description is what grpc-go's code generator would write for these three methods.
func description() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "tributary.interop.Echo",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: "Say", Handler: func(service any, ctx context.Context, decode func(any) error,
				_ grpc.UnaryServerInterceptor) (any, error) {
				request := new(echopb.SayRequest)
				if err := decode(request); err != nil {
					return nil, err
				}
				return service.(*echo).say(ctx, request), nil
			}},
			{MethodName: "Count", Handler: func(service any, _ context.Context, decode func(any) error,
				_ grpc.UnaryServerInterceptor) (any, error) {
				if err := decode(new(echopb.CountRequest)); err != nil {
					return nil, err
				}
				seen := service.(*echo)
				return &echopb.CountReply{Started: seen.started.Load(), Ended: seen.ended.Load()}, nil
			}},
		},
		Streams: []grpc.StreamDesc{
			{StreamName: "Chat", ServerStreams: true, ClientStreams: true,
				Handler: func(service any, stream grpc.ServerStream) error {
					return service.(*echo).chat(stream)
				}},
		},
	}
}

func (e *echo) say(ctx context.Context, request *echopb.SayRequest) *echopb.SayReply {
	e.started.Add(1)
	defer e.ended.Add(1)
	reply := &echopb.SayReply{Text: request.Text, Payload: request.Payload, Implementation: "/"}
	if request.WantHeaders {
		reply.Headers = headers(ctx)
	}
	return reply
}

func (e *echo) chat(stream grpc.ServerStream) error {
	e.started.Add(1)
	defer e.ended.Add(1)
	for index := uint32(0); ; index++ {
		request := new(echopb.SayRequest)
		err := stream.RecvMsg(request)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		reply := &echopb.SayReply{Text: request.Text, Payload: request.Payload, Implementation: "/", Index: index}
		if err := stream.SendMsg(reply); err != nil {
			return err
		}
	}
}

func headers(ctx context.Context) []*echopb.Entry {
	seen, _ := metadata.FromIncomingContext(ctx)
	keys := make([]string, 0, len(seen))
	for key := range seen {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	var all []*echopb.Entry
	for _, key := range keys {
		for _, value := range seen[key] {
			all = append(all, &echopb.Entry{Key: key, Value: value})
		}
	}
	return all
}
