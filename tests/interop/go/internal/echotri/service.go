// Package echotri describes the Echo service to dubbo-go by hand, for the provider and for the client.
// It does what dubbo-go's code generator would write, with its public API only.
package echotri

import (
	"context"

	"dubbo.apache.org/dubbo-go/v3/common"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/protocol/triple/triple_protocol"

	"tributary/interop/internal/echopb"
)

// Name is the service's full name, the first part of every path.
const Name = "tributary.interop.Echo"

// Handler is what a provider implements. Errors may be *triple_protocol.Error or any other error,
// which dubbo-go turns into code 17.
type Handler interface {
	Say(context.Context, *echopb.SayRequest) (*triple_protocol.Response, error)
	Expand(context.Context, *echopb.SayRequest, *triple_protocol.ServerStream) error
	Collect(context.Context, *triple_protocol.ClientStream) (*triple_protocol.Response, error)
	Chat(context.Context, *triple_protocol.BidiStream) error
	Count(context.Context, *echopb.CountRequest) (*triple_protocol.Response, error)
}

func newSayRequest() any { return new(echopb.SayRequest) }

func sameStream(stream any) any { return stream }

// ServiceInfo makes a fresh description: dubbo-go writes into the one it is given, and each
// registration (group and version) needs its own.
func ServiceInfo() *common.ServiceInfo {
	return &common.ServiceInfo{
		InterfaceName: Name,
		ServiceType:   (*Handler)(nil),
		Methods: []common.MethodInfo{
			{
				Name:        "Say",
				Type:        constant.CallUnary,
				ReqInitFunc: newSayRequest,
				MethodFunc: func(ctx context.Context, args []any, handler any) (any, error) {
					return unaryResult(handler.(Handler).Say(ctx, args[0].(*echopb.SayRequest)))
				},
			},
			{
				Name:           "Expand",
				Type:           constant.CallServerStream,
				ReqInitFunc:    newSayRequest,
				StreamInitFunc: sameStream,
				MethodFunc: func(ctx context.Context, args []any, handler any) (any, error) {
					return nil, handler.(Handler).Expand(ctx, args[0].(*echopb.SayRequest),
						args[1].(*triple_protocol.ServerStream))
				},
			},
			{
				Name:           "Collect",
				Type:           constant.CallClientStream,
				StreamInitFunc: sameStream,
				MethodFunc: func(ctx context.Context, args []any, handler any) (any, error) {
					return unaryResult(handler.(Handler).Collect(ctx, args[0].(*triple_protocol.ClientStream)))
				},
			},
			{
				Name:           "Chat",
				Type:           constant.CallBidiStream,
				StreamInitFunc: sameStream,
				MethodFunc: func(ctx context.Context, args []any, handler any) (any, error) {
					return nil, handler.(Handler).Chat(ctx, args[0].(*triple_protocol.BidiStream))
				},
			},
			{
				Name:        "Count",
				Type:        constant.CallUnary,
				ReqInitFunc: func() any { return new(echopb.CountRequest) },
				MethodFunc: func(ctx context.Context, args []any, handler any) (any, error) {
					return unaryResult(handler.(Handler).Count(ctx, args[0].(*echopb.CountRequest)))
				},
			},
		},
	}
}

// unaryResult keeps a nil response an untyped nil, which is what dubbo-go tests for.
func unaryResult(response *triple_protocol.Response, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return response, nil
}
