"""A URL in a body for vLLM's own server, through the worker; models without eyes fetched too."""

import socket
from typing import Any

import pytest

pytestmark = pytest.mark.parametrize("engine", ["pooling"], indirect=True)


@pytest.mark.parametrize("path", ["/v1/embeddings", "/pooling"])
def test_a_url_that_is_not_listed_is_the_clients_error(engine: Any, path: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        content = [{"type": "image_url", "image_url": {"url": url}}]
        body = {"messages": [{"role": "user", "content": content}]}
        status, answer = engine.post(path, body).answer
        assert status == 400
        assert "option.allowed_media_domains does not list" in answer["error"]["message"]
        with pytest.raises(BlockingIOError):
            listening.accept()
