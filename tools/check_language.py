"""Check the language of the documentation, of what the program says, and its names: `make lint`.

python tools/check_language.py [PAGE or MODULE…]

Sentences are short, and the words are those of the field: tools/language.toml has the lists.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import tomllib
from program_texts import docstrings, field_docstrings, given_names, spoken_texts

ROOT: Final = Path(__file__).resolve().parent.parent
RULES: Final = ROOT / "tools" / "language.toml"
_FOLDERS: Final = (".", "docs", "deploy", "benchmarks")
# Modules whose names are looked at; of the first the texts too.
_NAMED: Final = ("lmi_backend", "tools", "tests")
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_FENCE: Final = re.compile(r"^\s*(```|~~~)")
_ITEM: Final = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+")
_CODE: Final = re.compile(r"(`+).+?\1")
_LINK: Final = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_MARKUP: Final = re.compile(r"<!--.*?-->|<[^>]+>|\*\*|(?<!\w)[*_]|[*_](?!\w)", re.DOTALL)
# A colon stands before an example or a list; a semicolon ends no sentence.
_END: Final = re.compile(r"(?<=[.!?:])[\"')]*\s+")
CODE: Final = "X"
_NAMES: Final = re.compile(rf"{CODE}(?:, {CODE})+")
"""A list of names, which is one word."""


@dataclass(frozen=True)
class Rules:
    longest: int
    instead: dict[re.Pattern[str], str]
    allowed: tuple[str, ...]
    names: dict[str, str]
    """What names a thing, by the word that names it no more."""
    package_names: dict[str, str]
    """The same, of names in the package and of its files."""
    own_names: frozenset[str]
    """Names of LMI's own with such a word."""
    names_left: dict[str, int]
    """Room of the package to the names that still have such a word."""


def read_rules() -> Rules:
    read = tomllib.loads(RULES.read_text(encoding="utf-8"))
    return Rules(
        longest=read["words_in_a_sentence"],
        instead={re.compile(word, re.IGNORECASE): by for word, by in read["instead"].items()},
        allowed=tuple(read["allowed"]["phrases"]),
        names=read["names"],
        package_names=read["package_names"],
        own_names=frozenset(read["allowed"]["names"]),
        names_left=read["package_names_left"],
    )


def main(arguments: list[str]) -> int:
    rules = read_rules()
    paths = [Path(each).resolve() for each in arguments] or _all()
    wrong = [line for path in paths for line in check(path, rules)]
    wrong += [] if arguments else package_names(ROOT / _NAMED[0], rules)
    sys.stdout.write("".join(f"{line}\n" for line in wrong))
    if not wrong:
        sys.stdout.write(f"language: {len(paths)} pages and modules are plain\n")
    return 1 if wrong else 0


def _all() -> list[Path]:
    pages = [page for folder in _FOLDERS for page in sorted((ROOT / folder).glob("*.md"))]
    modules = [sorted((ROOT / folder).rglob("*.py")) for folder in _NAMED]
    return [*pages, *(each for found in modules for each in found)]


def check(path: Path, rules: Rules) -> list[str]:
    """Return what is wrong on a page, or in a module: its names, and the program's texts."""
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return _wrong(name, [(1, text)], rules)
    wrong = [*_wrong_names(name, text, rules)]
    if name.startswith(_NAMED[1:]):
        return wrong
    texts = (*spoken_texts(text), *docstrings(text), *field_docstrings(text))
    return wrong + _wrong(name, texts, rules)


def _wrong_names(module: str, source: str, rules: Rules) -> Iterator[str]:
    for line, name in given_names(source):
        if name.startswith("test_"):
            continue  # It is a sentence.
        for word in map(str.lower, _WORD.findall(name)):
            if instead := rules.names.get(word):
                yield f"{module}:{line}: '{word}' in {name} (instead: {instead})"


def package_names(package: Path, rules: Rules) -> list[str]:
    """Return what is wrong with the names of a package, where a room has more than are left."""
    wrong: dict[str, list[str]] = {}
    for path in sorted(package.rglob("*.py")):
        module = path.relative_to(package)
        names = [(1, path.stem), *given_names(path.read_text(encoding="utf-8"))]
        for line, name in names:
            words = {*map(str.lower, _WORD.findall(name))} & rules.package_names.keys()
            if words and name.lower() not in rules.own_names:
                instead = ", ".join(rules.package_names[word] for word in words)
                problem = f"{package.name}/{module}:{line}: {name} (instead: {instead})"
                wrong.setdefault(module.parts[0], []).append(problem)
    lines: list[str] = []
    for room in sorted({*wrong, *rules.names_left}):
        problems, left = wrong.get(room, []), rules.names_left.get(room, 0)
        if len(problems) > left:
            lines += [*problems, f"{package.name}/{room}: {len(problems)} such names ({left})"]
        elif len(problems) < left:
            lines.append(f"tools/language.toml: {room} has {len(problems)} such names, not {left}")
    return lines


def _wrong(name: str, texts: Iterable[tuple[int, str]], rules: Rules) -> list[str]:
    return [
        f"{name}:{line + further - 1}: {what}"
        for line, text in texts
        for further, passage in passages(text)
        for sentence in sentences(passage)
        for what in judge(sentence, rules)
    ]


def sentences(text: str) -> list[str]:
    return _END.split(text)


def judge(sentence: str, rules: Rules) -> Iterator[str]:
    count = sum(any(map(str.isalnum, word)) for word in _NAMES.sub(CODE, sentence).split())
    if count > rules.longest:
        yield f"{count} words in a sentence ({rules.longest}): {_short(sentence)}"
    looked_at = sentence
    for phrase in rules.allowed:
        looked_at = re.sub(re.escape(phrase), CODE, looked_at, flags=re.IGNORECASE)
    for word, instead in rules.instead.items():
        if found := word.search(looked_at):
            yield f"'{found[0]}' (instead: {instead}): {_short(sentence)}"


def _short(sentence: str) -> str:
    return sentence if len(sentence) < 90 else f"{sentence[:87]}…"


def passages(text: str) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs, list items and table cells of a page, each with its line's number."""
    lines: list[str] = []
    start, is_code = 1, False
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        fence = bool(_FENCE.match(line))
        is_code ^= fence
        is_apart = fence or is_code or not line.strip() or line.startswith(("#", "|", "    "))
        if lines and (is_apart or _ITEM.match(line)):
            yield start, _plain(" ".join(lines))
            lines = []
        if line.startswith("|") and not is_code:
            yield from ((number, _plain(cell)) for cell in re.split(r"(?<!\\)\|", line) if cell)
        elif not is_apart:
            start = start if lines else number
            lines.append(_ITEM.sub("", line).strip())


def _plain(text: str) -> str:
    """Return text without markup, each piece of code as one word."""
    return _MARKUP.sub("", _LINK.sub(r"\1", _CODE.sub(CODE, text))).strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
