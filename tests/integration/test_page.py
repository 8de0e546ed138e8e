"""The page of the front end in a real browser. `make pictures` makes docs/pictures anew."""

import contextlib
import json
import os
import re
import subprocess
import unicodedata
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.engines.vllm.fast_paths import COSTS
from lmi_backend.frontend.http.api_keys import hash_of
from tests.support.records.browser import Browser, Page, browser, find_chromium
from tests.support.run.ports import free_ports
from tests.support.run.waiting import nothing_more, wait_for
from tests.support.servers.serving import Served, front_end, serve, write_properties

pytestmark = pytest.mark.skipif(
    find_chromium() is None, reason="no Chromium: apt-get install chromium"
)
PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
ANSWERED = "document.querySelector('.answer:last-child')?.getAttribute('aria-busy') === 'false'"
METER = "document.querySelector('.answer .meter')?.innerText"
RUNS = f"{METER}?.includes('tokens/s')"
LONG = " ".join(f"word{number}" for number in range(60))


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as one:
        yield one


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, str]]:
    """A model that echoes, a word every 20 ms, with a front end; and its address."""
    folder = tmp_path_factory.mktemp("models")
    echo = {"option.rolling_batch": "echo", "option.openai": "true", "option.token_seconds": 0.02}
    echo["option.spare_workers"] = 1
    demo = write_properties(folder / "demo", echo)
    with serve([demo], folder) as served:
        address = f"http://localhost:{served.port}/"
        wait_for(lambda: _is_ready(address))
        yield served, address


@pytest.fixture(scope="module")
def address(server: tuple[Served, str]) -> str:
    return server[1]


@pytest.fixture
def page(chromium: Browser, address: str) -> Iterator[Page]:
    """The page at a desk, which must leave the console clean."""
    one = opened(chromium.page(), address)
    yield one
    assert one.errors == []
    assert not re.search(r"\b(NaN|undefined|null|Infinity)\b", one.run("document.body.innerText"))


def opened(page: Page, address: str) -> Page:
    page.open(address)
    page.wait("document.querySelector('#model').value")
    return page


@contextlib.contextmanager
def beside(served: Served, *options: str, port: int = 0) -> Iterator[str]:
    """Run another front end for a server's models until the block ends; yields its address."""
    run = f"--run-folder={served.run_folder()}"
    with front_end(served.log_file, run, *options, port=port) as front:
        address = f"http://localhost:{front.port}/"
        wait_for(lambda: _is_ready(address))
        yield address


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}ping", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def state_of(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{address}api/state", timeout=5) as answer:
        (model,) = json.load(answer)["models"]
    found: dict[str, Any] = model
    return found


def send(page: Page, text: str) -> None:
    page.click("#prompt")
    page.type(text)
    page.press("Enter")


def body_of(page: Page) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(
        [each["postData"] for each in page.requests if each["method"] == "POST"][-1]
    )
    return body


def put(page: Page, field: str, value: str) -> None:
    page.click(f"[name={field}]")
    page.run(f"document.querySelector('[name={field}]').select()")
    page.type(value)


def test_an_answer_streams_with_its_pace_and_stays_in_the_history(page: Page) -> None:
    page.run(
        "window.shift = 0, new PerformanceObserver(list => list.getEntries().forEach("
        "entry => { window.shift += entry.value; })).observe({type: 'layout-shift'}), 0"
    )
    send(page, LONG)
    page.wait(RUNS)
    assert page.text("#send") == "Stop"
    assert len(page.text(".answer .markdown")) < len(LONG)
    page.wait(ANSWERED)
    page.wait("document.querySelector('.answer .markdown').innerText.endsWith('word59')")
    assert page.text(".answer .markdown") == LONG
    figures = page.text(".answer .meter")
    assert figures.startswith("60 tokens · ")
    assert " tokens/s · first after " in figures
    # The question's arrival moves the greeting away; nothing that is read moves.
    assert page.run("window.shift") < 0.05
    page.open(page.run("location.href"))
    page.wait("document.querySelectorAll('#chats li').length === 1")
    page.click("#chats .title")
    assert page.text(".answer .markdown") == LONG
    assert page.run("sessionStorage.length") == 0
    page.click("#chats .remove")
    assert page.run("Object.keys(localStorage).filter(name => name.includes('chat')).length") == 0


