package tap

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// connection collects the calls of one HTTP/2 connection; both directions write into the same calls.
type connection struct {
	number int
	mutex  sync.Mutex
	calls  map[uint32]*Call
}

func newConnection(number int) *connection {
	return &connection{number: number, calls: map[uint32]*Call{}}
}

// finished returns the calls in the order in which they were opened.
func (c *connection) finished() []*Call {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	all := make([]*Call, 0, len(c.calls))
	for _, call := range c.calls {
		all = append(all, call)
	}
	slices.SortFunc(all, func(a, b *Call) int { return int(a.Stream) - int(b.Stream) })
	return all
}

// at runs change with the call of that stream; the mutex is held.
func (c *connection) at(stream uint32, change func(*Call)) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	call := c.calls[stream]
	if call == nil {
		call = &Call{Connection: c.number, Stream: stream, End: "open", ReplyEnd: "open"}
		c.calls[stream] = call
	}
	change(call)
}

// broken leaves a record that no check can overlook: bytes that are not HTTP/2 on a tapped connection.
func (c *connection) broken(direction string, err error) {
	c.at(0, func(call *Call) { call.End = fmt.Sprintf("unreadable %s: %v", direction, err) })
}

func (c *connection) readRequests(bytes io.Reader) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(bytes, preface); err != nil {
		return // opened and closed without a word
	}
	if string(preface) != http2.ClientPreface {
		c.broken("request", fmt.Errorf("preface %q", preface))
		return
	}
	c.read(bytes, "request", (*Call).requestHead, (*Call).requestData, func(call *Call, how string) { call.End = how })
}

func (c *connection) readReplies(bytes io.Reader) {
	c.read(bytes, "reply", (*Call).replyHead, func(*Call, int) {}, func(call *Call, how string) { call.ReplyEnd = how })
}

func (c *connection) read(bytes io.Reader, direction string, head func(*Call, []hpack.HeaderField),
	data func(*Call, int), end func(*Call, string)) {
	framer := http2.NewFramer(io.Discard, bytes)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	framer.MaxHeaderListSize = 16 << 20
	framer.SetMaxReadFrameSize(1<<24 - 1)
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			if err != io.EOF && err != io.ErrUnexpectedEOF {
				c.broken(direction, err)
			}
			return
		}
		stream := frame.Header().StreamID
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			c.at(stream, func(call *Call) {
				head(call, frame.Fields)
				if frame.StreamEnded() {
					end(call, "end_stream")
				}
			})
		case *http2.DataFrame:
			c.at(stream, func(call *Call) {
				data(call, len(frame.Data()))
				if frame.StreamEnded() {
					end(call, "end_stream")
				}
			})
		case *http2.RSTStreamFrame:
			c.at(stream, func(call *Call) { end(call, "reset "+frame.ErrCode.String()) })
		}
	}
}

func (call *Call) requestHead(fields []hpack.HeaderField) {
	for _, field := range fields {
		switch field.Name {
		case ":path":
			call.Path = field.Value
		case "content-type":
			call.ContentType = field.Value
		case "content-length":
			call.ContentLength = field.Value
		case "content-encoding":
			call.Encoding = field.Value
		case "te":
			call.Te = field.Value
		case "x-test-case-name":
			call.Case = field.Value
		default:
			if strings.HasPrefix(field.Name, "grpc-") {
				call.GrpcHeaders = append(call.GrpcHeaders, field.Name)
			}
		}
	}
}

func (call *Call) requestData(count int) {
	call.DataBytes += count
	call.DataFrames++
}

func (call *Call) replyHead(fields []hpack.HeaderField) {
	for _, field := range fields {
		switch field.Name {
		case ":status":
			call.Status = field.Value
		case "content-type":
			call.ReplyType = field.Value
		}
	}
}
