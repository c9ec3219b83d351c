package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

func allCases() []testCase {
	// First, while the proxy knows nothing of any method.
	all := []testCase{{"one_message_at_once_to_stream_methods", oneMessageAtOnce}}
	all = append(all, unaryCases()...)
	all = append(all, statusCases()...)
	all = append(all, timingCases()...)
	all = append(all, streamCases()...)
	return all
}

// wantValues compares one key's values, in order.
func wantValues(where string, got metadata.MD, key string, want ...string) error {
	values := got.Get(key)
	if len(values) != len(want) {
		return fmt.Errorf("%s %s: %q, want %q", where, key, values, want)
	}
	for i := range want {
		if values[i] != want[i] {
			return fmt.Errorf("%s %s: %q, want %q", where, key, values, want)
		}
	}
	return nil
}

func wantStrings(where string, got []string, want ...string) error {
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		return fmt.Errorf("%s: %q, want %q", where, got, want)
	}
	return nil
}

// eventually polls until the condition holds or the context ends.
func eventually(ctx context.Context, what string, holds func() (bool, error)) error {
	for {
		ok, err := holds()
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("never happened: " + what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// wantBusinessError checks what code 17 becomes: itself from dubbo-go, UNKNOWN with its number kept
// from the proxy.
func (r *run) wantBusinessError(o *outcome, message string) error {
	if r.direct {
		return o.wantStatus(codes.Code(17), message)
	}
	if err := o.wantStatus(codes.Unknown, message); err != nil {
		return err
	}
	if err := wantValues("trailer", o.trailer, "tri-status-code", "17"); err != nil {
		return err
	}
	return wantErrorInfo(o)
}

func withMetadata(ctx context.Context, pairs ...string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}