def test_an_answer_can_be_stopped_and_the_engine_is_free(page: Page, address: str) -> None:
    put(page, "max_tokens", "20000")
    send(page, LONG)
    page.wait(RUNS)
    assert state_of(address)["stats"]["open"] == 1
    page.press("Escape")
    page.wait(f"{METER}.includes('stopped')")
    assert page.text("#send") == "Send"
    wait_for(lambda: state_of(address)["stats"]["open"] == 0)
    assert page.text(".answer .actions").split("\n")[0].startswith("Copy")
    page.run(
        "[...document.querySelectorAll('.answer button')].find("
        "button => button.innerText === 'Continue').click()"
    )
    page.wait("document.querySelector('#send').innerText === 'Stop'")
    assert body_of(page)["continue_final_message"] is True
    assert body_of(page)["messages"][-1]["role"] == "assistant"
    page.click("#send")
    page.wait(ANSWERED)


def test_settings_reach_the_request_and_its_copies(page: Page) -> None:
    values = {"temperature": 0.5, "top_p": 0.25, "max_tokens": 3, "seed": 7}
    put(page, "system", "It's short.")
    for name, value in values.items():
        put(page, name, str(value))
    send(page, "one two three four")
    page.wait(ANSWERED)
    body = body_of(page)
    assert {name: body[name] for name in values} == values
    assert body["messages"] == [
        {"role": "system", "content": "It's short."},
        {"role": "user", "content": "one two three four"},
    ]
    assert page.text(".answer .markdown") == "one two three"
    page.click("#code-button")
    curl, python = page.text("#curl"), page.text("#python")
    answer = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, check=True)
    assert answer.stdout.rstrip().endswith("data: [DONE]")
    assert "    temperature=0.5,\n" in python
    compile(python, "python", "exec")
    page.press("Escape")
    # What is out of bounds is the server's to refuse, and not ours to leave out.
    put(page, "temperature", "9")
    send(page, "five")
    page.wait(ANSWERED)
    assert body_of(page)["temperature"] == 9
    page.open(page.run("location.href"))
    assert page.run("document.querySelector('[name=seed]').value") == "7"


def test_an_edit_takes_nothing_away_before_it_is_sent(page: Page) -> None:
    for text in ("one", "two"):
        send(page, text)
        page.wait(ANSWERED)
    page.click(".question button")
    assert page.run("document.querySelectorAll('.question').length") == 2
    page.press("Escape")
    assert page.run("document.querySelector('#prompt').value") == ""
    page.click(".question button")
    page.type(" more")
    page.press("Enter")
    page.wait("document.querySelectorAll('.question').length === 1")
    page.wait(ANSWERED)
    assert [each["content"] for each in body_of(page)["messages"]] == ["one more"]


def test_two_tabs_on_one_conversation_lose_nothing(chromium: Browser, address: str) -> None:
    one = opened(chromium.page(), address)
    send(one, "from one")
    one.wait(ANSWERED)
    other = opened(chromium.page(beside=one), address)
    other.run("document.querySelector('#chats button').click()")
    send(other, "from the other")
    other.wait("document.querySelectorAll('.answer').length === 2")
    other.wait(ANSWERED)
    one.wait("document.querySelectorAll('.answer').length === 2")
    send(one, "again")
    one.wait("document.querySelectorAll('.answer').length === 3")
    one.wait(ANSWERED)
    asked = [each["content"] for each in body_of(one)["messages"] if each["role"] == "user"]
    assert asked == ["from one", "from the other", "again"]


def test_a_text_is_written_on_and_taken_back(page: Page) -> None:
    page.click("#modes label:last-of-type")
    put(page, "max_tokens", "4")
    page.click("#text")
    page.type("again and ")
    page.click("#generate")
    page.wait("document.querySelector('#text-meter').innerText.startsWith('4 tokens')")
    assert body_of(page)["prompt"] == "again and "
    assert page.run("document.querySelector('#text').value").startswith("again and again and")
    page.click("#undo")
    assert page.run("document.querySelector('#text').value") == "again and "


