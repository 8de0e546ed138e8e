"""The configurations of docs/migrating-from-lmi.md become what the page says."""

import re
from pathlib import Path

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.plan import EnginePlan
from lmi_backend.plan.hardware import Hardware
from lmi_backend.plan.planner import make_plan
from lmi_backend.plan.refusals import refuse_unserved
from tests.support.records.facts import LLAMA_3_8B
from tests.support.records.pages import Block, blocks
from tests.support.records.plans import options_of
from tests.support.run.places import ROOT

PAGE = "docs/migrating-from-lmi.md"
EIGHT = Hardware(devices=tuple("01234567"), device_memory=80 << 30)
STATED = re.compile(r"^Planned as: engine (\S+), (\w+) mode; starts: (yes|no)$", re.MULTILINE)
BLOCKS = [block for block in blocks(PAGE) if block.language in ("properties", "dotenv")]


def starts(plan: EnginePlan) -> str:
    try:
        refuse_unserved(plan)
    except ConfigurationError:
        return "no"
    return "yes"


@pytest.mark.parametrize(
    "block", BLOCKS, ids=[f"{block.title}: {block.language}" for block in BLOCKS]
)
def test_a_block_becomes_what_the_page_says(block: Block) -> None:
    lines, environment = block.text, dict[str, str]()
    if block.language == "dotenv":
        lines, environment = "", dict(line.split("=", 1) for line in lines.splitlines())
    options = options_of(lines, environment, Path("/opt/ml/model"))
    plan = make_plan(options, environment, EIGHT, LLAMA_3_8B)
    # A statement holds until the next one.
    assert (plan.engine, plan.parallel.mode, starts(plan)) == STATED.findall(block.before)[-1]
    assert not [found for found in options.classifications if found.status.word == "refused"]
    asked = re.findall(r"(?i)tensor_parallel_degree=(\w+)", block.text)
    assert plan.parallel.tensor_parallel_degree == (8 if asked == ["max"] else int(*asked or [1]))


def test_every_starter_has_both_forms() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    starters = text.split("## Starter configurations")[1].split("\n## ")[0]
    for heading in re.findall(r"### (.+)", starters):
        languages = {block.language for block in BLOCKS if block.title == heading}
        assert languages == {"properties", "dotenv"}, heading


def test_other_blocks_are_our_own_commands() -> None:
    # The handler is run by tests/unit/worker/handlers.
    others = [block for block in blocks(PAGE) if block not in BLOCKS and block.language != "python"]
    assert {block.language for block in others} == {"sh"}
    commands = [line.split()[0] for block in others for line in block.text.splitlines()]
    assert set(commands) == {"lmi-backend"}
