// dubbo-testservice is gRPC's interop TestService on dubbo-go's Triple server, without a registry. It prints
// "READY 127.0.0.1:PORT" once it accepts connections, and leaves with 0 on SIGTERM.
package main

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"dubbo.apache.org/dubbo-go/v3/graceful_shutdown"
	"dubbo.apache.org/dubbo-go/v3/protocol"
	"dubbo.apache.org/dubbo-go/v3/server"

	"github.com/dubbogo/gost/log/logger"
	"go.uber.org/zap"

	_ "dubbo.apache.org/dubbo-go/v3/filter/accesslog"
	_ "dubbo.apache.org/dubbo-go/v3/filter/echo"
	_ "dubbo.apache.org/dubbo-go/v3/filter/exec_limit"
	_ "dubbo.apache.org/dubbo-go/v3/filter/generic"
	_ "dubbo.apache.org/dubbo-go/v3/filter/graceful_shutdown"
	_ "dubbo.apache.org/dubbo-go/v3/filter/token"
	_ "dubbo.apache.org/dubbo-go/v3/filter/tps"
	_ "dubbo.apache.org/dubbo-go/v3/protocol/triple/health"
	_ "dubbo.apache.org/dubbo-go/v3/protocol/triple/reflection"
	_ "dubbo.apache.org/dubbo-go/v3/proxy/proxy_factory"
)

const grace = 50 * time.Millisecond

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "dubbo-testservice:", err)
		os.Exit(1)
	}
}

func run() error {
	quiet := zap.NewDevelopmentConfig()
	quiet.Level = zap.NewAtomicLevelAt(zap.FatalLevel)
	quiet.OutputPaths = []string{"stderr"}
	logger.InitLogger(&logger.Config{ZapConfig: &quiet})
	// Before any other call: dubbo-go keeps the first settings it sees.
	graceful_shutdown.Init(
		graceful_shutdown.WithoutInternalSignal(),
		graceful_shutdown.WithConsumerUpdateWaitTime(grace),
		graceful_shutdown.WithOfflineRequestWindowTimeout(grace),
		graceful_shutdown.WithStepTimeout(grace),
		graceful_shutdown.WithNotifyTimeout(grace),
	)
	// dubbo-go cannot say which port it bound, so one is chosen for it.
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	testServer, err := server.NewServer(server.WithServerProtocol(
		protocol.WithTriple(), protocol.WithIp("127.0.0.1"), protocol.WithPort(port)))
	if err != nil {
		return err
	}
	if err := testServer.Register(&TestService{}, serviceInfo()); err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	failed := make(chan error, 1)
	go func() { failed <- testServer.Serve() }()
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if err := waitAccepting(address, failed); err != nil {
		return err
	}
	fmt.Println("READY", address)
	select {
	case err := <-failed:
		return fmt.Errorf("the server stopped by itself: %v", err)
	case <-signals:
	}
	time.AfterFunc(2*time.Second, func() { os.Exit(0) }) // it waits for streams that a peer holds open
	graceful_shutdown.Shutdown(nil)
	return nil
}

func waitAccepting(address string, failed <-chan error) error {
	for range 500 {
		select {
		case err := <-failed:
			return fmt.Errorf("could not serve %s: %v", address, err)
		default:
		}
		if conn, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			return conn.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("nothing accepts on %s after 5 s", address)
}