def test_everything_can_be_done_by_keyboard(page: Page) -> None:
    page.tab_to("#to-live")
    page.press("Enter")
    page.wait("document.querySelector('.card')")
    page.tab_to("#to-chat")
    page.press("Enter")
    page.tab_to("#prompt")
    page.type("two lines")
    page.press("Enter", shift=True)
    page.type("here")
    page.press("Enter")
    page.wait(ANSWERED)
    page.wait("document.querySelectorAll('.answer .actions button').length >= 2")
    for selector in ("#new-chat", ".title", ".question button", ".answer .actions button"):
        page.tab_to(selector)
        assert page.run("document.activeElement.matches(':focus-visible')")
    page.tab_to("#code-button")
    page.press("Enter")
    assert page.run("document.querySelector('#code-dialog').open")
    page.press("Escape")
    assert page.run("document.activeElement.id") == "code-button"
    unnamed = "[...document.querySelectorAll('button, input, select, textarea, a')].filter(e => "
    unnamed += "!(e.innerText || e.ariaLabel || e.labels?.length)).map(e => e.outerHTML)"
    assert page.run(unnamed) == []


def test_an_answer_cannot_run_or_fetch_anything(page: Page) -> None:
    attacks = (
        "<script>window.hurt = 1</script>",
        "<img src=x onerror='window.hurt = 2'>",
        "![seen](https://elsewhere.invalid/seen.png)",
        "[press](javascript:window.hurt=3)",
        "<iframe srcdoc='<script>parent.hurt=4</script>'></iframe>",
        "<style>body { display: none }</style>",
        "```html\n<svg onload='window.hurt = 5'>\n```",
        r"$\href{javascript:window.hurt=6}{x}$ and $\text{<img src=x onerror='window.hurt = 7'>}$",
        r"\(\includegraphics{https://elsewhere.invalid/seen.png}\)",
        "**bold** and `code`",
    )
    send(page, "\n\n".join(attacks))
    page.wait(ANSWERED)
    page.wait("document.querySelector('.answer strong')")
    assert page.run("window.hurt ?? 0") == 0
    found = "document.querySelectorAll('.answer :is(img, script, iframe, style, svg)').length"
    assert page.run(found) == 0
    links = "[...document.querySelectorAll('.answer a')].map(link => link.href)"
    assert page.run(links) == ["https://elsewhere.invalid/seen.png", ""]
    assert not [each for each in page.requests if "elsewhere" in each["url"]]


def test_formulas_are_drawn_and_code_is_coloured(page: Page) -> None:
    message = (
        "Energy is $$E=mc^2$$ and $a_1$ or \\(\\color{red}b\\), not $5 or $6.\n\n"
        "\\[\n\\frac{1}{2}\n\\]\n\n"
        "$$\nc\n$$\n\nWrong: $\\frac{$ `$d$`\n\n"
        "```python\ndef one():\n    return 1  # <b>\n```\n\n```\ndef plain\n```"
    )
    page.run(
        "import('/page/markdown.js').then(({ Markdown }) => { const text = new Markdown();"
        "document.querySelector('#thread').append(text.element);"
        f"text.show({json.dumps(message)}); }})"
    )
    drawn = "[...document.querySelectorAll('.markdown math')]"
    page.wait(f"{drawn}.length === 5")
    found = page.run(f"{drawn}.map(each => each.textContent)")
    assert [unicodedata.normalize("NFKC", each) for each in found] == [
        "E=mc2",
        "a1",
        "b",
        "12",
        "c",
    ]
    blocks = f"{drawn}.map(each => each.getAttribute('display')).join()"
    assert page.run(blocks) == "block,,,block,block"
    assert page.run("document.querySelectorAll('.markdown mfrac').length") == 1
    text = page.text(".markdown")
    assert "not $5 or $6." in text
    assert "$\\frac{$ $d$" in text
    coloured = (
        "[...document.querySelectorAll('.markdown .hljs-keyword')].map(each => each.innerText)"
    )
    page.wait(f"{coloured}.join() === 'def,return'")
    code = "[...document.querySelectorAll('.markdown pre')].map(each => each.textContent)"
    assert page.run(code) == ["def one():\n    return 1  # <b>\n", "def plain\n"]


