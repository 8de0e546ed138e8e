"""The files of the page, and who gets them; what they do is seen in tests/integration."""

import re
from pathlib import Path

import pytest

import lmi_backend.frontend.operators
from lmi_backend.front_end_settings import Settings
from lmi_backend.frontend.app import FrontEnd
from tests.support.answers.asking import ask

FOLDER = Path(lmi_backend.frontend.operators.__file__).parent / "page"


@pytest.fixture
def front_end(tmp_path: Path) -> FrontEnd:
    return FrontEnd(Settings(base=tmp_path, host="0.0.0.0", api_key="a-key"))


async def test_the_page_needs_no_key_and_may_run_nothing_but_itself(front_end: FrontEnd) -> None:
    status, headers, body = await ask(front_end, "/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert body == (FOLDER / "index.html").read_bytes()
    policy = headers["content-security-policy"].split("; ")
    assert {"default-src 'self'", "frame-ancestors 'none'"} <= set(policy)
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


async def test_what_a_browser_has_is_not_sent_again(front_end: FrontEnd) -> None:
    _, headers, _ = await ask(front_end, "/page/main.js")
    assert headers["content-type"] == "text/javascript; charset=utf-8"
    again = await ask(front_end, "/page/main.js", {"if-none-match": f'"x", {headers["etag"]}'})
    assert (again[0], again[2]) == (304, b"")


@pytest.mark.parametrize("path", ["/page/../app.py", "/page/nothing.js", "/page/", "/page//etc"])
async def test_nothing_else_is_served(front_end: FrontEnd, path: str) -> None:
    assert (await ask(front_end, path))[0] == 404


async def test_it_can_be_off(tmp_path: Path) -> None:
    front_end = FrontEnd(Settings(base=tmp_path, has_page=False))
    assert (await ask(front_end, "/"))[0] in (404, 405)
    assert (await ask(front_end, "/page/main.js"))[0] == 404
    assert (await ask(front_end, "/api/state"))[0] == 200


def test_every_file_is_its_own_and_none_is_large() -> None:
    page = "".join((FOLDER / name).read_text("utf-8") for name in ("index.html", "docs.html"))
    named = re.findall(r'(?:src|href)="page/([^"]+)"', page)
    scripts = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.js")}
    texts = [path.read_text("utf-8") for path in FOLDER.glob("*.js")]
    late = {name for text in texts for name in re.findall(r'import\("\./([^"]+)"\)', text)}
    assert len(late) == 2
    assert scripts - late <= set(named), "a script that is not loaded ahead delays the page"
    assert all((FOLDER / name).is_file() for name in {*named, *late})
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|style=", page)
    assert sum((FOLDER / name).stat().st_size for name in set(named)) < 220_000
    assert sum((FOLDER / name).stat().st_size for name in late) < 300_000
    for path in FOLDER.glob("*.js"):
        assert len(path.read_text("utf-8").splitlines()) <= 300
