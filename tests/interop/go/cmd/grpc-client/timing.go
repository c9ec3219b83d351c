package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"tributary/interop/internal/echopb"
)

func timingCases() []testCase {
	return []testCase{
		{"deadline_expires_on_time_and_stops_the_provider", deadlineExpires},
		{"deadline_of_a_stream_expires_and_stops_the_provider", deadlineOfStream},
		{"provider_sees_the_remaining_deadline", remainingDeadline},
		{"no_deadline_stays_none", noDeadline},
		{"cancelled_unary_call_stops_the_provider", cancelUnary},
		{"cancelled_stream_stops_the_provider", cancelStream},
		{"stream_reaches_the_provider_before_its_first_message", streamBeforeFirstMessage},
	}
}

// cancelledBy runs do and waits until the provider has seen one more call cancelled.
func (r *run) cancelledBy(ctx context.Context, do func() error) error {
	before, err := r.count(ctx)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	waiting, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	return eventually(waiting, "the provider sees the call end", func() (bool, error) {
		after, err := r.count(ctx)
		if err != nil {
			return false, err
		}
		return after.Cancelled > before.Cancelled, nil
	})
}

func wantBetween(what string, got, low, high time.Duration) error {
	if got < low || got > high {
		return fmt.Errorf("%s took %v, want %v to %v", what, got, low, high)
	}
	return nil
}

// overtaken: dubbo-go's handler answers its own expired context, as code 17, and may do so before
// the client's clock fires. A proxy that owns the deadline must not let that happen.
func (r *run) overtaken(o *outcome) bool {
	return r.direct && o.code() == codes.Code(17) && o.status.Message() == "context deadline exceeded"
}

func deadlineExpires(ctx context.Context, r *run) error {
	return r.cancelledBy(ctx, func() error {
		short, stop := context.WithTimeout(ctx, 200*time.Millisecond)
		defer stop()
		start := time.Now()
		o := r.say(short, &echopb.SayRequest{DelayMs: 5000})
		if o.code() != codes.DeadlineExceeded && !r.overtaken(o) {
			return fmt.Errorf("status %v %q", o.code(), o.status.Message())
		}
		return wantBetween("the call", time.Since(start), 190*time.Millisecond, 900*time.Millisecond)
	})
}

func deadlineOfStream(ctx context.Context, r *run) error {
	return r.cancelledBy(ctx, func() error {
		short, stop := context.WithTimeout(ctx, 300*time.Millisecond)
		defer stop()
		start := time.Now()
		o := r.all(short, "Expand", &echopb.SayRequest{Count: 2, GapMs: 5000})
		if (o.code() != codes.DeadlineExceeded && !r.overtaken(o)) || len(o.replies) != 1 {
			return fmt.Errorf("status %v %q after %d replies", o.code(), o.status.Message(), len(o.replies))
		}
		return wantBetween("the call", time.Since(start), 290*time.Millisecond, 900*time.Millisecond)
	})
}

func remainingDeadline(ctx context.Context, r *run) error {
	for _, timeout := range []time.Duration{800 * time.Millisecond, 7 * time.Second, 3 * time.Hour} {
		limited, stop := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		o := r.say(limited, &echopb.SayRequest{})
		stop()
		if err := o.wantOK(1); err != nil {
			return fmt.Errorf("timeout %v: %w", timeout, err)
		}
		left := time.Duration(o.reply().RemainingMs) * time.Millisecond
		// Rounding up to a millisecond is right, rounding down to none is not.
		if err := wantBetween("remaining of "+timeout.String(), left, timeout-500*time.Millisecond,
			timeout+time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func noDeadline(ctx context.Context, r *run) error {
	unlimited, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	o := r.say(unlimited, &echopb.SayRequest{})
	if err := o.wantOK(1); err != nil {
		return err
	}
	if o.reply().RemainingMs != 0 {
		return fmt.Errorf("the provider saw a deadline in %d ms", o.reply().RemainingMs)
	}
	return nil
}

func cancelUnary(ctx context.Context, r *run) error {
	return r.cancelledBy(ctx, func() error {
		cancellable, cancel := context.WithCancel(ctx)
		time.AfterFunc(150*time.Millisecond, cancel)
		o := r.say(cancellable, &echopb.SayRequest{DelayMs: 5000})
		if o.code() != codes.Canceled {
			return fmt.Errorf("status %v %q", o.code(), o.status.Message())
		}
		return nil
	})
}

func cancelStream(ctx context.Context, r *run) error {
	for _, method := range []string{"Expand", "Collect", "Chat"} {
		err := r.cancelledBy(ctx, func() error {
			cancellable, cancel := context.WithCancel(ctx)
			defer cancel()
			s, err := r.open(cancellable, method)
			if err != nil {
				return err
			}
			if err := s.SendMsg(&echopb.SayRequest{Count: 2, GapMs: 5000, DelayMs: 0}); err != nil {
				return err
			}
			if method == "Expand" {
				if err := s.CloseSend(); err != nil {
					return err
				}
			}
			if method != "Collect" {
				if _, err := s.receive(); err != nil {
					return err
				}
			} else {
				time.Sleep(100 * time.Millisecond)
			}
			cancel()
			o := s.drain()
			if o.code() != codes.Canceled {
				return fmt.Errorf("status %v %q", o.code(), o.status.Message())
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", method, err)
		}
	}
	return nil
}

func streamBeforeFirstMessage(ctx context.Context, r *run) error {
	before, err := r.count(ctx)
	if err != nil {
		return err
	}
	cancellable, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := r.open(cancellable, "Chat")
	if err != nil {
		return err
	}
	waiting, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	err = eventually(waiting, "the provider's handler starts", func() (bool, error) {
		after, err := r.count(ctx)
		if err != nil {
			return false, err
		}
		return after.Started > before.Started, nil
	})
	if err != nil {
		return err
	}
	if err := s.SendMsg(&echopb.SayRequest{Text: "late"}); err != nil {
		return err
	}
	reply, err := s.receive()
	if err != nil {
		return err
	}
	return wantStrings("text", []string{reply.Text}, "late")
}