def test_the_live_view_shows_what_the_model_does(page: Page, server: tuple[Served, str]) -> None:
    served, address = server
    send(page, "one two three")
    page.wait(ANSWERED)
    page.click("#to-live")
    page.wait("document.querySelector('.lines li')")
    text = page.text(".card")
    for part in ("demo", "ready", "Tokens/s", "KV cache", "engine echo: rolling_batch is echo"):
        assert part in text
    assert "is ready after" in page.text(".lines")
    assert "NaN" not in text
    before = state_of(address)
    finished = "document.querySelectorAll('.facts .value')[3].innerText"
    ended = before["stats"]["ended"]
    page.wait(f"{finished} === '{ended.get('stop', 0) + ended.get('length', 0)}'")
    deaths = before["workers"][0]["deaths"]
    served.workers("demo")[0].kill()
    page.wait(f"document.querySelectorAll('.facts .value')[5].innerText === '{deaths + 1}'")
    # Nobody waited for a server.
    assert "Server restarts" not in page.text(".facts")
    worker = state_of(address)["workers"][0]
    cells = "[...document.querySelectorAll('.workers tbody td')].map(cell => cell.innerText)"
    none = "\N{EN DASH}"
    # The echo has no KV cache, and nothing runs or waits.
    charts = "[...document.querySelectorAll('.charts figcaption')].map(each => each.innerText)"
    texts = f"{charts}.slice(1).map(each => each.split(/\\s+/).join(' ').trim())"
    # What the worker that died had told last is shown until the next one tells.
    page.wait(f"{texts}.join() === 'Running 0 0 waiting,KV cache {none}'")
    kept = [str(worker["assigned"]), str(deaths + 1)]
    shown = ["ready and a spare", "0", "0", none, *kept, none, none]
    page.wait(f"{cells}.join() === {json.dumps(','.join(shown))}")
    page.wait("document.querySelector('.card .state').innerText === 'ready'")
    assert page.text(".lines").count("starts: engine echo") >= 2
    page.click("#to-chat")
    asked = len(page.requests)
    nothing_more(1.5, "a page that shows no live view asks for no state")
    page.run("0")
    assert not [each for each in page.requests[asked:] if "/api/state" in each["url"]]


def test_the_live_view_says_which_fast_paths_are_off(page: Page) -> None:
    """Engines that have some say so; the echo has none."""
    path = {"name": "waits", "state": "private", "reason": "", "cost": ""}
    lost = {"name": "media", "state": "public", "reason": "no <b>name</b>", "cost": "no URLs"}
    page.run(
        f"window.paths = [], window.real = window.fetch, window.both = {json.dumps([path, lost])}, "
        "window.fetch = async (path, ...more) => { const response = await real(path, ...more); "
        "if (!path.includes('api/state')) return response; const body = await response.json(); "
        "body.models[0].workers[0].stats.fast_paths = paths; return Response.json(body); }, 0"
    )
    page.click("#to-live")
    page.wait("document.querySelector('.lines li')")
    assert "Fast paths" not in page.text(".card")
    page.run("window.paths = both.slice(0, 1), 0")
    page.wait("document.querySelector('.card').innerText.includes('Fast paths: 1 of 1 hold')")
    page.run("window.paths = both, 0")
    page.wait("document.querySelector('.card').innerText.includes('Fast paths: 1 of 2 hold')")
    assert page.text(".paths") == "media no <b>name</b>. Cost: no URLs"


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_letters_can_be_read_in_light_and_dark(
    chromium: Browser, address: str, is_dark: bool
) -> None:
    page = opened(chromium.page(is_dark=is_dark), address)
    for front, back in (("ink", "bg"), ("soft", "bg"), ("soft", "sunken"), ("accent", "bg"),
                        ("on-accent", "accent"), ("bad", "bad-tint"), ("warn", "bg"),
                        ("good", "bg"), ("ink", "tint"), ("accent", "sunken"), ("good", "sunken"),
                        ("warn", "sunken"), ("bad", "sunken")):  # fmt: skip
        assert contrast(page, front, back) >= 4.5, (front, back)
    background = page.run("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(20, 21, 22)") is is_dark
    assert page.errors == []


def contrast(page: Page, *names: str) -> float:
    """Return the contrast of two colours of the page, as WCAG 2 defines it."""
    light = []
    for name in names:
        colour = page.run(
            f"getComputedStyle(document.documentElement).getPropertyValue('--{name}')"
        )
        digits = colour.strip().lstrip("#")
        digits = digits if len(digits) == 6 else "".join(2 * digit for digit in digits)
        parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        light.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(light) + 0.05) / (min(light) + 0.05)


