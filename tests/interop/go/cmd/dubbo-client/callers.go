package main

import (
	"context"
	"net"
	"net/http"

	"dubbo.apache.org/dubbo-go/v3/client"
	"dubbo.apache.org/dubbo-go/v3/common/constant"
	tri "dubbo.apache.org/dubbo-go/v3/protocol/triple/triple_protocol"

	"golang.org/x/net/http2"

	"tributary/interop/internal/echopb"
	"tributary/interop/internal/echotri"
)

// outcome is all that a caller can observe of a unary call.
type outcome struct {
	reply   *echopb.SayReply
	header  http.Header
	trailer http.Header
	err     error
}

// caller is one way to make calls. header holds request metadata; group and version may be "".
type caller interface {
	say(ctx context.Context, request *echopb.SayRequest, header http.Header) *outcome
	sayTo(ctx context.Context, group, version string, request *echopb.SayRequest) *outcome
	expand(ctx context.Context, request *echopb.SayRequest) (*tri.ServerStreamForClient, error)
	collect(ctx context.Context) (*tri.ClientStreamForClient, error)
	chat(ctx context.Context) (*tri.BidiStreamForClient, error)
}

// framework goes through dubbo-go's client, as an application does.
type framework struct {
	cli  *client.Client
	addr string
	conn *client.Connection
}

func newFramework(addr string) (caller, error) {
	cli, err := frameworkClient()
	if err != nil {
		return nil, err
	}
	f := &framework{cli: cli, addr: addr}
	f.conn, err = f.dial()
	return f, err
}

func (f *framework) dial(options ...client.ReferenceOption) (*client.Connection, error) {
	options = append(options, client.WithURL("tri://"+f.addr),
		client.WithParam(constant.MaxCallRecvMsgSize, "64MiB"), client.WithParam(constant.MaxCallSendMsgSize, "64MiB"))
	return f.cli.DialWithInfo(echotri.Name, &echotri.ClientInfo, options...)
}

func call(ctx context.Context, conn *client.Connection, request *echopb.SayRequest) *outcome {
	o := &outcome{reply: new(echopb.SayReply)}
	o.err = conn.CallUnary(ctx, []any{request}, o.reply, "Say",
		client.WithResponseHeader(&o.header), client.WithResponseTrailer(&o.trailer))
	return o
}

func (f *framework) say(ctx context.Context, request *echopb.SayRequest, header http.Header) *outcome {
	attachments := make(map[string]any)
	for key, values := range header {
		attachments[key] = values
	}
	return call(context.WithValue(ctx, constant.AttachmentKey, attachments), f.conn, request)
}

func (f *framework) sayTo(ctx context.Context, group, version string, request *echopb.SayRequest) *outcome {
	conn, err := f.dial(client.WithGroup(group), client.WithVersion(version))
	if err != nil {
		return &outcome{err: err}
	}
	return call(ctx, conn, request)
}

func (f *framework) expand(ctx context.Context, request *echopb.SayRequest) (*tri.ServerStreamForClient, error) {
	stream, err := f.conn.CallServerStream(ctx, request, "Expand")
	if err != nil {
		return nil, err
	}
	return stream.(*tri.ServerStreamForClient), nil
}

func (f *framework) collect(ctx context.Context) (*tri.ClientStreamForClient, error) {
	stream, err := f.conn.CallClientStream(ctx, "Collect")
	if err != nil {
		return nil, err
	}
	return stream.(*tri.ClientStreamForClient), nil
}

func (f *framework) chat(ctx context.Context) (*tri.BidiStreamForClient, error) {
	stream, err := f.conn.CallBidiStream(ctx, "Chat")
	if err != nil {
		return nil, err
	}
	return stream.(*tri.BidiStreamForClient), nil
}

// protocolClient uses package triple_protocol alone: no framework, one client, one transport.
type protocolClient struct {
	transport http.RoundTripper
	url       string
	options   []tri.ClientOption
	cli       *tri.Client
}

func newProtocol(mode, addr string) caller {
	p := &protocolClient{url: "http://" + addr + "/" + echotri.Name}
	p.transport = &http2.Transport{
		AllowHTTP: true,
		DialTLSContext: func(ctx context.Context, network, address string, _ *tlsConfig) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}
	if mode != "grpc" {
		p.options = append(p.options, tri.WithTriple())
	}
	if mode == "triple-http1" {
		p.transport = &http.Transport{}
	}
	if mode == "triple-json" {
		p.options = append(p.options, tri.WithProtoJSON())
	}
	p.cli = p.client()
	return p
}

func (p *protocolClient) client(more ...tri.ClientOption) *tri.Client {
	options := append(append([]tri.ClientOption{}, p.options...), more...)
	return tri.NewClient(&http.Client{Transport: p.transport}, p.url, options...)
}

func unary(ctx context.Context, cli *tri.Client, request *echopb.SayRequest, header http.Header) *outcome {
	o := &outcome{reply: new(echopb.SayReply)}
	response := tri.NewResponse(o.reply)
	wrapped := tri.NewRequest(request)
	for key, values := range header {
		wrapped.Header()[http.CanonicalHeaderKey(key)] = values
	}
	o.err = cli.CallUnary(ctx, wrapped, "Say", response)
	o.header, o.trailer = response.Header(), response.Trailer()
	return o
}

func (p *protocolClient) say(ctx context.Context, request *echopb.SayRequest, header http.Header) *outcome {
	return unary(ctx, p.cli, request, header)
}

func (p *protocolClient) sayTo(ctx context.Context, group, version string, request *echopb.SayRequest) *outcome {
	return unary(ctx, p.client(tri.WithGroup(group), tri.WithVersion(version)), request, nil)
}

func (p *protocolClient) expand(ctx context.Context, request *echopb.SayRequest) (*tri.ServerStreamForClient, error) {
	return p.cli.CallServerStream(ctx, tri.NewRequest(request), "Expand")
}

func (p *protocolClient) collect(ctx context.Context) (*tri.ClientStreamForClient, error) {
	return p.cli.CallClientStream(ctx, "Collect")
}

func (p *protocolClient) chat(ctx context.Context) (*tri.BidiStreamForClient, error) {
	return p.cli.CallBidiStream(ctx, "Chat")
}
