"""Debian's Chromium without a window, driven through its own DevTools protocol over a pipe."""

import base64
import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.run.waiting import HANG_SECONDS

_LEAST_FD = 10
"""Above those that the browser's pipe must have, 3 and 4."""
_MIDDLE = """selector => {
    const element = document.querySelector(selector);
    element.scrollIntoView({ block: "nearest" });
    const box = element.getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];
}"""
_KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, " ": 32}
_TEXTS = {"Enter": "\r", " ": " "}


def find_chromium() -> str | None:
    """Return the program; None where it is not installed (apt-get install chromium)."""
    return shutil.which("chromium")


class Browser:
    """A browser with a profile of its own."""

    def __init__(self, profile: Path) -> None:
        to_read, self._to = _pipe()
        self._from, to_write = _pipe()
        os.set_blocking(self._from, False)
        command = [
            *("bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "-", find_chromium() or ""),
            *("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"),
            *("--no-first-run", "--disable-dev-shm-usage", "--hide-scrollbars", "--lang=en"),
            *("--disable-background-networking", "--disable-component-update"),
            f"--user-data-dir={profile}",
        ]
        self._process = subprocess.Popen(
            command,
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._rest = b""
        self._ids = itertools.count(1)
        self._answers: dict[int, Any] = {}
        self._pages: dict[str, Page] = {}

    def call(self, method: str, session: str = "", **parameters: Any) -> Any:
        number = next(self._ids)
        message = {"id": number, "method": method, "params": parameters}
        message |= {"sessionId": session} if session else {}
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        end = time.monotonic() + HANG_SECONDS
        while number not in self._answers:
            assert time.monotonic() < end, f"the browser does not answer {method}"
            self.listen(0.1)
        answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def listen(self, seconds: float) -> None:
        """Take what the browser says within a time."""
        if not select.select([self._from], [], [], seconds)[0]:
            return
        *messages, self._rest = (self._rest + os.read(self._from, 1 << 20)).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            elif page := self._pages.get(message.get("sessionId", "")):
                page.hear(message["method"], message["params"])

    def page(
        self,
        width: int = 1280,
        height: int = 800,
        *,
        is_dark: bool = False,
        beside: "Page | None" = None,
    ) -> "Page":
        """Open an empty page with a store of its own, or that of another tab."""
        context = (
            beside.context
            if beside
            else self.call("Target.createBrowserContext")["browserContextId"]
        )
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)
        session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = Page(self, session["sessionId"])
        page.context = context
        self._pages[session["sessionId"]] = page
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        page.call(
            "Emulation.setEmulatedMedia",
            features=[
                {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"},
                {"name": "prefers-reduced-motion", "value": "reduce"},
            ],
        )
        page.call("Emulation.setFocusEmulationEnabled", enabled=True)
        return page

    def close(self) -> None:
        with contextlib.suppress(AssertionError, OSError):
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)


class Page:
    """One tab."""

    context = ""
    """Of its store."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.errors: list[str] = []
        """What the console shows as an error or a warning, violations of the policy too."""
        self.requests: list[dict[str, Any]] = []
        """Each with url, method and, where there is one, postData."""

    def call(self, method: str, **parameters: Any) -> Any:
        """Send a command to this tab."""
        return self._browser.call(method, self._session, **parameters)

    def hear(self, method: str, parameters: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(str(parameters["exceptionDetails"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(
                f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}"
            )
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.errors.append(str(parameters["args"]))

    def resize(self, width: int, height: int) -> None:
        """Set the size of what is seen, in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )

    def open(self, url: str) -> None:
        """Go to an address, and wait for its scripts."""
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, expression: str) -> None:
        end = time.monotonic() + HANG_SECONDS
        while not self.run(f"Boolean({expression})"):
            if time.monotonic() > end:
                seen = self.run("document.body.innerText")
                raise AssertionError(f"never true: {expression}\n{self.errors}\n{seen}")
            self._browser.listen(0.05)

    def text(self, selector: str) -> str:
        text: str = self.run(f"document.querySelector({json.dumps(selector)}).innerText")
        return text

    def click(self, selector: str) -> None:
        """Press the middle of an element with the mouse, once it takes clicks."""
        self.wait(f"!document.querySelector({json.dumps(selector)}).disabled")
        box = self.run(f"({_MIDDLE})({json.dumps(selector)})")
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=box[0],
                y=box[1],
                button="left",
                clickCount=1,
            )

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press a key: Enter, Escape, Tab, a blank."""
        named = {"key": key, "code": "Space" if key == " " else key, "modifiers": 8 * shift}
        named["windowsVirtualKeyCode"] = _KEYS[key]
        text = {"text": _TEXTS[key]} if key in _TEXTS and not shift else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **named, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def tab_to(self, selector: str) -> None:
        for _ in range(40):
            if self.run(f"document.activeElement.matches({json.dumps(selector)})"):
                return
            self.press("Tab")
        raise AssertionError(f"{selector} cannot be reached by Tab")

    def picture(self, path: Path) -> None:
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(data))


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    one = Browser(profile)
    try:
        yield one
    finally:
        one.close()


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    kept = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _LEAST_FD) for end in ends]
    for end in ends:
        os.close(end)
    return kept[0], kept[1]