def test_it_fits_a_phone(chromium: Browser, address: str) -> None:
    page = opened(chromium.page(360, 740), address)
    wide = "[...document.querySelectorAll('body, main, .stage, .scroll, .live, .card')].some("
    wide += "element => element.scrollWidth > element.clientWidth)"
    send(page, f"{LONG} {'x' * 300}\n\n```\n{'y' * 300}\n```")
    page.wait(ANSWERED)
    assert page.run(wide) is False
    page.click("[popovertarget=settings]")
    page.wait("document.querySelector('#settings').matches(':popover-open')")
    page.click("[name=seed]")
    page.press("Escape")
    assert page.run("document.querySelector('#settings').matches(':popover-open')") is False
    page.click("#modes label:last-of-type")
    assert page.run(wide) is False
    page.click("#to-live")
    page.wait("document.querySelector('.lines li')")
    assert page.run(wide) is False
    assert page.run("document.documentElement.scrollWidth") == 360
    assert page.errors == []


def test_it_says_when_the_server_is_away_and_goes_on_when_it_is_back(
    chromium: Browser, server: tuple[Served, str]
) -> None:
    (port,) = free_ports(1)
    away = "document.querySelector('#notice').innerText.includes('does not answer')"
    is_fine = "document.querySelector('#notice').hidden"
    with beside(server[0], port=port) as address:
        page = opened(chromium.page(), address)
        page.click("#to-live")
        page.wait("document.querySelector('.card')")
    page.wait(away)
    with beside(server[0], port=port):
        page.wait(is_fine)
        page.click("#to-chat")
        page.wait("!document.querySelector('#chat').hidden")
        send(page, "back again")
        page.wait(ANSWERED)
        assert page.text(".answer .markdown") == "back again"
    send(page, "away again")
    page.wait("document.querySelector('.answer:last-child .error')?.innerText")
    page.wait(away)
    last = "document.querySelector('.answer:last-child {}').innerText"
    assert page.run(last.format(".meter")) == "no answer"
    assert page.run(last.format(".actions")) == "Try again"
    with beside(server[0], port=port):
        page.wait(is_fine)
        send(page, "third")
        page.wait(ANSWERED)
    # Many templates refuse two questions in a row.
    contents = [each["content"] for each in body_of(page)["messages"]]
    assert contents == ["back again", "back again", "third"]


def test_an_answer_goes_on_when_the_front_end_dies(
    chromium: Browser, server: tuple[Served, str]
) -> None:
    served, address = server
    page = opened(chromium.page(), address)
    send(page, LONG)
    page.wait(RUNS)
    served.front_ends()[0].kill()
    page.wait(ANSWERED)
    assert page.text(".answer .markdown") == LONG
    assert page.text(".answer .meter").startswith("60 tokens · ")
    assert not page.run("document.querySelector('.answer .error').innerText")
    posts = [each["headers"] for each in page.requests if each["method"] == "POST"]
    came = [
        {name.lower(): text for name, text in each.items()}.get("last-event-id") for each in posts
    ]
    assert came[0] is None
    assert all(came[1:])
    # One that is stopped then is cancelled.
    put(page, "max_tokens", "20000")
    send(page, LONG)
    page.wait("document.querySelectorAll('.answer').length === 2")
    page.wait("document.querySelector('.answer:last-child .markdown').innerText.includes('word')")
    page.press("Escape")
    wait_for(lambda: _is_ready(address) and state_of(address)["stats"]["open"] == 0)


