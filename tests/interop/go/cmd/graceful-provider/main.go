// graceful-provider is a provider of Echo.Say on Go's own HTTP/2 server, for tests of rolling restarts:
// on SIGTERM it sends GOAWAY with the last stream that it takes, ends what runs, and leaves with 0. It
// speaks Triple's bare form only (a gRPC request gets 415, as from any such server) and prints
// "READY 127.0.0.1:PORT" on stdout.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	"tributary/interop/internal/echopb"
)

func main() {
	port := flag.Int("port", 0, "port on 127.0.0.1; 0 picks a free one")
	flag.Parse()
	if err := run(*port); err != nil {
		fmt.Fprintln(os.Stderr, "graceful-provider:", err)
		os.Exit(1)
	}
}

func run(port int) error {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: http.HandlerFunc(say), Protocols: protocols}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	fmt.Println("READY", listener.Addr())

	select {
	case err := <-failed:
		return err
	case <-signals:
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return server.Shutdown(ctx)
}

func say(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("content-type") != "application/proto" {
		w.WriteHeader(http.StatusUnsupportedMediaType)
		return
	}
	body, err := io.ReadAll(r.Body)
	request := new(echopb.SayRequest)
	if err != nil || proto.Unmarshal(body, request) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	time.Sleep(time.Duration(request.DelayMs) * time.Millisecond)
	reply, _ := proto.Marshal(&echopb.SayReply{Text: request.Text, Payload: request.Payload})
	w.Header().Set("content-type", "application/proto")
	w.Header().Set("content-length", strconv.Itoa(len(reply)))
	_, _ = w.Write(reply)
}
