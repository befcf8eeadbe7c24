package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func serve(files []string) error {
	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(2 * messageBytesMax)}
	if len(files) == 2 {
		identity, err := credentials.NewServerTLSFromFile(files[0], files[1])
		if err != nil {
			return err
		}
		options = append(options, grpc.Creds(identity))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	server := grpc.NewServer(options...)
	server.RegisterService(&description, nil)
	// Whoever started this closes its input when the test is over.
	go func() {
		io.Copy(io.Discard, os.Stdin)
		server.Stop()
	}()
	return server.Serve(listener)
}

var cancelled = make(chan string, 16)

var description = grpc.ServiceDesc{
	ServiceName: service,
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{
		{MethodName: "Unary", Handler: unary(echo)},
		{MethodName: "Fail", Handler: unary(fail)},
		{MethodName: "Hang", Handler: unary(hang)},
		{MethodName: "Cancelled", Handler: unary(lastCancelled)},
	},
	Streams: []grpc.StreamDesc{
		streamDesc("Count", count),
		streamDesc("Collect", collect),
		streamDesc("Talk", talk),
		streamDesc("Break", breakOff),
	},
}

func unary(answer func(context.Context, *message) (*message, error)) grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		question := new(message)
		if err := decode(question); err != nil {
			return nil, err
		}
		return answer(ctx, question)
	}
}

// Sends the message and the metadata back: in the header and in the trailers.
func echo(ctx context.Context, question *message) (*message, error) {
	sent, _ := metadata.FromIncomingContext(ctx)
	grpc.SetHeader(ctx, metadata.Pairs("in-header", sent.Get("asked")[0], "in-header-bin", sent.Get("asked-bin")[0]))
	grpc.SetTrailer(ctx, metadata.Pairs("in-trailer", sent.Get("asked")[0]))
	return question, nil
}

func fail(_ context.Context, question *message) (*message, error) {
	failure := status.New(codes.FailedPrecondition, "not now: 100 % größer")
	detailed, err := failure.WithDetails(&errdetails.ErrorInfo{Reason: string(question.Value)})
	if err != nil {
		return nil, err
	}
	return nil, detailed.Err()
}

func hang(ctx context.Context, question *message) (*message, error) {
	<-ctx.Done()
	cancelled <- string(question.Value)
	return nil, ctx.Err()
}

// Waits until a call that hangs was given up, and tells which.
func lastCancelled(ctx context.Context, _ *message) (*message, error) {
	select {
	case which := <-cancelled:
		return text(which), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// One message is answered by many.
func count(_ any, stream grpc.ServerStream) error {
	question := new(message)
	if err := stream.RecvMsg(question); err != nil {
		return err
	}
	for range 100 {
		if err := stream.SendMsg(question); err != nil {
			return err
		}
	}
	return nil
}

// Many messages are answered by one.
func collect(_ any, stream grpc.ServerStream) error {
	all, err := receiveAll(stream)
	if err != nil {
		return err
	}
	return stream.SendMsg(text(all))
}

// The header comes before any message, and each message is answered at once.
func talk(_ any, stream grpc.ServerStream) error {
	if err := stream.SendHeader(metadata.Pairs("early", "yes")); err != nil {
		return err
	}
	for {
		question := new(message)
		switch err := stream.RecvMsg(question); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if err := stream.SendMsg(question); err != nil {
			return err
		}
	}
}

// Ends with an error while the client is still sending.
func breakOff(_ any, stream grpc.ServerStream) error {
	question := new(message)
	if err := stream.RecvMsg(question); err != nil {
		return err
	}
	if err := stream.SendMsg(question); err != nil {
		return err
	}
	return status.Error(codes.ResourceExhausted, "enough")
}
