// Package echopb holds the message code of tests/interop/proto/echo.proto. echo.pb.go is made by
// protoc-gen-go v1.36.12 and Debian bookworm's protoc 3.21, and committed so that building the peers
// needs neither:
//
//	go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
//	cd tests/interop/go && go generate ./internal/echopb
//
// The service is described by hand, in package echotri for dubbo-go and by method names in
// cmd/grpc-client: dubbo-go's own generator is not a module that go install could fetch.
package echopb

//go:generate protoc -I ../../../proto --go_out=. --go_opt=paths=source_relative echo.proto
