package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// How long all calls may take.
const limit = 60 * time.Second

// How long a call waits that has a deadline.
const deadline = 200 * time.Millisecond

// Calls that are made at the same time.
const parallelCalls = 200

func connected(address string, authority []string, use func(context.Context, *grpc.ClientConn) error) error {
	identity := insecure.NewCredentials()
	if len(authority) == 1 {
		var err error
		if identity, err = credentials.NewClientTLSFromFile(authority[0], "a.test"); err != nil {
			return err
		}
	}
	size := grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(2 * messageBytesMax))
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(identity), size)
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return use(ctx, connection)
}

func wait(ctx context.Context, connection *grpc.ClientConn) error {
	stream, err := open(ctx, connection, "Talk")
	if err != nil {
		return err
	}
	_, err = receiveAll(stream)
	return err
}

func callAll(ctx context.Context, connection *grpc.ClientConn) error {
	for _, one := range calls {
		if err := one.make(ctx, connection); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		fmt.Println(one.name)
	}
	return nil
}

var calls = []struct {
	name string
	make func(context.Context, *grpc.ClientConn) error
}{
	{"unary", callUnary},
	{"large", callLarge},
	{"fail", callFail},
	{"count", callCount},
	{"collect", callCollect},
	{"talk", callTalk},
	{"break", callBreak},
	{"unknown", callUnknown},
	{"deadline", callDeadline},
	{"cancel", callCancel},
	{"parallel", callParallel},
}

func withMetadata(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "asked", "a value", "asked-bin", "\x00\xff")
}

func ask(ctx context.Context, connection *grpc.ClientConn, question *message) error {
	var header, trailer metadata.MD
	answer := new(message)
	err := connection.Invoke(withMetadata(ctx), method("Unary"), question, answer, grpc.Header(&header), grpc.Trailer(&trailer))
	if err != nil {
		return err
	}
	if !bytes.Equal(answer.Value, question.Value) {
		return errors.New("another answer")
	}
	inHeader, inTrailer := header.Get("in-header"), trailer.Get("in-trailer")
	binary := header.Get("in-header-bin")
	if len(inHeader) != 1 || inHeader[0] != "a value" || len(binary) != 1 || binary[0] != "\x00\xff" {
		return fmt.Errorf("the header has %v", header)
	}
	if len(inTrailer) != 1 || inTrailer[0] != "a value" {
		return fmt.Errorf("the trailers have %v", trailer)
	}
	return nil
}

func callUnary(ctx context.Context, connection *grpc.ClientConn) error {
	return ask(ctx, connection, text("hello"))
}

func callLarge(ctx context.Context, connection *grpc.ClientConn) error {
	return ask(ctx, connection, text(strings.Repeat("0123456789abcdef", messageBytesMax/16)))
}

func callFail(ctx context.Context, connection *grpc.ClientConn) error {
	err := connection.Invoke(ctx, method("Fail"), text("because"), new(message))
	failure := status.Convert(err)
	if failure.Code() != codes.FailedPrecondition || failure.Message() != "not now: 100 % größer" {
		return fmt.Errorf("it fails with %v", err)
	}
	if len(failure.Details()) != 1 {
		return fmt.Errorf("details: %v", failure.Details())
	}
	if detail, ok := failure.Details()[0].(*errdetails.ErrorInfo); !ok || detail.Reason != "because" {
		return fmt.Errorf("details: %v", failure.Details())
	}
	return nil
}

func open(ctx context.Context, connection *grpc.ClientConn, name string) (grpc.ClientStream, error) {
	desc := streamDesc(name, nil)
	return connection.NewStream(ctx, &desc, method(name))
}

func callCount(ctx context.Context, connection *grpc.ClientConn) error {
	stream, err := open(ctx, connection, "Count")
	if err != nil {
		return err
	}
	if err := stream.SendMsg(text("one")); err != nil {
		return err
	}
	stream.CloseSend()
	return expectAll(stream, strings.Repeat("one", 100))
}

