"""The section of docs/engines.md on what is added inside vLLM, made from its table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lmi_backend.engines.vllm.fast_paths import COSTS, FASTER, OPTION
from lmi_backend.serving.metrics import FAST_PATH

_ABOUT: Final = f"""\
## Fast paths inside vLLM

vLLM promises nothing of its inside. What cannot be put there, or fails while it serves, is off
until the engine starts again. A warning in the log says what was expected, what was found and what
it costs. What vLLM's own processes on this machine turn off is shown too.

When an engine starts, a self-test generates a few tokens by vLLM's public way. It has `own_streams`
make the same answers, whole and as streams of OpenAI's bodies. If anything differs, `own_streams`
is off. An engine that does not generate by the public way does not start.

`{OPTION}=false` turns off those down to `{[*FASTER][-1]}`, which make the same
answers cheaper. Those below it change what is answered, or whether anything is.

Some options need vLLM's own answers. With `option.middleware`, `option.enable_log_outputs` and
their like its server writes all streams of OpenAI's bodies, and the log says so. With
`option.otlp_traces_endpoint` vLLM counts each output: `own_streams` is off then, without a warning,
and its state is `chosen`. `own_streams` needs `resumption`: without that it is off too.

The metric `{FAST_PATH}`, `/api/state` and the live view say which are in use.

| name | without it |
| --- | --- |"""


def fast_paths_section() -> Iterator[str]:
    """Yield the lines of the section."""
    yield _ABOUT
    for name, cost in COSTS.items():
        yield f"| `{name}` | {cost} |"
    yield ""
