"""The picture of the architecture in README.md: one drawing, for light and for dark pages."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

PICTURES: Final = Path(__file__).resolve().parent.parent / "docs" / "pictures"
_SIZE: Final = (860, 340)
_FONT: Final = "-apple-system, 'Segoe UI', 'DejaVu Sans', Helvetica, sans-serif"


class Colours(NamedTuple):
    """What differs between a light and a dark page."""

    page: str
    box: str
    line: str
    text: str
    quiet: str
    accent: str


class Box(NamedTuple):
    """A rectangle with a title and a line below it."""

    x: int
    y: int
    width: int
    height: int
    title: str
    about: str
    is_ours: bool = True


class Arrow(NamedTuple):
    """A line from one point to another, with a word at its middle."""

    start: tuple[int, int]
    end: tuple[int, int]
    word: str


THEMES: Final = {
    "light": Colours("#ffffff", "#f6f8f7", "#8a9693", "#1d2523", "#55605d", "#0b6e5f"),
    "dark": Colours("#0d1117", "#161d1b", "#6b7774", "#e6edea", "#9aa7a3", "#56c2ad"),
}
_BOXES: Final = (
    Box(16, 60, 190, 76, "HTTP clients", "OpenAI, Anthropic, LMI …", is_ours=False),
    Box(16, 204, 190, 76, "Triton clients", "HTTP and gRPC", is_ours=False),
    Box(316, 60, 170, 76, "Front end", "one port, keys, page"),
    Box(316, 204, 170, 76, "tritonserver", "hosts the model's stub", is_ours=False),
    Box(544, 132, 110, 76, "Stub", "queue, limits"),
    Box(712, 60, 130, 76, "Worker 0", "engine process"),
    Box(712, 204, 130, 76, "Worker 1", "or MPI ranks"),
)
_ARROWS: Final = (
    Arrow((206, 98), (316, 98), "8080"),
    Arrow((206, 242), (316, 242), "8000, 8001"),
    Arrow((486, 98), (544, 156), ""),
    Arrow((486, 242), (544, 184), ""),
    Arrow((654, 156), (712, 98), ""),
    Arrow((654, 184), (712, 242), ""),
)
_TITLE: Final = "How a request travels through lmi-backend"
_ABOUT: Final = (
    "HTTP clients send requests to the front end on port 8080. Triton clients send them to "
    "tritonserver on ports 8000 and 8001. Both reach the model's stub, which sends them to the "
    "workers. Each worker is an engine in a process of its own, or a group of MPI ranks. "
    "lmi-backend serve starts all of them and restarts what crashes."
)


def pictures() -> dict[Path, str]:
    """Return the file of each theme, and its text."""
    return {
        PICTURES / f"architecture-{name}.svg": "\n".join(_drawing(colours)) + "\n"
        for name, colours in THEMES.items()
    }


def _drawing(colours: Colours) -> Iterator[str]:
    width, height = _SIZE
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-labelledby="title about" font-family="{escape(_FONT)}">'
    )
    yield f'<title id="title">{_TITLE}</title>'
    yield f'<desc id="about">{_ABOUT}</desc>'
    yield (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="{colours.line}"/>'
        "</marker></defs>"
    )
    yield f'<rect width="{width}" height="{height}" fill="{colours.page}"/>'
    yield (
        f'<rect x="300" y="14" width="554" height="312" rx="10" fill="none" '
        f'stroke="{colours.accent}" stroke-dasharray="5 5"/>'
    )
    yield _text((316, 38), "lmi-backend serve", colours.accent, 14, "bold")
    yield _text((316, 314), "starts, watches and restarts all of this", colours.quiet, 13)
    for arrow in _ARROWS:
        yield from _arrow(arrow, colours)
    for box in _BOXES:
        yield from _box(box, colours)
    yield "</svg>"


def _box(box: Box, colours: Colours) -> Iterator[str]:
    line = colours.accent if box.is_ours else colours.line
    yield (
        f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="8" '
        f'fill="{colours.box}" stroke="{line}" stroke-width="1.5"/>'
    )
    middle = box.x + box.width // 2
    yield _text((middle, box.y + 33), box.title, colours.text, 15, "bold", "middle")
    yield _text((middle, box.y + 55), box.about, colours.quiet, 13, "normal", "middle")


def _arrow(arrow: Arrow, colours: Colours) -> Iterator[str]:
    (x, y), (to_x, to_y) = arrow.start, arrow.end
    yield (
        f'<line x1="{x}" y1="{y}" x2="{to_x - 2}" y2="{to_y}" stroke="{colours.line}" '
        'stroke-width="1.5" marker-end="url(#head)"/>'
    )
    if arrow.word:
        middle = (x + to_x) // 2 - 4
        yield _text((middle, y - 8), arrow.word, colours.quiet, 13, "normal", "middle")


def _text(
    at: tuple[int, int],
    words: str,
    colour: str,
    size: int,
    weight: str = "normal",
    anchor: str = "start",
) -> str:
    x, y = at
    return (
        f'<text x="{x}" y="{y}" fill="{colour}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )
