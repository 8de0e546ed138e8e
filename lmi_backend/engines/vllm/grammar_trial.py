"""Compile a structure of a client's in a process that may fail; standard output says what came.

Run by its path, with Python's `-I`: the standard library is all that is imported before its bounds
are set.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
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
    """Read an job from standard input; the kernel kills the process if it exceeds a bound."""
    job = json.load(sys.stdin.buffer)
    sys.path[:] = job["path"]
    try:
        # Before the time runs.
        import llguidance  # type: ignore[import-not-found, unused-ignore]  # noqa: F401, PLC0415
        import outlines_core  # type: ignore[import-not-found, unused-ignore]  # noqa: F401, PLC0415
    except ImportError as absent:
        print(json.dumps({"absent": str(absent)}))  # noqa: T201
        return
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_STACK, (_STACK_BYTES, _STACK_BYTES))
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    kind, text = job["kind"], job["text"]
    refusal = _guidance_error(kind, text, job["special"], job["tokens"])
    if job["outlines"]:
        _index(kind, text)
    print(json.dumps({"error": refusal}))  # noqa: T201


def _guidance_error(kind: str, text: str, special: list[str], tokens: int) -> str:
    """Return why llguidance refuses a structure, as vLLM says it; empty if it accepts it."""
    from llguidance import LLMatcher  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

    try:
        grammar = _grammar(kind, text)
    except (ValueError, KeyError, TypeError) as error:
        return f"Invalid grammar specification: {error}"
    tokenizer = _tokenizer(special, tokens)
    if kind == "structural_tag":
        # vLLM 0.32 wraps them so that llguidance does not read them; another release may not.
        for part in json.loads(text)["structures"]:
            LLMatcher.validate_grammar(_of_schema(part["schema"]), tokenizer)
    if refusal := LLMatcher.validate_grammar(grammar, tokenizer):
        return f"Grammar error: {refusal}"
    LLMatcher(tokenizer, grammar, log_level=0).compute_bitmask()
    return ""


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


def _index(kind: str, text: str) -> None:
    import outlines_core  # noqa: PLC0415

    try:
        pattern = (
            text if kind == "regex" else outlines_core.json_schema.build_regex_from_schema(text)
        )
        vocabulary = outlines_core.Vocabulary(_END, {bytes([n]): [n] for n in range(_END)})
        outlines_core.Index(pattern, vocabulary)
    except ValueError:
        # vLLM says what is wrong with it.
        return


if __name__ == "__main__":
    main()
