"""What makes a page hard to read is found; code and markup are not."""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import check_language
import pytest
from check_language import judge, main, package_names, passages, sentences
from program_texts import docstrings, field_docstrings, given_names, spoken_texts

from lmi_backend.cli.main import parser

RULES = check_language.read_rules()


@pytest.mark.parametrize(
    ("sentence", "what"),
    [
        (" ".join(["wor"] * 26), "26 words"),
        (" ".join(["wor"] * 25), ""),
        ("A vLLM that stands still is restarted.", "'stands still'"),
        ("The stub's worker's engine crashed.", "possessives"),
    ],
)
def test_a_sentence(sentence: str, what: str) -> None:
    found = list(judge(sentence, RULES))
    assert (what in found[0]) if what else not found


def test_paragraphs_items_and_cells_are_read_and_code_is_not() -> None:
    text = (
        "# A title that asks\n\nOne `a b c`\nline [of text](http://a.b/c).\n"
        "- An **item**\n  of two lines\n\n```\nasks\n```\n\n| a \\| b | `c` d |\n"
    )
    assert list(passages(text)) == [
        *((3, "One X line of text."), (5, "An item of two lines")),
        *((12, "a \\| b"), (12, "X d")),
    ]


def test_texts_and_names_of_a_module_are_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(check_language, "ROOT", tmp_path)
    page, module = tmp_path / "page.md", tmp_path / "module.py"
    page.write_text("Fine.\n", "utf-8")
    assert main([str(page)]) == 0
    page.write_text("Fine.\n\nIt asks.\n", "utf-8")
    source = (
        '"""Fine."""\nNAME = "two words"\n_log.info("worker %s ends", name)\n'
        'def run():\n    """Go on."""\n    raise Bad(f"{name:>3} wants {more}")\n'
        'class _Own:\n    size = 1\n    """Bytes."""\n'
    )
    module.write_text(source, "utf-8")
    assert main([str(page), str(module)]) == 1
    output = capsys.readouterr().out.splitlines()
    assert {"page.md:3: 'asks'", "module.py:3: 'ends'", "module.py:5: 'Go on'"} <= {
        line.split(" (")[0] for line in output
    }
    assert list(spoken_texts(source)) == [(3, "worker X ends"), (6, "X wants X")]
    assert list(docstrings(source)) == [(1, "Fine."), (5, "Go on.")]
    assert list(field_docstrings(source)) == [(9, "Bytes.")]
    names = (
        "class Told:\n    _trouble: str\n"
        "def told(trouble, *, a_told=1):\n    self._wasTrouble = trouble\n"
        "    for TROUBLE, other in trouble:\n        with other as told_by: pass\n"
        "    try: (told := trouble)\n    except Error as trouble: pass\n"
        "    match trouble:\n        case [trouble, *rest]: trouble.told()\n"
    )
    lines = [line for line, _ in sorted(given_names(names))]
    assert lines == [1, 2, 3, 3, 3, 4, 5, 5, 6, 7, 8, 10]
    module.write_text(names, "utf-8")
    found = check_language.check(module, RULES)
    assert len(found) == len(lines) - len(["other"])
    assert "module.py:4: 'trouble' in _wasTrouble (instead: problem" in found[5]


def helps(command: argparse.ArgumentParser) -> Iterator[str]:
    """Yield what a command and its own commands say of themselves."""
    yield command.description or ""
    for action in command._actions:
        yield action.help or ""
        if isinstance(action, argparse._SubParsersAction):
            yield from (choice.help or "" for choice in action._choices_actions)
            for further in action.choices.values():
                yield from helps(further)


def test_the_helps_of_the_commands_are_plain() -> None:
    texts = sorted({" ".join(text.split()) for text in helps(parser())})
    assert len(texts) > 50
    found = [what for text in texts for each in sentences(text) for what in judge(each, RULES)]
    assert found == []


def test_a_room_has_no_more_of_the_words_than_are_left(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "room").mkdir(parents=True)
    (package / "room" / "kept.py").write_text("found = max_idle_time = width = 1\n", "utf-8")
    left = [package_names(package, replace(RULES, names_left={"room": n})) for n in (1, 2, 3)]
    assert [len(each) for each in left] == [3, 0, 1]
