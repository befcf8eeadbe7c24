// Decodes responses as they arrive: `decode HOST PORT CODING FIRST COUNT`. Prints the number of the responses whose
// content has the sum that their header announces.
package main

import (
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// decoder returns the content of a body. The library of Go decodes gzip itself.
func decoder(coding string, body io.Reader) io.Reader {
	switch coding {
	case "br":
		return brotli.NewReader(body)
	case "zstd":
		decoder, err := zstd.NewReader(body, zstd.WithDecoderConcurrency(1))
		if err != nil {
			log.Fatal(err)
		}
		return decoder.IOReadCloser()
	default:
		return body
	}
}

func check(coding, url string) {
	request, err := http.NewRequest("GET", url, nil)
	if err != nil {
		log.Fatal(err)
	}
	if coding != "gzip" {
		request.Header.Set("Accept-Encoding", coding)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != 200 {
		log.Fatal(url, ": ", response.Status)
	}
	if !response.Uncompressed && response.Header.Get("Content-Encoding") != coding {
		log.Fatal(url, ": ", response.Header)
	}
	sum := crc32.NewIEEE()
	if _, err := io.Copy(sum, decoder(coding, response.Body)); err != nil {
		log.Fatal(url, ": ", err)
	}
	// Nothing follows, and the connection can be used again.
	if rest, err := io.Copy(io.Discard, response.Body); rest != 0 || err != nil {
		log.Fatal(url, ": ", rest, " more bytes, ", err)
	}
	if fmt.Sprintf("%08x", sum.Sum32()) != response.Header.Get("X-Sum") {
		log.Fatal(url, ": another sum")
	}
}

func main() {
	host, port, coding := os.Args[1], os.Args[2], os.Args[3]
	first, _ := strconv.Atoi(os.Args[4])
	count, _ := strconv.Atoi(os.Args[5])
	for number := first; number < first+count; number++ {
		check(coding, fmt.Sprintf("http://%s:%s/%s/%d", host, port, coding, number))
	}
	fmt.Println(count)
}
