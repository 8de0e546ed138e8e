"""Compile a structure of a client's in a process that may fail; its status says whether it did.

Run by its path, with Python's `-I`: the standard library is all that is imported before its bounds
are set.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

CPU_SECONDS: Final = 0.5
"""To compile. The largest schemas that `StructureBounds` lets pass take a tenth of it."""
MEMORY_BYTES: Final = 1 << 30
"""Of address space, with Python's own."""
_STACK_BYTES: Final = 4 << 20
"""Half of what vLLM's threads have, so that what passes here does not end them."""
_NICE: Final = 5
"""Less than the engine's loop, but not starved where engines fill all cores."""
_END: Final = 256
"""The end-of-text token, behind those of single bytes."""


def main() -> None:
    """Read a job from standard input; the kernel kills the process if it exceeds a bound."""
    job = json.load(sys.stdin.buffer)
    sys.path[:] = job["path"]
    compile_it = {"guidance": _compile, "outlines": _index}[job["library"]]
    # Before the time runs.
    import_module({"guidance": "llguidance", "outlines": "outlines_core"}[job["library"]])
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_STACK, (_STACK_BYTES, _STACK_BYTES))
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    # vLLM says what is wrong with it.
    with suppress(ValueError, KeyError, TypeError):
        compile_it(job)


def _compile(job: dict[str, Any]) -> None:
    from llguidance import LLMatcher  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

    grammar = _grammar(job["kind"], job["text"])
    tokenizer = _tokenizer(job["special"], job["tokens"])
    if job["kind"] == "structural_tag":
        # vLLM 0.32 wraps them so that llguidance does not read them; another release may not.
        for part in json.loads(job["text"])["structures"]:
            LLMatcher.validate_grammar(_of_schema(part["schema"]), tokenizer)
    if not LLMatcher.validate_grammar(grammar, tokenizer):
        LLMatcher(tokenizer, grammar, log_level=0).compute_bitmask()


def _grammar(kind: str, text: str) -> str:
    import llguidance  # noqa: PLC0415

    if kind == "json":
        return _of_schema(text)
    if kind != "structural_tag":
        made: str = llguidance.grammar_from(kind, text)
        return made
    tag = json.loads(text)
    return llguidance.StructTag.to_grammar(  # type: ignore[no-any-return, unused-ignore]
        [
            llguidance.StructTag(
                trigger=next(each for each in tag["triggers"] if part["begin"].startswith(each)),
                begin=part["begin"],
                grammar=_of_schema(part["schema"]),
                end=part["end"],
            )
            for part in tag["structures"]
        ]
    )


def _of_schema(schema: Any) -> str:
    from llguidance import LLMatcher  # noqa: PLC0415

    made: str = LLMatcher.grammar_from_json_schema(schema, defaults={"whitespace_flexible": True})
    return made


def _tokenizer(special: list[str], tokens: int) -> Any:
    """Return a tokenizer of single bytes that has the model's special tokens by name and number."""
    import llguidance  # noqa: PLC0415

    class Bytes:
        eos_token_id, bos_token_id = _END, None
        is_tokenizer_wrapper = True

        def __init__(self) -> None:
            named = [name.encode() for name in special]
            self.tokens = [bytes([each]) for each in range(_END)] + [b"</s>", *named]
            self.special_token_ids = list(range(_END, len(self.tokens)))
            self.tokens += [b""] * (tokens - len(self.tokens))

        def __call__(self, text: str | bytes) -> list[int]:
            return list(text if isinstance(text, bytes) else text.encode())

    return llguidance.LLTokenizer(Bytes())


def _index(job: dict[str, Any]) -> None:
    import outlines_core  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

    pattern = job["text"]
    if job["kind"] != "regex":
        pattern = outlines_core.json_schema.build_regex_from_schema(pattern)
    vocabulary = outlines_core.Vocabulary(_END, {bytes([n]): [n] for n in range(_END)})
    outlines_core.Index(pattern, vocabulary)


if __name__ == "__main__":
    main()
