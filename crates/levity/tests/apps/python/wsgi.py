"""A WSGI application for gunicorn and uWSGI; /django, /grip and /flask lead to applications of those."""

import hashlib
import importlib
import json
import time
from urllib.parse import parse_qs


def echo(environ, query):
    """What the server was told about the request."""
    told = {name: value for name, value in environ.items() if isinstance(value, str)}
    return "200 OK", [("Content-Type", "application/json")], [json.dumps(told).encode()]


def upload(environ, query):
    """What arrived of the body, without holding it in memory."""
    length, sha256 = 0, hashlib.sha256()
    while piece := environ["wsgi.input"].read(65536):
        length += len(piece)
        sha256.update(piece)
    found = json.dumps({"length": length, "sha256": sha256.hexdigest()})
    return "200 OK", [("Content-Type", "application/json")], [found.encode()]


def chunked(environ, query):
    """A body of unknown length: so many pieces of so many bytes."""
    pieces, count = int(query.get("pieces", ["3"])[0]), int(query.get("bytes", ["5"])[0])
    body = (b"%d" % (number % 10) * count for number in range(pieces))
    return "200 OK", [("Content-Type", "text/plain")], body


def slow(environ, query):
    """Says nothing for so many milliseconds."""
    time.sleep(int(query.get("ms", ["100"])[0]) / 1000)
    return "200 OK", [("Content-Type", "text/plain"), ("Content-Length", "4")], [b"done"]


def answer(environ, query):
    """Answers as the query says: status, header (whole lines) and body."""
    lines = (line.split(": ", 1) for line in query.get("header", []))
    body = query.get("body", [""])[0].encode()
    headers = [(name, value) for name, value in lines] + [("Content-Length", str(len(body)))]
    return query.get("status", ["200 OK"])[0], headers, [body]


HANDLERS = {
    "/echo": echo,
    "/upload": upload,
    "/chunked": chunked,
    "/slow": slow,
    "/answer": answer,
}

# Imported when first asked for: a server that needs neither starts in a tenth of the time.
FRAMEWORKS = {"/django": "django_app", "/flask": "flask_app", "/grip": "django_app"}


def application(environ, start_response):
    path = environ["PATH_INFO"]
    if path in FRAMEWORKS:
        return importlib.import_module(FRAMEWORKS[path]).application(environ, start_response)
    handler = HANDLERS.get(path, echo)
    status, headers, body = handler(environ, parse_qs(environ["QUERY_STRING"]))
    start_response(status, headers)
    return body
