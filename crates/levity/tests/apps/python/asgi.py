"""An ASGI application for uvicorn: what takes its time, in both directions."""

import asyncio
import hashlib
import json
from urllib.parse import parse_qs


async def start(send, content_type):
    headers = [(b"content-type", content_type)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def say(send, body, more=False):
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def pieces(receive):
    """The body as it arrives; whether it arrived in full is the last piece's type."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        yield message.get("body", b"")
        if not message.get("more_body"):
            return


async def echo(scope, query, receive, send):
    """What the server was told about the request."""
    told = {
        "method": scope["method"],
        "path": scope["path"],
        "query": scope["query_string"].decode(),
        "client": scope["client"],
        "scheme": scope["scheme"],
        "headers": [[part.decode("latin-1") for part in pair] for pair in scope["headers"]],
    }
    await start(send, b"application/json")
    await say(send, json.dumps(told).encode())


async def upload(scope, query, receive, send):
    """What arrived of the body, without holding it in memory."""
    length, sha256 = 0, hashlib.sha256()
    async for piece in pieces(receive):
        length += len(piece)
        sha256.update(piece)
    await start(send, b"application/json")
    await say(send, json.dumps({"length": length, "sha256": sha256.hexdigest()}).encode())


async def back(scope, query, receive, send):
    """Sends the body back while it arrives: the answer begins before the request ends."""
    await start(send, b"application/octet-stream")
    async for piece in pieces(receive):
        await say(send, piece, more=True)
    await say(send, b"")


async def events(scope, query, receive, send):
    """Server-sent events: so many, so many milliseconds apart; without a count they never end."""
    count, ms = query.get("count"), int(query.get("ms", ["0"])[0])
    await start(send, b"text/event-stream")
    number = 0
    while count is None or number < int(count[0]):
        if number > 0:
            await asyncio.sleep(ms / 1000)
        await say(send, b"id: %d\ndata: event %d\n\n" % (number, number), more=True)
        number += 1
    await say(send, b"")


async def slow(scope, query, receive, send):
    """Says nothing for so many milliseconds."""
    await asyncio.sleep(int(query.get("ms", ["100"])[0]) / 1000)
    await start(send, b"text/plain")
    await say(send, b"done")


async def web_socket(receive, send):
    """Sends each message back, until it is "close"."""
    while True:
        message = await receive()
        if message["type"] == "websocket.connect":
            await send({"type": "websocket.accept"})
        elif message["type"] == "websocket.disconnect":
            return
        elif message.get("text") == "close":
            await send({"type": "websocket.close", "code": 4000})
            return
        else:
            sent = {key: message[key] for key in ("text", "bytes") if message.get(key) is not None}
            await send({"type": "websocket.send", **sent})


HANDLERS = {"/upload": upload, "/back": back, "/events": events, "/slow": slow}


async def application(scope, receive, send):
    if scope["type"] == "websocket":
        return await web_socket(receive, send)
    handler = HANDLERS.get(scope["path"], echo)
    await handler(scope, parse_qs(scope["query_string"].decode()), receive, send)
