"""A model on vLLM that says what its prompt orders, for programs that give a model tools."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.serving import Served, serve, write_properties

NAME = "obedient"
LENGTH = 131_072
"""Tokens: agents tell their models much, and leave them room for 32,000 of their own."""
_MODULE = Path(__file__).with_name("obedient_model.py")
_TEMPLATE = """\
{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] or '' }}\
{% if message['tool_calls'] %}{{ message['tool_calls'] | tojson }}{% endif %}\
{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}\
{% if tools %}<|system|>{% for each in tools %}{{ each['function']['name'] }} {% endfor %}\
{% endif %}\
{% if add_generation_prompt %}<|assistant|>{% endif %}"""
"""Tools are shown by their names alone: some agents have 60 kB of them."""


@contextlib.contextmanager
def obedient(folder: Path, properties: dict[str, Any]) -> Iterator[Served]:
    """Serve the model until the block ends.

    Args:
        folder: for its files.
        properties: those of the tiny model.
    """
    own = {
        "option.max_model_len": LENGTH,
        "option.hf_overrides": json.dumps({"max_position_embeddings": LENGTH}),
        "option.enable_auto_tool_choice": "true",
        "option.tool_call_parser": "hermes",
        "option.chat_template": "template.jinja",
        "option.logits_processors": json.dumps([f"{_MODULE.stem}:Obedient"]),
    }
    # The few blocks of other tests hold no sequence of this length.
    kept = {name: each for name, each in properties.items() if "num_gpu_blocks" not in name}
    model = write_properties(folder / NAME, kept | own)
    (model / "template.jinja").write_text(_TEMPLATE, encoding="utf-8")
    code = folder / "code"
    code.mkdir()
    shutil.copy(_MODULE, code)
    paths = os.pathsep.join(filter(None, [str(code), os.environ.get("PYTHONPATH", "")]))
    with pytest.MonkeyPatch.context() as patch:
        # Workers see it, and vLLM's core in them.
        patch.setenv("PYTHONPATH", paths)
        with serve([model], folder) as server:
            yield server