def test_keys_are_asked_for_and_forgotten_with_the_tab(
    chromium: Browser, server: tuple[Served, str], tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    lines = [f"alice {hash_of('alice-key')}", f"olga {hash_of('olga-key')} operator", ""]
    keys.write_text("\n".join(lines), encoding="utf-8")
    with beside(server[0], "--api-keys", str(keys)) as address:
        page = chromium.page()
        page.open(address)
        page.wait("!document.querySelector('#notice-key').hidden")
        page.click("#notice-key")
        page.type("wrong-key")
        page.press("Enter")
        page.wait("document.querySelector('#notice').innerText.includes('is not known')")
        page.click("#notice-key")
        page.run("document.querySelector('#key').select()")
        page.type("alice-key")
        page.press("Enter")
        page.wait("document.querySelector('#model').value")
        send(page, "one two")
        page.wait(ANSWERED)
        page.click("#code-button")
        assert "$LMI_API_KEY" in page.text("#curl")
        assert "alice-key" not in page.text("#code-dialog")
        page.press("Escape")
        page.click("#to-live")
        page.wait("document.querySelector('#notice').innerText.includes('not an operator')")
        page.click("#notice-key")
        page.run("document.querySelector('#key').select()")
        page.type("olga-key")
        page.press("Enter")
        page.wait("document.querySelector('.card')")
        assert page.run("JSON.stringify(localStorage).includes('-key')") is False
        assert page.run("sessionStorage['lmi.key']") == "olga-key"
        page.open(f"{address}docs")
        page.wait("document.querySelectorAll('#paths details').length > 40")
        page.run("document.querySelector('#paths details').open = true")
        page.wait("document.querySelector('#paths details > pre, #paths details > p')")
        page.run("sessionStorage.clear()")
        page.open(f"{address}docs")
        page.wait("document.querySelector('#problem').textContent.includes('playground')")


def test_a_real_model_answers(chromium: Browser, served: Served, questions: dict[str, str]) -> None:
    question, answer = next(iter(questions.items()))
    with beside(served) as address:
        page = opened(chromium.page(), address)
        page.run("document.querySelector('#model').value = 'tiny'")
        put(page, "temperature", "0")
        put(page, "max_tokens", "24")
        page.click("#modes label:last-of-type")
        page.click("#text")
        page.type(question)
        page.click("#generate")
        page.wait("document.querySelector('#text-meter').innerText.includes('tokens')")
        page.wait("document.querySelector('#generate').innerText === 'Generate'")
        page.wait(
            f"document.querySelector('#text').value.startsWith({json.dumps(question + answer)})"
        )
        page.click("#modes label:first-of-type")
        send(page, question)
        page.wait(f"{ANSWERED} && {METER}.includes('tokens')")
        page.click("#to-live")
        page.wait("document.querySelectorAll('.card').length === 2")
        assert "vllm" in page.text("#models")
        assert f"Fast paths: {len(COSTS)} of {len(COSTS)} hold" in page.text("#models")
        assert page.errors == []


if "UPDATE_PICTURES" in os.environ:  # `make pictures` draws them

    @pytest.mark.parametrize("name", ["playground", "playground-dark"])
    def test_picture_of_the_playground(chromium: Browser, address: str, name: str) -> None:
        page = opened(chromium.page(1200, 760, is_dark=name.endswith("dark")), address)
        conversation = (Path(__file__).parents[1] / "data" / "page_conversation.json").read_text(
            "utf-8"
        )
        page.run(f"localStorage.setItem('lmi.chat.demo', {json.dumps(conversation)})")
        page.open(page.run("location.href"))
        page.click("#chats .title")
        page.run("document.activeElement.blur()")
        page.wait("document.querySelector('.answer .hljs-keyword')")
        page.picture(PICTURES / f"{name}.png")
        assert (PICTURES / f"{name}.png").stat().st_size < 150_000

    def test_picture_of_the_live_view(chromium: Browser, address: str) -> None:
        page = opened(chromium.page(), address)
        busy = opened(chromium.page(1200, 760, is_dark=True), address)
        busy.click("#to-live")
        body = "{model: 'demo', prompt: 'some words '.repeat(9), stream: true, max_tokens: size(i)}"
        page.run(
            "window.asked = 0; const size = i => 120 + Math.round(90 * Math.sin(i));"
            "const ask = i => fetch('/v1/completions', {method: 'POST',"
            f"headers: {{'content-type': 'application/json'}}, body: JSON.stringify({body})}});"
            "for (let i = 0; i < 60; i += 1)"
            "{ setTimeout(() => { window.asked += 1; ask(i).then(r => r.text()); },"
            " 1000 * (i + 6 * Math.sin(i / 5))); } 0"
        )
        wait_for(lambda: busy.run("0") == 0 and page.run("asked") >= 56)
        busy.run("document.querySelector('#live').scrollTop = 0")
        busy.picture(PICTURES / "live.png")
        assert (PICTURES / "live.png").stat().st_size < 150_000
