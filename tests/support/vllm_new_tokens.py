"""Feed vLLM's output processor, and one whose new tokens are taken past it; compare the answers.

Runs in the engine's Python. Writes as JSON how many outputs were fed, how many of them the second
processor was given, and of how many the log probabilities were read past it.
"""

import asyncio
import inspect
import json
import random
import sys
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import numpy as np
from transformers import AutoTokenizer
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine import (
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    FinishReason,
)
from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector
from vllm.v1.outputs import LogprobsLists
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

from lmi_backend.engines.vllm.inside import output_hook, packed_logprobs
from lmi_backend.engines.vllm.inside.new_logprobs import NewLogprobs
from lmi_backend.engines.vllm.inside.new_tokens import NewTokens
from lmi_backend.engines.vllm.inside.outputs import OutputReader
from lmi_backend.engines.vllm.inside.packed_logprobs import PackedLogprobs
from lmi_backend.generation import GenerateRequest
from lmi_backend.token_ids import ID_BYTES

REQUESTS, TOKENS, VERSIONS = 300, 60, ("default", "next")
DELTA = RequestOutputKind.DELTA
PARAMS: tuple[dict[str, Any], ...] = (
    {}, {}, {}, {}, {"stop": ["a", "ing"]}, {"stop": ["e"], "include_stop_str_in_output": True},
    {"min_tokens": 5, "stop": ["o"]}, {"skip_special_tokens": False},
    {"skip_special_tokens": False, "spaces_between_special_tokens": False}, {"detokenize": False},
    {"logprobs": 0}, {"logprobs": 0}, {"logprobs": 0}, {"logprobs": 3},
    {"logprobs": 2, "stop": ["e"]},
    {"logprobs": 1, "flat_logprobs": True}, {"logprobs": 1, "detokenize": False},
)  # fmt: skip
INTERVALS: tuple[dict[str, Any], ...] = (
    {"stream_interval": 3}, {"stream_interval": 3}, {"stream_interval": 4, "stop": ["e"]},
)  # fmt: skip
"""Of a release in which a request can say so."""
if hasattr(SamplingParams(), "stream_interval"):
    PARAMS += INTERVALS


class Server:
    """An AsyncLLM's processor and its requests."""

    def __init__(self, tokenizer: Any) -> None:
        self.output_processor = OutputProcessor(tokenizer, log_stats=False)
        self.errored, self.num_given, self.num_added = False, 0, 0
        self._process = self.output_processor.process_outputs
        self._takes_version = "weight_version" in inspect.signature(self._process).parameters
        self.output_processor.process_outputs = self._count
        # Its core's client, as far as it matters here.
        self.engine_core = SimpleNamespace(decoder=MsgpackDecoder(EngineCoreOutputs))

    def _count(self, outputs: list[Any], *more: Any, **named: Any) -> Any:
        self.num_given += len(outputs)
        return self._process(outputs, *more, **named)

    async def add_request(self, request_id: str, params: Any, prompt: str = "") -> Any:
        """Add one, as `AsyncLLM.add_request` does."""
        fields = dict.fromkeys(EngineCoreRequest.__struct_fields__[:9]) | {
            "request_id": request_id,
            "prompt_token_ids": [1, 2, 3],
            "sampling_params": params,
            "arrival_time": 0.0,
        }
        if "external_req_id" in EngineCoreRequest.__struct_fields__:
            fields["external_req_id"] = request_id
        taken = inspect.signature(RequestOutputCollector).parameters
        given = {"output_kind": params.output_kind, "request_id": request_id}
        queue = RequestOutputCollector(**{name: given[name] for name in given if name in taken})
        self.output_processor.add_request(EngineCoreRequest(**fields), "", queue=queue)
        return queue

    async def abort(self, request_id: str, **_: Any) -> None:
        """Tell that nothing here aborts through the engine."""
        raise AssertionError(request_id)

    def step(self, outputs: list[Any], version: str) -> None:
        named = {"weight_version": version} if self._takes_version else {}
        self.output_processor.process_outputs(outputs, 0.0, None, **named)


class Sink:
    """Takes deltas; as long as `is_slow`, tokens stay with the engine."""

    def __init__(self, dice: random.Random) -> None:
        self.deltas: list[Any] = []
        self._dice, self._flushes = dice, []

    def take(self, delta: Any) -> None:
        self.deltas.append(delta)

    def defer(self, flush: Any, num_tokens: int) -> bool:
        if num_tokens > 8 or self._dice.random() < 0.2 or not self.deltas:
            return False
        self._flushes.append(flush)
        return True

    def tick(self) -> None:
        flushes, self._flushes = self._flushes, []
        for flush in flushes:
            flush()


async def main() -> None:
    dice = random.Random(20261125)
    tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
    theirs, ours, read = Server(tokenizer), Server(tokenizer), note_read()
    packed = PackedLogprobs(ours)
    packed.attach()
    packed_logprobs._in_use.append(packed)
    NewTokens(ours, packed.output(request_id="", new_token_ids=[])).attach()
    running = [await begin(str(number), dice, theirs, ours) for number in range(REQUESTS)]
    await asyncio.sleep(0)
    num_fed = 0
    while left := [each for each in running if each.left and not each.hook.done()]:
        version = dice.choice((VERSIONS[0],) * 50 + VERSIONS)
        some = [output for each in left if dice.random() < 0.9 for output in [each.output(dice)]]
        # Each its own: a processor takes out what follows a stop string.
        theirs.step([EngineCoreOutput(**deepcopy(output)) for output in some], version)
        given = [packed.output(**deepcopy(output)) for output in some]
        if dice.random() < 0.5:
            frames = MsgpackEncoder().encode(EngineCoreOutputs(outputs=given))
            given = ours.engine_core.decoder.decode([bytes(frame) for frame in frames]).outputs
            assert type(given[0]) is packed.output or len(frames) > 1
        ours.step(given, version)
        num_fed += len(some)
        for each in left:
            each.hear(dice, theirs, ours)
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    for each in running:
        each.check()
    assert ours.num_added == REQUESTS
    json.dump([num_fed, ours.num_given, sum(read)], sys.stdout)


