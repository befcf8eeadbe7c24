// Gets files of `a.test` at a port of this machine: `fetch PORT AUTHORITY PATH...`. Prints a line per connection: the version
// of TLS, whether the session was resumed, and the SHA-256 of each file.
package main

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
)

var names = map[uint16]string{tls.VersionTLS12: "TLSv1.2", tls.VersionTLS13: "TLSv1.3"}

// client returns one that comes to the port whatever the host is.
func client(port string, authority []byte, version uint16) *http.Client {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		log.Fatal("no certificate")
	}
	return &http.Client{Transport: &http.Transport{
		Dial: func(network, _ string) (net.Conn, error) {
			return net.Dial(network, "127.0.0.1:"+port)
		},
		TLSClientConfig: &tls.Config{
			RootCAs:            roots,
			MinVersion:         version,
			MaxVersion:         version,
			ClientSessionCache: tls.NewLRUClientSessionCache(4),
		},
	}}
}

// fetch prints the line of one connection.
func fetch(client *http.Client, paths []string) {
	for number, path := range paths {
		response, err := client.Get("https://a.test" + path)
		if err != nil {
			log.Fatal(path, ": ", err)
		}
		if response.StatusCode != 200 {
			log.Fatal(path, ": ", response.Status)
		}
		if number == 0 {
			kind := map[bool]string{true: "resumed", false: "full"}[response.TLS.DidResume]
			fmt.Print(names[response.TLS.Version], " ", kind)
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, response.Body); err != nil {
			log.Fatal(path, ": ", err)
		}
		response.Body.Close()
		fmt.Printf(" %x", sum.Sum(nil))
	}
	fmt.Println()
	client.CloseIdleConnections()
}

func main() {
	authority, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		client := client(os.Args[1], authority, version)
		fetch(client, os.Args[3:])
		fetch(client, os.Args[3:])
	}
}
