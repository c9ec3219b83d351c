// dubbo-provider is a dubbo-go Triple provider of the Echo service on loopback, without a registry.
// It prints "READY 127.0.0.1:PORT" on stdout once it accepts connections, and leaves with 0 on
// SIGTERM or SIGINT. Three implementations are registered: the plain one, and two that answer to
// tri-service-group/-version "grey"/"2.0" and ""/"1.1". For the benchmarks: -delay and -exact-echo, and on
// SIGUSR1 a line of JSON that says what it has had and spent (see costs.go).
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"dubbo.apache.org/dubbo-go/v3/graceful_shutdown"
	"dubbo.apache.org/dubbo-go/v3/protocol"
	"dubbo.apache.org/dubbo-go/v3/protocol/triple"
	"dubbo.apache.org/dubbo-go/v3/server"

	"github.com/dubbogo/gost/log/logger"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"tributary/interop/internal/echotri"

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

func main() {
	port := flag.Int("port", 0, "port on 127.0.0.1; 0 picks a free one")
	level := flag.String("log", "fatal", "level of dubbo-go's own log, on stderr")
	maxMessage := flag.String("max-message", "64MiB", "longest message either way; dubbo-go's default is 4MiB")
	grace := flag.Duration("grace", 100*time.Millisecond,
		"on SIGTERM: how long new calls are still taken, and then how long old ones may take")
	delay := flag.Duration("delay", 0, "every Say waits so long before it answers, as a handler with work to do")
	exact := flag.Bool("exact-echo", false, "replies to Say are the request's text and payload and nothing else")
	flag.Parse()

	seen := &counters{delay: *delay, exact: *exact}
	tellCosts(seen)
	if err := run(*port, *level, *maxMessage, *grace, seen); err != nil {
		fmt.Fprintln(os.Stderr, "dubbo-provider:", err)
		os.Exit(1)
	}
}

func run(port int, level, maxMessage string, grace time.Duration, seen *counters) error {
	if err := quietLog(level); err != nil {
		return err
	}
	// Before any call to dubbo-go, which keeps only the first settings it sees.
	graceful_shutdown.Init(
		graceful_shutdown.WithoutInternalSignal(),
		graceful_shutdown.WithConsumerUpdateWaitTime(grace),
		graceful_shutdown.WithOfflineRequestWindowTimeout(grace),
		graceful_shutdown.WithStepTimeout(grace),
		graceful_shutdown.WithNotifyTimeout(grace),
	)
	if port == 0 {
		free, err := freePort()
		if err != nil {
			return err
		}
		port = free
	}

	srv, err := server.NewServer(server.WithServerProtocol(
		protocol.WithTriple(
			triple.WithMaxServerRecvMsgSize(maxMessage), triple.WithMaxServerSendMsgSize(maxMessage)),
		protocol.WithIp("127.0.0.1"),
		protocol.WithPort(port),
	))
	if err != nil {
		return err
	}
	if err := registerAll(srv, seen); err != nil {
		return err
	}

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve() }()

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
	go func() {
		// dubbo-go waits for streams that a peer holds open; a test must not.
		time.Sleep(10*grace + 2*time.Second)
		os.Exit(0)
	}()
	graceful_shutdown.Shutdown(nil)
	return nil
}

func registerAll(srv *server.Server, seen *counters) error {
	filter := server.WithFilter(keepDetailsFilter)
	err := srv.Register(&PlainEcho{echo{seen: seen, name: "/"}}, echotri.ServiceInfo(), filter)
	if err != nil {
		return err
	}
	err = srv.Register(&GreyEcho{echo{seen: seen, name: "grey/2.0"}}, echotri.ServiceInfo(), filter,
		server.WithGroup("grey"), server.WithVersion("2.0"))
	if err != nil {
		return err
	}
	return srv.Register(&NextEcho{echo{seen: seen, name: "/1.1"}}, echotri.ServiceInfo(), filter,
		server.WithVersion("1.1"))
}

// freePort asks the kernel for a port: dubbo-go cannot say which one it bound. Another process may
// take it before dubbo-go does; waitAccepting then ends in an error and not in a wrong READY, because
// dubbo-go's bind fails and is logged.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func waitAccepting(address string, failed <-chan error) error {
	for range 500 {
		select {
		case err := <-failed:
			return fmt.Errorf("could not serve %s: %v", address, err)
		default:
		}
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			return conn.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("nothing accepts on %s after 5 s", address)
}

func quietLog(level string) error {
	at, err := zapcore.ParseLevel(level)
	if err != nil {
		return err
	}
	config := zap.NewDevelopmentConfig()
	config.Level = zap.NewAtomicLevelAt(at)
	config.OutputPaths = []string{"stderr"}
	logger.InitLogger(&logger.Config{ZapConfig: &config})
	return nil
}