def note_read() -> list[bool]:
    """Note from now on of each output with log probabilities whether they were read."""
    noted: list[bool] = []
    before = NewLogprobs.read

    def read(self: NewLogprobs, ids: Any, lists: Any) -> Any:
        found = before(self, ids, lists)
        noted.append(found is not None)
        return found

    NewLogprobs.read = read  # type: ignore[method-assign]
    return noted


async def begin(request_id: str, dice: random.Random, theirs: Server, ours: Server) -> "Asked":
    params = SamplingParams(output_kind=DELTA, **dice.choice(PARAMS))
    sink = Sink(dice)
    asked = GenerateRequest(prompt="", stream=True, logprobs=params.logprobs)
    reader, reads_theirs = OutputReader(None, asked), OutputReader(None, asked)
    reader.sends_ids = reads_theirs.sends_ids = True
    arguments = {"request_id": request_id, "params": params}
    queue = await theirs.add_request(**arguments)

    async def note() -> None:
        ours.num_added += 1
        assert "prompt" not in arguments

    arguments["prompt"] = "read by vLLM, and held no longer: it may have images"
    hook = asyncio.create_task(output_hook.generate(ours, arguments, reader, sink, on_added=note))
    asked = Asked(request_id, queue, sink, hook, dice.randint(1, TOKENS), reads_theirs)
    asked.interval = getattr(params, "stream_interval", None) or 1
    return asked


class Asked(SimpleNamespace):
    """A request at both."""

    def __init__(
        self, request_id: str, queue: Any, sink: Sink, hook: Any, left: int, reader: OutputReader
    ) -> None:
        super().__init__(request_id=request_id, queue=queue, sink=sink, hook=hook, left=left)
        self.reader = reader
        self.text, self.ids, self.ended = "", [], (None, None)
        self.tokens, self.cumulative, self.interval = (), None, 1

    def output(self, dice: random.Random) -> dict[str, Any]:
        """Return its next tokens; several, as with a draft model."""
        count = min(self.left, dice.choice((1, 1, 1, 2, 3)))
        self.left -= count
        ids = [dice.randrange(3, 259 if dice.random() < 0.2 else 900) for _ in range(count)]
        output: dict[str, Any] = {"request_id": self.request_id, "new_token_ids": ids}
        if self.reader.wants_tokens:
            output["new_logprobs"] = logprobs_of(ids, dice, self.reader._alternatives)
        if not self.left:
            output["finish_reason"] = dice.choice((FinishReason.LENGTH, FinishReason.STOP))
        return output

    def hear(self, dice: random.Random, theirs: Server, ours: Server) -> None:
        if dice.random() < 0.2:
            self.sink.tick()
        if dice.random() < 0.003 and self.left:
            self.left = 0
            for server in (theirs, ours):
                taken = inspect.signature(server.output_processor.abort_requests).parameters
                named = {"internal": True} if "internal" in taken else {}
                server.output_processor.abort_requests([self.request_id], **named)
        if (output := self.queue.get_nowait()) is not None:
            (answer,) = output.outputs
            (delta,) = self.reader.deltas(output)
            self.tokens += delta.tokens
            self.cumulative = delta.cumulative_logprob
            self.text += answer.text
            self.ids += answer.token_ids
            self.ended = answer.finish_reason, answer.stop_reason
            self.left = 0 if output.finished else self.left

    def check(self) -> None:
        """Compare what both answered."""
        # What it raised, or that it has not ended where the other one has.
        self.hook.result()
        last = self.sink.deltas[-1]
        assert "".join(delta.text for delta in self.sink.deltas) == self.text
        assert sum(delta.num_tokens for delta in self.sink.deltas) == len(self.ids)
        assert (last.finish_reason, last.stop_reason) == self.ended
        assert all(delta.num_tokens >= self.interval for delta in self.sink.deltas[1:-1])
        tokens = tuple(token for delta in self.sink.deltas for token in delta.tokens)
        assert (tokens, last.cumulative_logprob) == (self.tokens, self.cumulative)
        # Each text belongs to the tokens that it came with.
        for delta in self.sink.deltas:
            assert delta.num_tokens == len(delta.ids) // ID_BYTES
            assert len(delta.tokens) == (delta.num_tokens if self.reader.wants_tokens else 0)


def logprobs_of(ids: list[int], dice: random.Random, wanted: int) -> LogprobsLists:
    """Return log probabilities of tokens, as a core has them: of other requests' candidates too."""
    width = dice.choice((wanted, 4))
    others = [[dice.randrange(3, 900) for _ in range(width)] for _ in ids]
    values = [[-dice.random() for _ in range(width + 1)] for _ in ids]
    return LogprobsLists(
        np.array([[token, *more] for token, more in zip(ids, others, strict=True)], np.int32),
        np.array(values, np.float32),
        np.array([dice.randrange(1, 900) for _ in ids], np.int32),
    )


if __name__ == "__main__":
    asyncio.run(main())
