"""The backend of the chat: it says which mailbox a message goes to, and is free at once.

    pip install flask
    python3 app.py
"""

import html
import json
import os
import re
import time

from flask import Flask, Response, request

app = Flask(__name__)

TEXT_MAX = 1000
ROOM = re.compile("[A-Za-z0-9._~-]{1,100}")


@app.post("/say/<room>")
def say(room):
    if not ROOM.fullmatch(room):
        return Response("a room has letters, digits and -._~\n", 400)
    message = request.get_json()
    name, text = str(message["name"]), str(message["text"])
    if not text.strip() or len(text) > TEXT_MAX:
        return Response("a message has 1 to 1000 characters\n", 400)
    event = {"name": html.escape(name[:40]), "text": html.escape(text), "time": time.time()}
    headers = {"Mailbox-Deliver": room, "Mailbox-Event": "message"}
    # The browser repeats it when it does not know whether the message has arrived: it is delivered once.
    if "id" in message:
        headers["Mailbox-Id"] = str(message["id"])
    return Response(json.dumps(event), 200, headers, content_type="application/json")


if __name__ == "__main__":
    app.run(port=int(os.environ.get("PORT", "5000")))
