"""Gets files of `a.test` at a port of this machine: `fetch.py PORT AUTHORITY PATH...`. Prints a line per connection: the
version of TLS, whether the session was resumed, and the SHA-256 of each file."""

import hashlib
import http.client
import socket
import ssl
import sys


def fetch(context, port, paths, session):
    raw = socket.create_connection(("127.0.0.1", port), timeout=20)
    connection = http.client.HTTPConnection("a.test")
    stream = context.wrap_socket(raw, server_hostname="a.test", session=session)
    connection.sock = stream
    sums = []
    for path in paths:
        connection.request("GET", path)
        response = connection.getresponse()
        assert response.status == 200, (path, response.status)
        sums.append(hashlib.sha256(response.read()).hexdigest())
    kind = "resumed" if stream.session_reused else "full"
    print(stream.version(), kind, *sums)
    session = stream.session
    stream.unwrap()
    return session


port, authority, *paths = sys.argv[1:]
for version in ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3:
    context = ssl.create_default_context(cafile=authority)
    context.minimum_version = context.maximum_version = version
    session = fetch(context, int(port), paths, None)
    fetch(context, int(port), paths, session)
