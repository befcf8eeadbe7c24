"""Decodes responses as they arrive: `decode.py HOST PORT CODING FIRST COUNT`. Prints the number of the responses whose
content has the sum that their header announces."""

import http.client
import sys
import zlib

import brotli
import zstandard


class Brotli:
    def __init__(self):
        self.decoder = brotli.Decompressor()

    def decompress(self, data):
        return self.decoder.process(data)

    def ended(self):
        return self.decoder.is_finished()


class Whole:
    """A decoder that tells by `eof` whether its stream is complete, and what follows it."""

    def __init__(self, decoder):
        self.decompress = decoder.decompress
        self.decoder = decoder

    def ended(self):
        return self.decoder.eof and not self.decoder.unused_data


DECODERS = {
    "gzip": lambda: Whole(zlib.decompressobj(31)),
    "br": Brotli,
    "zstd": lambda: Whole(zstandard.ZstdDecompressor().decompressobj()),
}


def check(connection, coding, path):
    connection.request("GET", path, headers={"Accept-Encoding": coding})
    response = connection.getresponse()
    assert response.status == 200, (path, response.status)
    assert response.headers["Content-Encoding"] == coding, (path, response.headers)
    decoder, total = DECODERS[coding](), 0
    while data := response.read(5000):
        total = zlib.crc32(decoder.decompress(data), total)
    assert decoder.ended(), path
    assert f"{total:08x}" == response.headers["X-Sum"], path


host, port, coding, first, count = sys.argv[1:]
connection = http.client.HTTPConnection(host, int(port), timeout=30)
for number in range(int(first), int(first) + int(count)):
    check(connection, coding, f"/{coding}/{number}")
print(count)
