"""Ask a front end over a scripted model as Ollama's client does; print each answer as JSON."""

import json
import sys
import tempfile
from pathlib import Path

from lmi_backend.generation import HttpChunk
from lmi_backend.ipc import messages as msg
from tests.support.answers.failing_streams import EVENTS, fails
from tests.support.doubles.scripted_model import NAME, Order, Scripted

CASE = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
SEEN = []


def say(method, path, body, server, end):
    def script(order: Order):
        SEEN.append(order)
        first, *others = map(str.encode, CASE["answered"])
        chunks = [HttpChunk(first, headers={"content-type": EVENTS}), *map(HttpChunk, others)]
        messages = [msg.Output(order.id, chunk) for chunk in chunks]
        if end is not None:
            return [messages[0], *end(order)]
        chunks[-1].is_last = True
        return messages

    server.models[NAME].script = script
    status, headers, data, has_end = server.ask(method, path, json.dumps(body).encode())
    kind = headers.get("content-type", "")
    sys.stdout.write(json.dumps([status, kind, data.decode(), has_end]) + "\n")


with Scripted(Path(tempfile.mkdtemp(dir=sys.argv[2]))).run() as server:
    server.wait()
    say("POST", "/api/chat", CASE["asked"], server, None)
    say("POST", "/api/chat", CASE["asked"], server, fails)
    say("POST", "/api/chat", {"model": NAME}, server, None)
    say("POST", "/api/chat", CASE["asked"] | {"model": "none"}, server, None)
    say("GET", "/api/chat", {}, server, None)
    say("POST", "/api/chat/none", {}, server, None)
request = SEEN[0].request
sys.stdout.write(json.dumps({"path": request.path, "body": json.loads(request.body)}) + "\n")
