package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// settings are what a run varies.
type settings struct{ call, dialect, route string }

// methods of the suite's service, with what each is; the tap's checks hold the unary ones to it.
var methods = map[string]string{
	"Unary": "unary", "IdempotentUnary": "unary", "Unimplemented": "unary",
	"ClientStream": "stream", "ServerStream": "stream", "BidiStream": "stream",
}

const service = "/connectrpc.conformance.v1.ConformanceService/"

// proxy is a running tributary.
type proxy struct {
	command *exec.Cmd
	host    string
	port    int
	admin   string
	prefix  string
	gone    chan struct{}
	log     *os.File
}

// startProxy starts tributary in front of upstream and waits until it is ready. Ports are chosen first and
// may be taken by another process before tributary binds them (it leaves with 2): then with others again.
func startProxy(path, upstream string, how settings, prefix string) (*proxy, error) {
	if path == "" {
		return nil, fmt.Errorf("TRIBUTARY_BIN is not set, and -proxy neither")
	}
	for attempt := 1; ; attempt++ {
		started, err := tryProxy(path, upstream, how, prefix)
		if err == nil {
			return started, nil
		}
		if started == nil || started.command.ProcessState == nil ||
			started.command.ProcessState.ExitCode() != 2 || attempt == 3 {
			return nil, err
		}
	}
}

func tryProxy(path, upstream string, how settings, prefix string) (*proxy, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	p := &proxy{host: "127.0.0.1", port: ports[0], admin: fmt.Sprintf("127.0.0.1:%d", ports[1]),
		prefix: prefix, gone: make(chan struct{})}
	if err := os.WriteFile(prefix+".ini", []byte(p.ini(upstream, how)), 0o644); err != nil {
		return nil, err
	}
	if p.log, err = os.Create(prefix + ".log"); err != nil {
		return nil, err
	}
	p.command = exec.Command(path, "-c", prefix+".ini")
	p.command.Stdout, p.command.Stderr = p.log, p.log
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.command.Wait()
		close(p.gone)
	}()
	for range 1000 {
		select {
		case <-p.gone:
			return p, fmt.Errorf("it left at its start: %v; its log: %s.log", p.command.ProcessState, prefix)
		case <-time.After(10 * time.Millisecond):
		}
		if _, err := p.get("/ready"); err == nil {
			return p, nil
		}
	}
	p.command.Process.Kill()
	return p, fmt.Errorf("not ready in 10 s")
}

func (p *proxy) ini(upstream string, how settings) string {
	var text strings.Builder
	fmt.Fprintf(&text, "[proxy]\nadmin = %s\nlog = stderr\nwatch = off\n\n", p.admin)
	fmt.Fprintf(&text, "[listener main]\naddress = %s:%d\n\n", p.host, p.port)
	fmt.Fprintf(&text, "[upstream reference]\nendpoints = %s\ndialect = %s\n\n", upstream, how.dialect)
	route := func(name, match, call string) {
		fmt.Fprintf(&text, "[route %s]\nmatch = %s\nupstream = reference\ncall = %s\n%s\n\n", name, match, call,
			strings.ReplaceAll(how.route, `\n`, "\n"))
	}
	if how.call == "explicit" {
		for method, kind := range methods {
			route(strings.ToLower(method), service+method, kind)
		}
	}
	route("rest", "*", "auto")
	return text.String()
}

// get answers with the body of a 200 of the stats endpoint, else with an error.
func (p *proxy) get(path string) ([]byte, error) {
	client := http.Client{Timeout: 5 * time.Second}
	reply, err := client.Get("http://" + p.admin + path)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answered %s", path, reply.Status)
	}
	return body, err
}

// saveStatsAndStop ends the run: a proxy that hangs or does not leave with 0 is an error.
func (p *proxy) saveStatsAndStop() error {
	stats, err := p.settledStats()
	if err == nil {
		err = os.WriteFile(p.prefix+".stats", stats, 0o644)
	}
	if stopError := p.stop(); err == nil {
		err = stopError
	}
	return err
}

// settledStats are the stats once no call is active, or after 2 s: the suite ends its server when it has its
// last answer, and the reset of a call that it has cancelled may still be on its way.
func (p *proxy) settledStats() ([]byte, error) {
	for attempt := 1; ; attempt++ {
		body, err := p.get("/stats")
		if err != nil {
			return nil, err
		}
		var stats struct {
			Routes map[string]struct{ Active int }
		}
		if err := json.Unmarshal(body, &stats); err != nil {
			return nil, err
		}
		active := 0
		for _, route := range stats.Routes {
			active += route.Active
		}
		if active == 0 || attempt == 40 {
			return body, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (p *proxy) stop() error {
	p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.gone:
	case <-time.After(3 * time.Second):
		// The suite's client keeps connections open; a second TERM is "stop now".
		p.command.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.gone:
		case <-time.After(5 * time.Second):
			p.command.Process.Kill()
			<-p.gone
			return fmt.Errorf("tributary did not leave within 5 s of the second SIGTERM")
		}
	}
	p.log.Close()
	if code := p.command.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("tributary left with %v; its log: %s.log", p.command.ProcessState, p.prefix)
	}
	return nil
}

// freePorts are ports of 127.0.0.1 that were free a moment ago, all different.
func freePorts(count int) ([]int, error) {
	ports := []int{}
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
