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
        (" ".join(["word"[:3]] * 26), "26 words"),
        (" ".join(["wor"] * 25), ""),
        ("A vLLM that stands still is restarted.", "'stands still'"),
        ("Whoever reaches the port is a client.", "'Whoever'"),
        ("The stub's worker's engine crashed.", "possessives"),
        ("Each of the front ends answers.", ""),
        ("A hung vLLM is restarted.", ""),
    ],
)
def test_a_sentence(sentence: str, what: str) -> None:
    found = list(judge(sentence, RULES))
    assert (what in found[0]) if what else not found


def test_paragraphs_items_and_cells_are_read_and_code_is_not() -> None:
    text = (
        "# A title that asks\n\nOne `a b c`\nline [of text](http://a.b/c).\n"
        "- An **item**\n  of two lines\n- another\n\n```\nasks\n```\n\n| a \\| b | `c` d |\n"
    )
    assert list(passages(text)) == [
        (3, "One X line of text."),
        (5, "An item of two lines"),
        (7, "another"),
        (13, "a \\| b"),
        (13, "X d"),
    ]


def test_what_is_wrong_is_printed_with_its_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(check_language, "ROOT", tmp_path)
    page, module = tmp_path / "page.md", tmp_path / "module.py"
    page.write_text("Fine.\n\nIt asks.\n", "utf-8")
    module.write_text(
        '"""Fine."""\nLOG = "a worker ends here"\ndef run():\n    """Go on."""\n', "utf-8"
    )
    assert main([str(page), str(module)]) == 1
    output = capsys.readouterr().out.splitlines()
    assert [line.split(" (")[0] for line in output] == [
        "page.md:3: 'asks'",
        "module.py:2: 'ends'",
        "module.py:4: 'Go on'",
    ]
    page.write_text("Fine.\n", "utf-8")
    assert main([str(page)]) == 0


def test_every_kind_of_name_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        "class Told:\n    _trouble: str\n"
        "def told(trouble, *, a_told=1):\n    self._wasTrouble = trouble\n"
        "    for TROUBLE, other in trouble:\n        with other as told_by: pass\n"
        "    try: (told := trouble)\n    except Error as trouble: pass\n"
        "    match trouble:\n        case [trouble, *rest]: trouble.told()\n"
    )
    names = sorted(given_names(source))
    assert [line for line, _ in names] == [1, 2, 3, 3, 3, 4, 5, 5, 6, 7, 8, 10]
    monkeypatch.setattr(check_language, "ROOT", tmp_path)
    module = tmp_path / "module.py"
    module.write_text(source, "utf-8")
    found = check_language.check(module, RULES)
    assert len(found) == len(names) - len(["other"])
    assert "module.py:4: 'trouble' in _wasTrouble (instead: problem" in found[5]
    (tmp_path / "tests").mkdir()
    test = tmp_path / "tests" / "test_module.py"
    test.write_text('def test_it_is_told():\n    """It asks."""\n    told = 1\n', "utf-8")
    (line,) = check_language.check(test, RULES)
    assert line.startswith("tests/test_module.py:3: 'told' in told ")


def test_texts_and_docstrings_of_a_module_are_read_and_its_names_are_not() -> None:
    source = (
        '"""What it is."""\nNAME = "two words"\n_log.info("worker %s ends", name)\n'
        'def run():\n    """Run.\n\n    Raises:\n        Bad: it asks.\n    """\n'
        '    raise Bad(\n        f"{name:>3} asks for {more}")\n'
        'class _Own:\n    """Nobody\'s."""\n    size = 1\n    """Bytes."""\n'
    )
    assert list(spoken_texts(source)) == [(3, "worker X ends"), (11, "X asks for X")]
    assert list(docstrings(source)) == [
        (1, "What it is."),
        (5, "Run.\n\nRaises:\n- Bad: it asks."),
        (13, "Nobody's."),
    ]
    assert list(field_docstrings(source)) == [(15, "Bytes.")]


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
    assert left[0][0].startswith("package/room/kept.py:1: kept (instead:")
    assert left[2] == ["tools/language.toml: room has 2 such names, not 3"]
