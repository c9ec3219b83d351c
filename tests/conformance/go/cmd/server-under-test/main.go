// server-under-test is what the Connect conformance suite takes for the server: the suite's own reference
// server behind tributary, with a tap between them.
//
//	suite's client -> tributary -> tap -> reference server
//
// It reads the suite's ServerCompatRequest from stdin (four bytes of length, then the message), hands it on
// to the reference server as it came, starts the proxy in front of what that one answers, and answers the
// suite with the proxy's address. On SIGTERM, which is how the suite ends a server, it saves the proxy's
// stats, stops both and leaves with 0 if the proxy did.
//
// Into -records go, each run under names of its own: NAME.calls (what the tap saw, a JSON line a stream),
// NAME.stats (the proxy's /stats at the end), NAME.log (the proxy's log).
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"tributary/conformance/internal/tap"
)

const longestMessage = 1 << 20

func main() {
	proxy := flag.String("proxy", os.Getenv("TRIBUTARY_BIN"), "tributary's binary")
	server := flag.String("server", "", "the suite's reference server; default: referenceserver beside this program")
	call := flag.String("call", "auto", "auto: call = auto for all; explicit: unary or stream for each method")
	dialect := flag.String("dialect", "connect", "the upstream's dialect")
	extra := flag.String("route", "", "more lines for each [route]; \\n separates them")
	records := flag.String("records", "", "folder for records; needed")
	flag.Parse()
	if *server == "" {
		if own, err := os.Executable(); err == nil {
			*server = filepath.Join(filepath.Dir(own), "referenceserver")
		}
	}
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(stopped, *proxy, *server, settings{*call, *dialect, *extra}, *records); err != nil {
		fmt.Fprintln(os.Stderr, "server-under-test:", err)
		os.Exit(1)
	}
}

func run(stopped context.Context, proxyPath, serverPath string, how settings, folder string) error {
	request, err := readMessage(os.Stdin)
	if err != nil {
		return fmt.Errorf("the suite's request: %w", err)
	}
	prefix, err := freshPrefix(folder)
	if err != nil {
		return err
	}
	server, serverAddress, err := startServer(serverPath, request)
	if err != nil {
		return fmt.Errorf("the reference server: %w", err)
	}
	defer server.Wait()
	defer server.Process.Kill()

	watch, err := tap.Start(serverAddress, prefix+".calls")
	if err != nil {
		return err
	}
	defer watch.Stop()
	running, err := startProxy(proxyPath, watch.Address(), how, prefix)
	if err != nil {
		return fmt.Errorf("tributary: %w", err)
	}
	if err := writeMessage(os.Stdout, answer(running.host, running.port)); err != nil {
		running.stop()
		return err
	}
	select {
	case <-stopped.Done():
	case <-running.gone:
		return fmt.Errorf("tributary left while calls were running; its log: %s.log", prefix)
	}
	return running.saveStatsAndStop()
}

// freshPrefix makes the folder and returns a prefix in it that no other run has.
func freshPrefix(folder string) (string, error) {
	if folder == "" {
		return "", fmt.Errorf("-records is missing")
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	file, err := os.CreateTemp(folder, "run-*.ini")
	if err != nil {
		return "", err
	}
	file.Close()
	return file.Name()[:len(file.Name())-len(".ini")], nil
}

// startServer starts the reference server with the suite's own request; returns it and its address.
func startServer(path string, request []byte) (*exec.Cmd, string, error) {
	server := exec.Command(path, "-port", "0")
	server.Stderr = os.Stderr
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := server.StdinPipe()
	if err != nil {
		return nil, "", err
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := server.Start(); err != nil {
		return nil, "", err
	}
	if err := writeMessage(stdin, request); err != nil {
		return server, "", err
	}
	stdin.Close()
	timer := time.AfterFunc(20*time.Second, func() { server.Process.Kill() })
	defer timer.Stop()
	reply, err := readMessage(stdout)
	if err != nil {
		return server, "", err
	}
	address, err := addressOf(reply)
	return server, address, err
}

// --- the suite's messages ----------------------------------------------------------------------------
// Its Go package of them is internal to its module; two fields are all that is needed.

func readMessage(from io.Reader) ([]byte, error) {
	var length uint32
	if err := binary.Read(from, binary.BigEndian, &length); err != nil {
		return nil, err
	}
	if length > longestMessage {
		return nil, fmt.Errorf("a message of %d bytes", length)
	}
	message := make([]byte, length)
	_, err := io.ReadFull(from, message)
	return message, err
}

func writeMessage(to io.Writer, message []byte) error {
	_, err := to.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...))
	return err
}

// answer is a ServerCompatResponse: host = 1, port = 2.
func answer(host string, port int) []byte {
	message := protowire.AppendTag(nil, 1, protowire.BytesType)
	message = protowire.AppendString(message, host)
	message = protowire.AppendTag(message, 2, protowire.VarintType)
	return protowire.AppendVarint(message, uint64(port))
}

func addressOf(message []byte) (string, error) {
	host, port := "", uint64(0)
	for len(message) > 0 {
		number, kind, used := protowire.ConsumeTag(message)
		if used < 0 {
			return "", protowire.ParseError(used)
		}
		message = message[used:]
		switch {
		case number == 1 && kind == protowire.BytesType:
			var value []byte
			value, used = protowire.ConsumeBytes(message)
			host = string(value)
		case number == 2 && kind == protowire.VarintType:
			port, used = protowire.ConsumeVarint(message)
		default:
			used = protowire.ConsumeFieldValue(number, kind, message)
		}
		if used < 0 {
			return "", protowire.ParseError(used)
		}
		message = message[used:]
	}
	if host == "" || port == 0 {
		return "", fmt.Errorf("its answer names no address")
	}
	return fmt.Sprintf("%s:%d", host, port), nil
}
