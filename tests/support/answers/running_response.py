"""A streamed response of OpenAI's, read in two parts: what comes first, and the rest."""

import http.client
import json
from typing import Any

from tests.support.run.waiting import HANG_SECONDS

STORY = {"input": "Tell a story:", "temperature": 0, "max_output_tokens": 300, "stream": True}
_DATA = b"data: "


class RunningResponse:
    """One that has begun.

    Args:
        address: of the front end.
        model: its name.
    """

    def __init__(self, address: str, model: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=HANG_SECONDS)
        body = json.dumps(STORY | {"model": model})
        self._connection.request("POST", "/v1/responses", body)
        self._answer = self._connection.getresponse()
        self._lines = [self._answer.readline()]

    def text(self) -> str:
        """Read the rest; return its text, after a look at all its names."""
        self._lines += self._answer.read().splitlines()
        self._connection.close()
        lines = (line for line in self._lines if line.startswith(_DATA))
        events = [json.loads(line.removeprefix(_DATA)) for line in lines]
        assert events[-1]["type"] == "response.completed", events[-1]
        assert_one_response(events)
        return "".join(
            each["delta"] for each in events if each["type"] == "response.output_text.delta"
        )


def assert_one_response(events: list[dict[str, Any]]) -> None:
    """Check that the events of a response name it, and each item of it, all alike."""
    names = {
        (each["response"]["id"], each["response"]["created_at"])
        for each in events
        if "response" in each
    }
    assert len(names) <= 1
    begun = [each["item"]["id"] for each in events if each.get("type", "").endswith("item.added")]
    assert {each["item_id"] for each in events if "item_id" in each} <= set(begun)
    numbers = [each["sequence_number"] for each in events if "sequence_number" in each]
    assert numbers == [*range(len(numbers))]
