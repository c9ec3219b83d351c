package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"reflect"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"tributary/interop/internal/echopb"
	"tributary/interop/internal/report"
)

// seen is an outcome in a form that can be compared and printed. Of a failed call the metadata is
// one set, because a Trailers-Only answer has no other place for the leading part.
type seen struct {
	Code    string              `json:"code"`
	Message string              `json:"message,omitempty"`
	Details []string            `json:"details,omitempty"`
	Header  map[string][]string `json:"header,omitempty"`
	Trailer map[string][]string `json:"trailer,omitempty"`
	Replies []string            `json:"replies,omitempty"`
	// Custom request metadata as the provider saw it.
	Request []string `json:"request,omitempty"`
}

type parityCall struct {
	name    string
	method  string // "" = Say
	request *echopb.SayRequest
	// Time the call may take; 0: the whole case's.
	timeout time.Duration
}

func parityCalls() []parityCall {
	all := []parityCall{
		{name: "echo", request: &echopb.SayRequest{Text: "hi", Payload: pattern(100)}},
		{name: "zero_byte_request", request: &echopb.SayRequest{}},
		{name: "zero_byte_reply", request: &echopb.SayRequest{EmptyReply: true}},
		{name: "reply_of_4096", request: &echopb.SayRequest{ReplyBytes: 4096}},
		{name: "reply_of_1_mib", request: &echopb.SayRequest{ReplyBytes: 1 << 20}},
		{name: "request_of_900_kib", request: &echopb.SayRequest{Payload: pattern(900 << 10)}},
		{name: "request_of_2_mib", request: &echopb.SayRequest{Payload: pattern(2 << 20)}},
		{name: "metadata", request: &echopb.SayRequest{WantHeaders: true,
			Leading:  entries("x-lead", "1", "x-lead", "2", "x-lead-bin", "AAEC//4K"),
			Trailing: entries("x-trail", "z", "x-trail", "a", "x-trail-bin", "AQ", "x-trail-bin", "AgM")}},
		{name: "plain_error", request: &echopb.SayRequest{Fail: &echopb.Failure{Plain: true, Message: specialMessage}}},
		{name: "code_17_with_details", request: &echopb.SayRequest{Fail: &echopb.Failure{Code: 17, Message: "biz",
			Details: threeDetails(), Metadata: entries("x-error", "1", "x-error", "2")}}},
		{name: "code_5_stock", request: &echopb.SayRequest{Fail: &echopb.Failure{Code: 5, Message: "biz",
			Details: threeDetails(), Metadata: entries("x-error", "1")}}},
		{name: "code_5_with_details", request: &echopb.SayRequest{Fail: &echopb.Failure{Code: 5, Message: "biz",
			KeepDetails: true, Details: threeDetails(), Metadata: entries("x-error", "1", "x-error-bin", "AQ")}}},
		{name: "code_6_with_metadata", request: &echopb.SayRequest{Fail: &echopb.Failure{Code: 6, Message: "twice"},
			Leading: entries("x-lead", "1"), Trailing: entries("x-trail", "z", "x-trail", "a")}},
		{name: "empty_message", request: &echopb.SayRequest{Fail: &echopb.Failure{Code: 9}}},
		{name: "deadline", request: &echopb.SayRequest{DelayMs: 3000}, timeout: 150 * time.Millisecond},
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		all = append(all, parityCall{name: fmt.Sprintf("code_%02d", code),
			request: &echopb.SayRequest{Fail: &echopb.Failure{Code: uint32(code), Message: specialMessage}}})
	}
	return all
}

func runParity(reporter *report.Reporter, specs []string, timeout time.Duration) error {
	if len(specs) < 2 {
		return fmt.Errorf("parity needs two targets or more")
	}
	var targets []target
	for _, spec := range specs {
		name, addr, found := strings.Cut(spec, "=")
		if !found {
			return fmt.Errorf("-target %q is not NAME=ADDRESS", spec)
		}
		addr, authority, _ := strings.Cut(addr, "@")
		conn, err := dial(addr, authority)
		if err != nil {
			return err
		}
		defer conn.Close()
		targets = append(targets, target{name: name, conn: conn})
	}
	for _, call := range parityCalls() {
		results := make(map[string]*seen)
		for i := range targets {
			results[targets[i].name] = call.over(&targets[i], timeout)
		}
		first := results[targets[0].name]
		same := true
		for _, result := range results {
			same = same && reflect.DeepEqual(first, result)
		}
		if same {
			reporter.Add("parity/"+call.name, true, first)
		} else {
			reporter.Add("parity/"+call.name, false, results)
		}
	}
	return nil
}

func (c *parityCall) over(t *target, timeout time.Duration) *seen {
	if c.timeout > 0 {
		timeout = c.timeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	ctx = withMetadata(ctx, "x-many", "a", "x-many", "b, c", "x-raw-bin", "\x00\x01\xfe\xff", "tri-consumer-appname", "app")
	var o *outcome
	if c.method == "" {
		o = t.say(ctx, c.request)
	} else {
		o = t.all(ctx, c.method, c.request)
	}
	return describe(o)
}

func describe(o *outcome) *seen {
	s := &seen{Code: o.code().String(), Message: o.status.Message()}
	for _, d := range o.status.Proto().GetDetails() {
		s.Details = append(s.Details, d.TypeUrl+" "+hex.EncodeToString(d.Value))
	}
	if o.code() == codes.OK {
		s.Header, s.Trailer = custom(o.header), custom(o.trailer)
	} else {
		s.Trailer = custom(merged(o))
	}
	for _, reply := range o.replies {
		for _, entry := range reply.Headers {
			if strings.HasPrefix(entry.Key, "x-") || strings.HasPrefix(entry.Key, "tri-") {
				s.Request = append(s.Request, entry.Key+": "+entry.Value)
			}
		}
		reply.Headers, reply.RemainingMs = nil, 0
		s.Replies = append(s.Replies, digest(reply))
	}
	if o.code() == codes.DeadlineExceeded {
		// Who noticed first, client or proxy, decides the text.
		s.Message, s.Details, s.Trailer = "", nil, nil
	}
	return s
}

func custom(md map[string][]string) map[string][]string {
	var kept map[string][]string
	for key, values := range md {
		if expectedMetadata[key] {
			continue
		}
		if kept == nil {
			kept = make(map[string][]string)
		}
		for _, value := range values {
			if strings.HasSuffix(key, "-bin") {
				value = hex.EncodeToString([]byte(value))
			}
			kept[key] = append(kept[key], value)
		}
	}
	return kept
}

func digest(reply *echopb.SayReply) string {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(reply)
	if err != nil {
		return err.Error()
	}
	if len(data) <= 64 {
		return hex.EncodeToString(data)
	}
	hash := fnv.New64a()
	hash.Write(data)
	return fmt.Sprintf("%d bytes, fnv64a %x", len(data), hash.Sum64())
}
