// Package testservice is what gRPC's interop client (google.golang.org/grpc/interop/client) expects of its
// server's answers, without a protocol. The programs beside it put it behind connect-go and dubbo-go.
package testservice

import (
	"fmt"
	"os"
	"time"

	pb "google.golang.org/grpc/interop/grpc_testing"
)

const (
	Service = "grpc.testing.TestService"
	// The client sends these and wants them back, the one as a header, the other as a trailer.
	InitialKey  = "x-grpc-test-echo-initial"
	TrailingKey = "x-grpc-test-echo-trailing-bin"
)

// Unary is the reply of UnaryCall. serverID, where the request asks for one, is the same for all calls of
// a process: that is what pick_first_unary compares.
func Unary(request *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	payload, err := payloadOf(request.GetResponseType(), request.GetResponseSize())
	if err != nil {
		return nil, err
	}
	response := &pb.SimpleResponse{Payload: payload}
	if request.GetFillServerId() {
		response.ServerId = fmt.Sprintf("process-%d", os.Getpid())
	}
	return response, nil
}

// Output sends what one request of StreamingOutputCall or FullDuplexCall asks for.
func Output(request *pb.StreamingOutputCallRequest, send func(*pb.StreamingOutputCallResponse) error) error {
	for _, parameters := range request.GetResponseParameters() {
		time.Sleep(time.Duration(parameters.GetIntervalUs()) * time.Microsecond)
		payload, err := payloadOf(request.GetResponseType(), parameters.GetSize())
		if err != nil {
			return err
		}
		if err := send(&pb.StreamingOutputCallResponse{Payload: payload}); err != nil {
			return err
		}
	}
	return nil
}

func payloadOf(kind pb.PayloadType, size int32) (*pb.Payload, error) {
	if kind != pb.PayloadType_COMPRESSABLE || size < 0 {
		return nil, fmt.Errorf("no payload of type %v and size %d", kind, size)
	}
	return &pb.Payload{Type: kind, Body: make([]byte, size)}, nil
}
