"""Run mutations of vLLM in groups, and write down what came of each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lmi_backend.engines.vllm.inside.table import NEEDS, PATHS
from tests.support.battery import BODIES, CHATS, TEXTS
from tests.support.mutated_engine import Outcome
from tests.support.mutations import Mutation, bare
from tests.support.places import TESTS

RECORD: Final = TESTS / "data" / "mutations.json"
KEYS: Final = {bare(text): entry for entry in (*NEEDS, *PATHS) for text in entry.names}
"""Every name of the tables."""
UNUSED: Final = ("ranks", "nodes")
"""Needs of other modes than that which is run."""
_RAISED: Final = "mutation:"
_REFUSED: Final = 418
"""Status of the dependency that a mutation adds, for a request with a mark."""
_RESUMED_FROM: Final = "tensors with log probabilities"
"""Answer whose tokens another is resumed from."""
_SEEDED: Final = "two answers"
"""Answer that is refused without what holds the states of generators."""
_TRIED: Final = {
    "output_hook",
    "new_tokens",
    "resumption",
    "direct_calls",
    "plain_stream",
    "parsed_stream",
    "known_chats",
    "short_chats",
}
"""Fast paths that are turned off together where the trial of an answer fails."""
_EVENTS: Final = {"ChatCompletionStreamResponse": CHATS, "CompletionStreamResponse": TEXTS}
"""Classes of events, and the path whose streams have them."""
_MEMBER: Final = "a member that is "
_LEADS: Final = {"plain_stream": ("direct_calls", "new_tokens"), "new_tokens": ("fewer_counts",)}
"""Fast paths with which another goes."""
USUAL: Final = (
    "removed", "moved", "a required parameter", "reordered", "another default", "a raise",
    "__slots__", "called otherwise", "a member that is null", "a member that is a constant",
    "a member that is a number",
)  # fmt: skip
SERVED: Final = "fast paths"
PUBLIC: Final = "public way"
REFUSED: Final = "refused by name"
FOUND: Final = "found by its source"
OFF: Final = "off by its source"
ENDED: Final = "error of one request"
WRONG: Final = "wrong"


@dataclass
class Record:
    """What came of each mutation: by its name to the word and why."""

    path: Path = RECORD
    vllm: str = ""
    found: dict[str, list[str]] = field(default_factory=dict)
    known: Sequence[str] = ()
    """The names of all mutations."""

    def __post_init__(self) -> None:
        if self.path.is_file():
            kept = json.loads(self.path.read_text(encoding="utf-8"))
            self.vllm, self.found = kept["vllm"], kept["found"]

    def write(self, outcomes: Mapping[str, tuple[str, str]]) -> None:
        """Add some outcomes."""
        self.found |= {name: list(each) for name, each in outcomes.items()}
        kept = {
            "vllm": self.vllm,
            "found": {name: self.found[name] for name in sorted(self.found) if name in self.known},
            "not_run": sorted(set(self.known) - set(self.found)),
        }
        self.path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def groups(mutations: Sequence[Mutation], most: int) -> Iterator[list[Mutation]]:
    """Put mutations together that touch neither the same fast path nor the same name."""
    # What a release does often comes first.
    left = sorted(mutations, key=lambda each: each.kind not in USUAL)
    while left:
        chosen: list[Mutation] = []
        taken: set[str] = set()
        for each in left:
            touched = each.fast_paths | {each.key}
            if len(chosen) < most and not taken & touched:
                chosen.append(each)
                taken |= touched
        left = [each for each in left if each not in chosen]
        yield chosen


def judge(
    mutations: Sequence[Mutation], outcome: Outcome, untouched: Outcome
) -> dict[str, tuple[str, str]]:
    """Return what came of each mutation of a group, of those of which this run tells it."""
    if outcome.refused:
        named = [each for each in mutations if _names(outcome.refused, each)]
        if len(named) != 1 and len(mutations) > 1:
            return {}
        word = REFUSED if named else WRONG
        return {each.name: (word, _short(outcome.refused)) for each in named or mutations}
    different = outcome.differences(_meant(mutations, outcome, untouched))
    causes = {name: _causes(mutations, name, why) for name, why in outcome.off.items()}
    texts = {name: str(outcome.answers.get(name)) for name in different}
    raised = {name: text for name, text in texts.items() if _RAISED in text}
    if "resumption" in outcome.off or _RESUMED_FROM in raised:
        different.pop("resumed", None)
    if "seeded_steps" in outcome.off and "seed may end" in texts.get(_SEEDED, ""):
        different.pop(_SEEDED)
    wrong = different.keys() - raised.keys()
    if wrong or not all(causes.values()) or outcome.is_silent:
        if len(mutations) > 1:
            return {}
        what = [f"{name}: {different[name]}" for name in sorted(wrong)]
        off = [f"{name} is off: {why}" for name, why in outcome.off.items()]
        return {mutations[0].name: (WRONG, _short("; ".join([*what, *off])))}
    return {each.name: _of_one(each, causes, raised) for each in mutations}


def _meant(mutations: Sequence[Mutation], outcome: Outcome, untouched: Outcome) -> Outcome:
    """Return what vLLM itself answers, where a mutation changes that."""
    kinds, answers = {each.kind for each in mutations}, dict(untouched.answers)
    if "a decorator" in kinds:
        bodies = [name for name in (*BODIES, "marked") if isinstance(answers.get(name), list)]
        answers |= {name: [answers[name][0], "1", *answers[name][2:]] for name in bodies}
    if kinds & {"a dependency", "another class"}:
        came = outcome.answers.get("marked")
        answers["marked"] = came if isinstance(came, list) and came[0] == _REFUSED else _REFUSED
    for each in mutations:
        if each.key in _EVENTS and each.kind.startswith(_MEMBER):
            member = each.kind.removeprefix(_MEMBER)
            answers |= _with_member(answers, _EVENTS[each.key], member)
    return Outcome(answers=answers)


def _with_member(answers: Mapping[str, Any], path: str, member: str) -> dict[str, Any]:
    """Return the streams of a path whose events have a member more."""
    # vLLM leaves what is null out of the event of a stream's usage.
    shown = "nullof some" if member == "null" else member
    streams = [name for name, (of, body) in BODIES.items() if of == path and body.get("stream")]
    return {
        name: [*answers[name][:3], [shown, *answers[name][3][1:]], *answers[name][4:]]
        for name in streams
        if isinstance(answers.get(name), list)
    }


def _of_one(
    mutation: Mutation,
    causes: Mapping[str, Sequence[Mutation]],
    raised: Mapping[str, str],
) -> tuple[str, str]:
    if ours := sorted(name for name, each in causes.items() if mutation in each):
        return PUBLIC, f"{', '.join(ours)} off"
    word = mutation.key.partition(".")[2] or mutation.key
    ended = [text for text in raised.values() if word in text]
    return (ENDED, _short(ended[0])) if ended else (SERVED, "")


def _causes(mutations: Sequence[Mutation], fast_path: str, why: str) -> list[Mutation]:
    """Return which mutations turned a path off: those that the reason names, or that touch it."""
    if len(mutations) == 1:
        # Nothing else is changed.
        return list(mutations)
    named = [each for each in mutations if _names(why, each)]
    touching = _TRIED if "the trial failed" in why else {fast_path, *_LEADS.get(fast_path, ())}
    return named or [each for each in mutations if each.fast_paths & touching]


def _names(text: str, mutation: Mutation) -> bool:
    word = re.escape(mutation.key.rpartition(".")[2])
    return re.search(rf"\b{word}\b", text) is not None


def _short(text: str, most: int = 300) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]}…"


def run(
    mutations: Sequence[Mutation],
    serve: Callable[[Sequence[Mutation]], tuple[Outcome, Outcome]],
    record: Record,
    most: int,
) -> None:
    """Run what the record has not; a group whose outcome is not understood is halved.

    Args:
        serve: returns what came of a group, and what comes of the untouched vLLM.
    """
    waiting = list(groups(mutations, most))
    while waiting:
        group = waiting.pop(0)
        outcomes = judge(group, *serve(group))
        record.write(outcomes)
        left = [each for each in group if each.name not in outcomes]
        if left and not outcomes:
            half = len(left) // 2
            waiting += [left[:half], left[half:]]  # after what may be understood at once
        elif left:
            waiting.insert(0, left)
