package main

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"tributary/interop/internal/echopb"
)

const specialMessage = "100% of 世界\nsecond line\ttab \"quoted\" \\ <b>&amp; + %zz %41 ~"

func statusCases() []testCase {
	var all []testCase
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		all = append(all, testCase{fmt.Sprintf("status_%02d_%s_with_special_message", code, strings.ToLower(code.String())),
			statusWithMessage(code)})
	}
	return append(all,
		testCase{"status_without_message", statusWithoutMessage},
		testCase{"status_with_message_of_1_kib", statusWithLongMessage},
		testCase{"overlong_message_keeps_its_code", overlongMessage},
		testCase{"status_keeps_metadata", statusKeepsMetadata},
		testCase{"details_arrive_in_order", detailsInOrder},
		testCase{"details_of_unknown_type_arrive", detailsOfUnknownType},
		testCase{"plain_error_is_a_business_error", plainError},
		testCase{"code_17_keeps_details_and_metadata", code17WithDetails},
	)
}

func statusWithMessage(code codes.Code) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		o := r.say(ctx, &echopb.SayRequest{Fail: &echopb.Failure{Code: uint32(code), Message: specialMessage}})
		if err := o.wantStatus(code, specialMessage); err != nil {
			return err
		}
		if n := len(o.status.Proto().GetDetails()); n != 0 {
			return fmt.Errorf("%d details that nobody sent: %v", n, o.status.Proto().Details)
		}
		return wantValues("trailer", o.trailer, "tri-status-code")
	}
}

func statusWithoutMessage(ctx context.Context, r *run) error {
	o := r.say(ctx, &echopb.SayRequest{Fail: &echopb.Failure{Code: 9}})
	return o.wantStatus(codes.FailedPrecondition, "")
}

func statusWithLongMessage(ctx context.Context, r *run) error {
	message := strings.Repeat("é%", 341)
	o := r.say(ctx, &echopb.SayRequest{Fail: &echopb.Failure{Code: 3, Message: message}})
	return o.wantStatus(codes.InvalidArgument, message)
}

// The proxy may shorten what would be too long for a client's header list: the message first, the
// code never.
func overlongMessage(ctx context.Context, r *run) error {
	message := strings.Repeat("long é% ", 2500)
	o := r.say(ctx, &echopb.SayRequest{Fail: &echopb.Failure{Code: 3, Message: message}})
	got := o.status.Message()
	if o.code() != codes.InvalidArgument || len(got) < 1024 || !strings.HasPrefix(message, got) {
		return fmt.Errorf("status %v with %d bytes of message, want the first 1024 or more of %d", o.code(), len(got), len(message))
	}
	return nil
}

// A status may come with all metadata in the trailers (Trailers-Only), or in both places.
func statusKeepsMetadata(ctx context.Context, r *run) error {
	o := r.say(ctx, &echopb.SayRequest{
		Fail:     &echopb.Failure{Code: 7, Message: "no"},
		Leading:  entries("x-lead", "1", "x-lead-bin", "AQ"),
		Trailing: entries("x-trail", "z", "x-trail", "a"),
	})
	if err := o.wantStatus(codes.PermissionDenied, "no"); err != nil {
		return err
	}
	both := merged(o)
	if err := wantValues("metadata", both, "x-lead", "1"); err != nil {
		return err
	}
	if err := wantValues("metadata", both, "x-lead-bin", "\x01"); err != nil {
		return err
	}
	return wantValues("trailer", o.trailer, "x-trail", "z", "a")
}

func merged(o *outcome) map[string][]string {
	both := make(map[string][]string)
	for _, md := range []map[string][]string{o.header, o.trailer} {
		for key, values := range md {
			both[key] = append(both[key], values...)
		}
	}
	return both
}

func detail(message proto.Message) *echopb.Detail {
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		panic(err)
	}
	return &echopb.Detail{Type: string(message.ProtoReflect().Descriptor().FullName()), Value: value}
}

func threeDetails() []*echopb.Detail {
	return []*echopb.Detail{
		detail(&errdetails.RequestInfo{RequestId: "r-1", ServingData: "<&>"}),
		detail(&errdetails.ErrorInfo{Reason: "SOLD_OUT", Domain: "shop.example", Metadata: map[string]string{"sku": "7"}}),
		detail(&errdetails.RequestInfo{RequestId: "r-2"}),
	}
}

// wantDetails compares the first details of the status with what was asked for, byte by byte.
func wantDetails(o *outcome, want []*echopb.Detail) error {
	got := o.status.Proto().GetDetails()
	if len(got) < len(want) {
		return fmt.Errorf("%d details, want %d: %v", len(got), len(want), got)
	}
	for i, d := range want {
		if got[i].TypeUrl != "type.googleapis.com/"+d.Type || string(got[i].Value) != string(d.Value) {
			return fmt.Errorf("detail %d is %v, want %v", i, got[i], d)
		}
	}
	return nil
}

func detailsInOrder(ctx context.Context, r *run) error {
	o := r.say(ctx, &echopb.SayRequest{Fail: &echopb.Failure{Code: 5, Message: "gone", KeepDetails: true,
		Details: threeDetails(), Metadata: entries("x-error", "1")}})
	if err := o.wantStatus(codes.NotFound, "gone"); err != nil {
		return err
	}
	if n := len(o.status.Proto().Details); n != 3 {
		return fmt.Errorf("%d details, want 3", n)
	}
	if err := wantValues("metadata", merged(o), "x-error", "1"); err != nil {
		return err
	}
	return wantDetails(o, threeDetails())
}

func detailsOfUnknownType(ctx context.Context, r *run) error {
	details := []*echopb.Detail{
		{Type: "acme.v1.NeverHeardOf", Value: []byte{0xff, 0x00, 0x01}},
		{Type: "acme.v1.Empty"},
	}
	o := r.say(ctx, &echopb.SayRequest{Fail: &echopb.Failure{Code: 10, Message: "x", KeepDetails: true, Details: details}})
	if err := o.wantStatus(codes.Aborted, "x"); err != nil {
		return err
	}
	return wantDetails(o, details)
}

func plainError(ctx context.Context, r *run) error {
	o := r.say(ctx, &echopb.SayRequest{Fail: &echopb.Failure{Plain: true, Message: specialMessage}})
	return r.wantBusinessError(o, specialMessage)
}

func code17WithDetails(ctx context.Context, r *run) error {
	o := r.say(ctx, &echopb.SayRequest{Fail: &echopb.Failure{Code: 17, Message: "sold out", Details: threeDetails(),
		Metadata: entries("x-error", "1")}})
	if err := r.wantBusinessError(o, "sold out"); err != nil {
		return err
	}
	if err := wantValues("metadata", merged(o), "x-error", "1"); err != nil {
		return err
	}
	return wantDetails(o, threeDetails())
}

// wantErrorInfo: behind the provider's own details stands the proxy's mark of a business error.
func wantErrorInfo(o *outcome) error {
	all := o.status.Details()
	if len(all) == 0 {
		return fmt.Errorf("no ErrorInfo: the status has no details")
	}
	info, ok := all[len(all)-1].(*errdetails.ErrorInfo)
	if !ok {
		return fmt.Errorf("the last detail is %T, want ErrorInfo", all[len(all)-1])
	}
	if info.Reason != "TRIPLE_BUSINESS_ERROR" || info.Domain != "dubbo.apache.org" {
		return fmt.Errorf("ErrorInfo %v", info)
	}
	return nil
}
