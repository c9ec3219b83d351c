package main

import (
	"context"

	"dubbo.apache.org/dubbo-go/v3/common/extension"
	"dubbo.apache.org/dubbo-go/v3/filter"
	"dubbo.apache.org/dubbo-go/v3/protocol/base"
	"dubbo.apache.org/dubbo-go/v3/protocol/result"
)

// dubbo-go rebuilds every error of a handler whose code is not 17 from code and text alone, so stock
// providers send no details and no error metadata with them. An application that wants them needs a
// filter such as this one: the handler leaves its error in the context, and the filter puts it back.
const keepDetailsFilter = "keep_details"

type keptErrorKey struct{}

type keptError struct{ err error }

// keepError remembers err for the filter; the handler still returns it.
func keepError(ctx context.Context, err error) {
	if kept, ok := ctx.Value(keptErrorKey{}).(*keptError); ok {
		kept.err = err
	}
}

type keepDetails struct{}

func (keepDetails) Invoke(ctx context.Context, invoker base.Invoker, call base.Invocation) result.Result {
	kept := new(keptError)
	res := invoker.Invoke(context.WithValue(ctx, keptErrorKey{}, kept), call)
	if kept.err != nil {
		res.SetError(kept.err)
	}
	return res
}

func (keepDetails) OnResponse(_ context.Context, res result.Result, _ base.Invoker, _ base.Invocation) result.Result {
	return res
}

func init() {
	extension.SetFilter(keepDetailsFilter, func() filter.Filter { return keepDetails{} })
}
