// A service and a client of gRPC with every kind of call.
//
//	grpc serve [CERTIFICATE KEY]   prints its address
//	grpc call ADDRESS [AUTHORITY]  makes all calls, and prints a line for each that ended as it has to
//	grpc wait ADDRESS              opens a stream, sends nothing, and fails as the server says
//
// Messages are those of the well-known type BytesValue, so that no code is generated.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The largest message that is sent, in bytes.
const messageBytesMax = 4 << 20

const service = "levity.test.Echo"

type message = wrapperspb.BytesValue

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) > 0 && arguments[0] == "serve":
		return serve(arguments[1:])
	case len(arguments) > 1 && arguments[0] == "call":
		return connected(arguments[1], arguments[2:], callAll)
	case len(arguments) == 2 && arguments[0] == "wait":
		return connected(arguments[1], nil, wait)
	}
	return errors.New("grpc serve [CERTIFICATE KEY], grpc call ADDRESS [AUTHORITY], or grpc wait ADDRESS")
}

// All messages until the other side ends, joined.
func receiveAll(stream interface{ RecvMsg(any) error }) (string, error) {
	var all strings.Builder
	for {
		part := new(message)
		switch err := stream.RecvMsg(part); {
		case err == io.EOF:
			return all.String(), nil
		case err != nil:
			return all.String(), err
		}
		all.Write(part.Value)
	}
}

func text(value string) *message {
	return wrapperspb.Bytes([]byte(value))
}

func streamDesc(name string, handler grpc.StreamHandler) grpc.StreamDesc {
	return grpc.StreamDesc{
		StreamName:    name,
		Handler:       handler,
		ServerStreams: true,
		ClientStreams: true,
	}
}

func method(name string) string {
	return "/" + service + "/" + name
}
