// Sends requests to a server: `requests BASE ADDRESS [AUTHORITY]`, over HTTP/2 only: without an authority by prior knowledge.
// Prints a line for each response: the version, the status, and the SHA-256 of the body. At the end come many requests at the same
// time, and the number of those that had a whole body.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
)

const many = 100

func client(address, authority string) *http.Client {
	var protocols http.Protocols
	config := &tls.Config{}
	if authority == "" {
		protocols.SetUnencryptedHTTP2(true)
	} else {
		protocols.SetHTTP2(true)
		pem, err := os.ReadFile(authority)
		if err != nil {
			log.Fatal(err)
		}
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(pem)
	}
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	return &http.Client{Transport: &http.Transport{
		DialContext: dial, TLSClientConfig: config, Protocols: &protocols,
	}}
}

func send(client *http.Client, method, url string, body []byte, name, value string) ([]byte, http.Header) {
	request, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	if name != "" {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		log.Fatal(method, " ", url, ": ", err)
	}
	defer response.Body.Close()
	received, err := io.ReadAll(response.Body)
	if err != nil {
		log.Fatal(method, " ", url, ": ", err)
	}
	fmt.Printf("%s %d %x\n", response.Proto, response.StatusCode, sha256.Sum256(received))
	return received, response.Header
}

func main() {
	base, authority := os.Args[1], ""
	if len(os.Args) > 3 {
		authority = os.Args[3]
	}
	client := client(os.Args[2], authority)
	whole, header := send(client, "GET", base+"/large", nil, "", "")
	send(client, "POST", base+"/echo", whole, "", "")
	send(client, "GET", base+"/large", nil, "Range", "bytes=1000000-1999999")
	send(client, "HEAD", base+"/large", nil, "", "")
	send(client, "GET", base+"/large", nil, "If-None-Match", header.Get("ETag"))
	var waiting sync.WaitGroup
	var count atomic.Int64
	for range many {
		waiting.Add(1)
		go func() {
			defer waiting.Done()
			response, err := client.Get(base + "/small")
			if err != nil {
				log.Print(err)
				return
			}
			defer response.Body.Close()
			if body, err := io.ReadAll(response.Body); err == nil && len(body) == 300 {
				count.Add(1)
			}
		}()
	}
	waiting.Wait()
	fmt.Println(count.Load())
}
