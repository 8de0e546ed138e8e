"""The configurations of docs/migrating-from-lmi.md become what the page says."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.options import LmiOptions
from lmi_backend.plan import EnginePlan
from lmi_backend.plan.hardware import Hardware
from lmi_backend.plan.planner import make_plan
from lmi_backend.plan.refusals import refuse_unserved
from tests.support.records.facts import LLAMA_3_8B
from tests.support.records.plans import options_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "migrating-from-lmi.md"
EIGHT = Hardware(devices=tuple("01234567"), device_memory=80 << 30)
FOLDER = Path("/opt/ml/model")
_STATED = re.compile(r"Planned as: engine (\S+), (\w+) mode; starts: (yes|no)")
_HEADING = re.compile(r"#+ (.+)")
_FENCE = re.compile(r"```(\w*)")


@dataclass(frozen=True)
class Block:
    """One configuration of the page, and what the page says of it."""

    heading: str
    language: str
    text: str
    stated: tuple[str, ...]

    @property
    def options(self) -> LmiOptions:
        text = self.text if self.language == "properties" else ""
        return options_of(text, self.environment, FOLDER)

    @property
    def environment(self) -> dict[str, str]:
        if self.language == "properties":
            return {}
        return dict(line.split("=", 1) for line in self.text.splitlines())


def blocks() -> Iterator[Block]:
    """Yield the blocks in the order of the page; a statement holds until the next, or a heading."""
    heading = ""
    stated: tuple[str, ...] = ()
    lines = iter(PAGE.read_text(encoding="utf-8").splitlines())
    for line in lines:
        if found := _HEADING.fullmatch(line):
            heading, stated = found[1], ()
        elif found := _STATED.fullmatch(line):
            stated = found.groups()
        elif found := _FENCE.fullmatch(line):
            text = "\n".join(iter(lambda: next(lines), "```"))
            yield Block(heading, found[1], text, stated)


BLOCKS = [block for block in blocks() if block.language in ("properties", "dotenv")]


def starts(plan: EnginePlan) -> str:
    try:
        refuse_unserved(plan)
    except ConfigurationError:
        return "no"
    return "yes"


@pytest.mark.parametrize(
    "block", BLOCKS, ids=[f"{block.heading}: {block.language}" for block in BLOCKS]
)
def test_a_block_becomes_what_the_page_says(block: Block) -> None:
    options = block.options
    plan = make_plan(options, block.environment, EIGHT, LLAMA_3_8B)
    assert (plan.engine, plan.parallel.mode, starts(plan)) == block.stated
    assert not [found for found in options.classifications if found.status.word == "refused"]
    asked = re.findall(r"(?i)tensor_parallel_degree=(\w+)", block.text)
    assert plan.parallel.tensor_parallel_degree == (8 if asked == ["max"] else int(*asked or [1]))


def test_every_starter_has_both_forms() -> None:
    starters = (
        PAGE.read_text(encoding="utf-8").split("## Starter configurations")[1].split("\n## ")[0]
    )
    for heading in re.findall(r"### (.+)", starters):
        languages = {block.language for block in BLOCKS if block.heading == heading}
        assert languages == {"properties", "dotenv"}, heading


def test_other_blocks_are_our_own_commands() -> None:
    # The handler is run by tests/unit/worker/handlers.
    others = [block for block in blocks() if block not in BLOCKS and block.language != "python"]
    assert {block.language for block in others} == {"sh"}
    commands = [line.split()[0] for block in others for line in block.text.splitlines()]
    assert set(commands) == {"lmi-backend"}
