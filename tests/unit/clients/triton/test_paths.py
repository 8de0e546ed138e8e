"""Of Triton's paths those for clients are known, in one spelling."""

import pytest

from lmi_backend.clients.triton.paths import TritonPath, read_path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/v2", TritonPath("/v2", "GET")),
        ("/v2/", TritonPath("/v2", "GET")),
        ("/v2/health/live", TritonPath("/v2/health/live", "GET")),
        ("/v2/models/stats", TritonPath("/v2/models/stats", "GET")),
        ("/v2/models/a", TritonPath("/v2/models/a", "GET", "a")),
        (
            "/v2/models/a.b-c/versions/2",
            TritonPath("/v2/models/a.b-c/versions/2", "GET", "a.b-c", "2"),
        ),
        ("/v2/models/a/config/", TritonPath("/v2/models/a/config", "GET", "a", "", "config")),
        (
            "/v2/models/a/versions/1/infer",
            TritonPath("/v2/models/a/versions/1/infer", "POST", "a", "1", "infer"),
        ),
        (
            "/v2/models/a/generate_stream",
            TritonPath("/v2/models/a/generate_stream", "POST", "a", "", "generate_stream"),
        ),
    ],
)
def test_a_clients_path_is_read(text: str, path: TritonPath) -> None:
    assert read_path(text) == path


@pytest.mark.parametrize(
    "text",
    [
        "", "/", "/v2/models", "/v2/repository/index", "/v2/models/a/load", "/v2/logging",
        "/v2/models/a/trace/setting", "/v2//models/a", "/v2/models/../a", "/v2/models/a%2fb",
        "/v2/models/a/versions/x/infer", "/v2/models/a/infer//", "/v2/models/a/infer\n",
        "/v2/models/ä", "/v2/models/" + "a" * 256, "/v2/models/a/versions/" + "1" * 20,
        "/v2/models/" + "a" * 60_000,
    ],
)  # fmt: skip
def test_all_others_are_not(text: str) -> None:
    assert read_path(text) is None