func callCollect(ctx context.Context, connection *grpc.ClientConn) error {
	stream, err := open(ctx, connection, "Collect")
	if err != nil {
		return err
	}
	for range 1000 {
		if err := stream.SendMsg(text("part")); err != nil {
			return err
		}
	}
	stream.CloseSend()
	return expectAll(stream, strings.Repeat("part", 1000))
}

func expectAll(stream grpc.ClientStream, expected string) error {
	switch all, err := receiveAll(stream); {
	case err != nil:
		return err
	case all != expected:
		return fmt.Errorf("another answer, of %d bytes", len(all))
	}
	return nil
}

// Without an end of either side, the header comes, and each answer comes before the next question.
func callTalk(ctx context.Context, connection *grpc.ClientConn) error {
	stream, err := open(ctx, connection, "Talk")
	if err != nil {
		return err
	}
	header, err := stream.Header()
	if err != nil || len(header.Get("early")) != 1 {
		return fmt.Errorf("the header is %v: %w", header, err)
	}
	for number := range 50 {
		question, answer := text(fmt.Sprint(number)), new(message)
		if err := stream.SendMsg(question); err != nil {
			return err
		}
		if err := stream.RecvMsg(answer); err != nil {
			return err
		}
		if !bytes.Equal(question.Value, answer.Value) {
			return fmt.Errorf("%s is answered by %s", question.Value, answer.Value)
		}
	}
	stream.CloseSend()
	if err := stream.RecvMsg(new(message)); err != io.EOF {
		return fmt.Errorf("the end is %v", err)
	}
	return nil
}

func callBreak(ctx context.Context, connection *grpc.ClientConn) error {
	stream, err := open(ctx, connection, "Break")
	if err != nil {
		return err
	}
	if err := stream.SendMsg(text("more")); err != nil {
		return err
	}
	all, err := receiveAll(stream)
	if all != "more" || status.Code(err) != codes.ResourceExhausted {
		return fmt.Errorf("%q, and then %v", all, err)
	}
	return nil
}

func callUnknown(ctx context.Context, connection *grpc.ClientConn) error {
	err := connection.Invoke(ctx, method("Nothing"), text(""), new(message))
	if status.Code(err) != codes.Unimplemented {
		return fmt.Errorf("it fails with %v", err)
	}
	return nil
}

func callDeadline(ctx context.Context, connection *grpc.ClientConn) error {
	short, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	err := connection.Invoke(short, method("Hang"), text("deadline"), new(message))
	// The service knows the deadline, too, and may be the first to reset the stream.
	if status.Code(err) != codes.DeadlineExceeded {
		return fmt.Errorf("it fails with %v", err)
	}
	return expectCancelled(ctx, connection, "deadline")
}

func callCancel(ctx context.Context, connection *grpc.ClientConn) error {
	short, cancel := context.WithCancel(ctx)
	time.AfterFunc(deadline, cancel)
	err := connection.Invoke(short, method("Hang"), text("cancel"), new(message))
	if status.Code(err) != codes.Canceled {
		return fmt.Errorf("it fails with %v", err)
	}
	return expectCancelled(ctx, connection, "cancel")
}

// Expects the service to learn that the call was given up.
func expectCancelled(ctx context.Context, connection *grpc.ClientConn, which string) error {
	answer := new(message)
	if err := connection.Invoke(ctx, method("Cancelled"), text(""), answer); err != nil {
		return err
	}
	if string(answer.Value) != which {
		return fmt.Errorf("%s was given up", answer.Value)
	}
	return nil
}

func callParallel(ctx context.Context, connection *grpc.ClientConn) error {
	var all sync.WaitGroup
	results := make([]error, parallelCalls)
	for number := range results {
		all.Go(func() {
			question := strings.Repeat(fmt.Sprint(number, " "), 1000)
			results[number] = ask(ctx, connection, text(question))
		})
	}
	all.Wait()
	return errors.Join(results...)
}
