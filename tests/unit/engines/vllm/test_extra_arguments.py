"""What the core would take for its own is of the kind that it expects."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm import requests
from lmi_backend.errors import RequestError


@pytest.mark.parametrize(
    "extra",
    [
        None,
        {},
        {"mine": "x", "other": [1]},
        {"kv_transfer_params": {"do_remote_decode": True}, "ec_transfer_params": None},
        {"diffusion_canvas_length": 64, "diffusion_max_steps": 0},
    ],
)
def test_what_the_core_can_read_is_taken(extra: Any) -> None:
    requests.check_extra_arguments(SimpleNamespace(extra_args=extra))


def test_what_has_none_is_taken() -> None:
    requests.check_extra_arguments(SimpleNamespace())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kv_transfer_params", "x"),
        ("ec_transfer_params", [1]),
        ("diffusion_canvas_length", "wide"),
        ("diffusion_max_steps", 1.5),
        ("diffusion_max_steps", True),
        ("diffusion_canvas_length", -1),
        ("diffusion_canvas_length", 1 << 62),
    ],
)
def test_what_it_cannot_read_is_refused_by_its_name(name: str, value: object) -> None:
    with pytest.raises(RequestError, match=rf"vllm_xargs.{name} .*; accepted: an? "):
        requests.check_extra_arguments(SimpleNamespace(extra_args={name: value}))
