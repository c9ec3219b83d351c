// Package tap relays TCP connections byte for byte and writes down what HTTP/2 calls passed.
//
// The relay and the reading are apart: every chunk goes on before it is looked at, and a connection that the
// reader cannot follow is still relayed, and reported as such. One JSON line a stream, written when the
// connection ends.
package tap

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"sync"
)

// Call is one HTTP/2 stream as it left the proxy.
type Call struct {
	Connection    int      `json:"connection"`
	Stream        uint32   `json:"stream"`
	Case          string   `json:"case"`
	Path          string   `json:"path"`
	ContentType   string   `json:"content_type"`
	ContentLength string   `json:"content_length"` // "" when absent
	Encoding      string   `json:"content_encoding"`
	GrpcHeaders   []string `json:"grpc_headers"` // names of grpc-* request headers
	Te            string   `json:"te"`
	DataBytes     int      `json:"data_bytes"`
	DataFrames    int      `json:"data_frames"`
	End           string   `json:"end"` // how the request ended: end_stream, reset, open
	Status        string   `json:"status"`
	ReplyType     string   `json:"reply_type"`
	ReplyEnd      string   `json:"reply_end"`
}

// Tap is a listener on loopback that relays to one address.
type Tap struct {
	listener net.Listener
	target   string
	mutex    sync.Mutex
	out      *os.File
	count    int
	open     map[net.Conn]bool
	running  sync.WaitGroup
}

// Start listens on a free port of 127.0.0.1 and relays to target. Records go to the file at path.
func Start(target, path string) (*Tap, error) {
	out, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		out.Close()
		return nil, err
	}
	tap := &Tap{listener: listener, target: target, out: out, open: map[net.Conn]bool{}}
	go tap.accept()
	return tap, nil
}

// Address is where the proxy's upstream is to connect.
func (tap *Tap) Address() string { return tap.listener.Addr().String() }

// Stop closes every connection and waits until all records are in the file.
func (tap *Tap) Stop() {
	tap.listener.Close()
	tap.mutex.Lock()
	for conn := range tap.open {
		conn.Close()
	}
	tap.mutex.Unlock()
	tap.running.Wait()
	tap.out.Close()
}

func (tap *Tap) accept() {
	for {
		proxy, err := tap.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", tap.target)
		if err != nil {
			proxy.Close()
			continue
		}
		tap.mutex.Lock()
		tap.count++
		number := tap.count
		tap.open[proxy], tap.open[server] = true, true
		tap.running.Add(1)
		tap.mutex.Unlock()
		go tap.relay(number, proxy, server)
	}
}

// relay copies both directions until both have ended, then writes the connection's calls.
func (tap *Tap) relay(number int, proxy, server net.Conn) {
	defer tap.running.Done()
	calls := newConnection(number)
	var both sync.WaitGroup
	both.Add(2)
	go func() { defer both.Done(); copyAndRead(server, proxy, calls.readRequests) }()
	go func() { defer both.Done(); copyAndRead(proxy, server, calls.readReplies) }()
	both.Wait()
	proxy.Close()
	server.Close()

	tap.mutex.Lock()
	defer tap.mutex.Unlock()
	delete(tap.open, proxy)
	delete(tap.open, server)
	encoder := json.NewEncoder(tap.out)
	for _, call := range calls.finished() {
		encoder.Encode(call)
	}
}

// copyAndRead relays from one connection to the other; read sees a copy of the bytes, later.
func copyAndRead(to, from net.Conn, read func(io.Reader)) {
	bytes, copied := io.Pipe()
	var reading sync.WaitGroup
	reading.Add(1)
	go func() {
		defer reading.Done()
		read(bytes)
		io.Copy(io.Discard, bytes) // a reader that has given up must not stop the relay
	}()
	buffer := make([]byte, 64<<10)
	for {
		count, err := from.Read(buffer)
		if count > 0 {
			if _, broken := to.Write(buffer[:count]); broken != nil {
				err = broken
			}
			copied.Write(buffer[:count])
		}
		if err != nil {
			break
		}
	}
	if half, ok := to.(*net.TCPConn); ok {
		half.CloseWrite()
	}
	copied.Close()
	reading.Wait()
}
