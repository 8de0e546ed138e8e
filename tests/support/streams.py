"""Many streams at once, and how each of them ended, counted where their clients are."""

import http.client
import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tritonclient.grpc

from tests.support.serving import Served
from tests.support.waiting import HANG_SECONDS, wait_for


@dataclass
class Stream:
    """One request: when it began, what came, how it ended."""

    chunks: int = 0
    endings: list[str] = field(default_factory=list)
    """`whole`, `error` or `cut`: the connection ended without a word. One, if all is well."""
    error: str = ""
    ended_at: float = 0.0
    came_at: float = 0.0
    pause: float = 0.0
    """The longest time between two chunks, in seconds."""

    def take(self) -> None:
        """Note a chunk."""
        now = time.monotonic()
        if self.chunks:
            self.pause = max(self.pause, now - self.came_at)
        self.chunks, self.came_at = self.chunks + 1, now

    def end(self, how: str, error: str = "") -> None:
        self.endings.append(how)
        self.error = self.error or error
        self.ended_at = time.monotonic()


class Streams:
    """Requests over HTTP, each on a connection of its own, and as many over one gRPC stream."""

    def __init__(self, served: Served, model: str, count: int, tokens: int) -> None:
        self._served, self._model, self._tokens = served, model, tokens
        self.all = [Stream() for _ in range(count)]
        half = count // 2
        self._grpc = tritonclient.grpc.InferenceServerClient(served.grpc)
        self._threads = [
            threading.Thread(target=self._over_http, args=(stream,)) for stream in self.all[half:]
        ]
        for thread in self._threads:
            thread.start()
        self._over_grpc(self.all[:half])

    def wait_until_running(self) -> "Streams":
        """Wait until chunks of some came."""
        wait_for(lambda: sum(stream.chunks > 0 for stream in self.all) >= len(self.all) // 4)
        return self

    def wait_for_more(self) -> None:
        """Wait until each has had another chunk, or has ended."""
        before = [(stream, stream.chunks) for stream in self.all]
        wait_for(lambda: all(each.endings or each.chunks > count for each, count in before))

    def wait(self, seconds: float = HANG_SECONDS) -> None:
        """Wait until each has ended."""
        wait_for(lambda: all(stream.endings for stream in self.all), seconds)
        for thread in self._threads:
            thread.join(HANG_SECONDS)
        self._grpc.stop_stream(cancel_requests=True)
        self._grpc.close()

    @property
    def outcomes(self) -> Counter[str]:
        """How many ended how; one that ended twice counts as `twice`."""
        return Counter(s.endings[0] if len(s.endings) == 1 else "twice" for s in self.all)

    @property
    def pause(self) -> float:
        """The longest time that one of them waited for its next chunk."""
        return max(stream.pause for stream in self.all)

    @property
    def errors(self) -> set[str]:
        return {stream.error for stream in self.all if stream.error}

    @property
    def last(self) -> float:
        """When the last one ended, by `time.monotonic`."""
        return max(stream.ended_at for stream in self.all)

    def _over_http(self, stream: Stream) -> None:
        connection = http.client.HTTPConnection(self._served.http, timeout=HANG_SECONDS)
        parameters = {"max_new_tokens": self._tokens, "ignore_eos": True}
        body = {"inputs": "Count to one hundred:", "stream": True, "parameters": parameters}
        try:
            path = f"/v2/models/{self._model}/generate_stream"
            connection.request("POST", path, json.dumps(body))
            events = (line for line in connection.getresponse() if line.startswith(b"data:"))
            for line in events:
                event = json.loads(line[5:])
                stream.take()
                if "error" in event:
                    stream.end("error", event["error"])
                    continue
                if "generated_text" in event:
                    stream.end("whole")
        except (OSError, http.client.HTTPException) as error:
            if not stream.endings:
                stream.end("cut", str(error))
        else:
            if not stream.endings:
                stream.end("cut", "the connection closed")
        finally:
            connection.close()

    def _over_grpc(self, streams: list[Stream]) -> None:
        text = tritonclient.grpc.InferInput("text_input", [1], "BYTES")
        text.set_data_from_numpy(np.array([b"Count to one hundred:"], dtype=np.object_))
        flag = tritonclient.grpc.InferInput("stream", [1], "BOOL")
        flag.set_data_from_numpy(np.array([True]))

        def take(result: Any, error: Any) -> None:
            if error is not None:
                open_ones = [stream for stream in streams if not stream.endings]
                if error.status() is not None:
                    # The connection's, and so of all that are open.
                    for stream in open_ones:
                        stream.end("cut", error.message())
                else:
                    # One request's; the client does not say which.
                    (open_ones or streams)[0].end("error", error.message())
                return
            response = result.get_response()
            stream = streams[int(response.id)]
            stream.take()
            if response.parameters["triton_final_response"].bool_param:
                stream.end("whole")

        self._grpc.start_stream(take)
        more = {"max_tokens": self._tokens, "ignore_eos": True}
        for number in range(len(streams)):
            self._grpc.async_stream_infer(
                self._model, [text, flag], request_id=str(number), parameters=more
            )
