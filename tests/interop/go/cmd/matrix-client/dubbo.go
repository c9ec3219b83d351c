package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"dubbo.apache.org/dubbo-go/v3/client"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	"dubbo.apache.org/dubbo-go/v3/protocol/triple/triple_protocol"

	"github.com/dubbogo/gost/log/logger"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/net/http2"

	"tributary/interop/internal/echopb"
	"tributary/interop/internal/echotri"

	_ "dubbo.apache.org/dubbo-go/v3/cluster/cluster/failfast"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/loadbalance/random"
	_ "dubbo.apache.org/dubbo-go/v3/filter/graceful_shutdown"
	_ "dubbo.apache.org/dubbo-go/v3/protocol/triple"
	_ "dubbo.apache.org/dubbo-go/v3/proxy/proxy_factory"
)

const dubboMaxBytes = 16 << 20

// dubboCaller is dubbo-go's framework client. It has no switch for compressed requests: for those, its
// protocol package is used alone.
type dubboCaller struct {
	conn *client.Connection
	raw  *triple_protocol.Client
}

func newDubbo(target string) (caller, error) {
	config := zap.NewDevelopmentConfig()
	config.Level = zap.NewAtomicLevelAt(zapcore.FatalLevel)
	config.OutputPaths = []string{"stderr"}
	logger.InitLogger(&logger.Config{ZapConfig: &config})

	cli, err := client.NewClient(client.WithClientURL("tri://"+target), client.WithClientRetries(0),
		client.WithClientClusterFailFast())
	if err != nil {
		return nil, err
	}
	conn, err := cli.DialWithInfo(echotri.Name, &client.ClientInfo{
		InterfaceName:        echotri.Name,
		MethodNames:          []string{"Say", "Expand", "Collect", "Chat"},
		ConnectionInjectFunc: func(any, *client.Connection) {},
	}, client.WithRequestTimeout(15*time.Second),
		client.WithParam(constant.MaxCallRecvMsgSize, "16MiB"), client.WithParam(constant.MaxCallSendMsgSize, "16MiB"))
	if err != nil {
		return nil, err
	}
	raw := triple_protocol.NewClient(&http.Client{Transport: &http2.Transport{
		AllowHTTP: true,
		DialTLSContext: func(ctx context.Context, network, address string, _ *tls.Config) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}}, "http://"+target+"/"+echotri.Name, triple_protocol.WithSendGzip(), triple_protocol.WithTimeout(15*time.Second),
		triple_protocol.WithReadMaxBytes(dubboMaxBytes))
	return &dubboCaller{conn, raw}, nil
}

func dubboFailure(err error, trailer http.Header) error {
	if err == nil {
		return nil
	}
	how := &failed{code: uint32(triple_protocol.CodeOf(err)), message: err.Error(), trailer: trailer.Get(trailerKey)}
	if kept := new(triple_protocol.Error); errors.As(err, &kept) {
		how.message = kept.Message()
		if how.trailer == "" {
			how.trailer = kept.Meta().Get(trailerKey)
		}
	}
	return how
}

func (c *dubboCaller) say(ctx context.Context, request *echopb.SayRequest) (*echopb.SayReply, error) {
	reply := new(echopb.SayReply)
	var trailer http.Header
	err := c.conn.CallUnary(ctx, []any{request}, reply, "Say", client.WithResponseTrailer(&trailer))
	return reply, dubboFailure(err, trailer)
}

func (c *dubboCaller) sayGzip(ctx context.Context, request *echopb.SayRequest) (*echopb.SayReply, error) {
	reply := new(echopb.SayReply)
	response := triple_protocol.NewResponse(reply)
	err := c.raw.CallUnary(ctx, triple_protocol.NewRequest(request), "Say", response)
	return reply, dubboFailure(err, response.Trailer())
}

func (c *dubboCaller) expand(ctx context.Context, request *echopb.SayRequest) ([]*echopb.SayReply, error) {
	opened, err := c.conn.CallServerStream(ctx, request, "Expand")
	if err != nil {
		return nil, dubboFailure(err, nil)
	}
	stream := opened.(*triple_protocol.ServerStreamForClient)
	defer stream.Close()
	var all []*echopb.SayReply
	for {
		reply := new(echopb.SayReply)
		if !stream.Receive(reply) {
			return all, dubboFailure(stream.Err(), nil)
		}
		all = append(all, reply)
	}
}

func (c *dubboCaller) collect(ctx context.Context, requests []*echopb.SayRequest) (*echopb.SayReply, error) {
	opened, err := c.conn.CallClientStream(ctx, "Collect")
	if err != nil {
		return nil, dubboFailure(err, nil)
	}
	stream := opened.(*triple_protocol.ClientStreamForClient)
	for _, request := range requests {
		if err := stream.Send(request); err != nil {
			return nil, dubboFailure(err, nil)
		}
	}
	reply := new(echopb.SayReply)
	err = stream.CloseAndReceive(triple_protocol.NewResponse(reply))
	return reply, dubboFailure(err, nil)
}

func (c *dubboCaller) chat(ctx context.Context, requests []*echopb.SayRequest) ([]*echopb.SayReply, error) {
	opened, err := c.conn.CallBidiStream(ctx, "Chat")
	if err != nil {
		return nil, dubboFailure(err, nil)
	}
	stream := opened.(*triple_protocol.BidiStreamForClient)
	defer stream.CloseResponse()
	var all []*echopb.SayReply
	for _, request := range requests {
		if err := stream.Send(request); err != nil {
			return all, dubboFailure(err, nil)
		}
		reply := new(echopb.SayReply)
		if err := stream.Receive(reply); err != nil {
			return all, dubboFailure(err, nil)
		}
		all = append(all, reply)
	}
	if err := stream.CloseRequest(); err != nil {
		return all, dubboFailure(err, nil)
	}
	if err := stream.Receive(new(echopb.SayReply)); !errors.Is(err, io.EOF) {
		return all, fmt.Errorf("after half-close: %w", err)
	}
	return all, nil
}
