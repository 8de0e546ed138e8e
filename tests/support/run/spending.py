"""What a run of the tests spends: seconds of processors by folder, servers and engines started."""

import resource
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.support.run.places import TESTS

SERVERS, ENGINES = "servers", "engines"
MOST = {SERVERS: 78, ENGINES: 40, "seconds of processors": 3600}
"""Bounds of a whole run. It took 1,960 seconds; a slow machine takes more."""
_COSTLIEST = 12
"""Files that are named."""

started: Counter[str] = Counter()
"""What this process of pytest started: Triton servers, and engines other than echo."""


_WITH_CHILDREN = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def seconds_of_processors(whose: Sequence[int] = _WITH_CHILDREN) -> float:
    """Return what this process and its children that ended have taken."""
    both = map(resource.getrusage, whose)
    return sum(each.ru_utime + each.ru_stime for each in both)


class Spending:
    """A plugin of pytest: each process counts, the one that reports adds up."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()
        self._tests: Counter[str] = Counter()
        self._total = 0.0
        self._excess = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> object:
        """Count a test, with the servers that start or end around it."""
        earlier = seconds_of_processors()
        result = yield
        file = str(item.path.relative_to(TESTS))
        self._seconds[file] += seconds_of_processors() - earlier
        self._tests[file] += 1
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Add what a process of pytest-xdist has counted."""
        seconds, tests, begun, total = getattr(node, "workeroutput", {}).get("spending", ({},) * 4)
        self._seconds.update(seconds)
        self._tests.update(tests)
        started.update(begun)
        self._total += total or 0

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand on the counts of a process; hold those of all against the bounds."""
        # Its children, if it has counted none itself, are the processes that have.
        self._total += seconds_of_processors(_WITH_CHILDREN[: 1 if self._total else 2])
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            counts = (dict(each) for each in (self._seconds, self._tests, started))
            output["spending"] = (*counts, self._total)
            return
        spent = {**started, "seconds of processors": int(self._total)}
        above = [
            f"{name}: {spent.get(name, 0)}" for name in MOST if spent.get(name, 0) > MOST[name]
        ]
        if above and _is_whole(session.config):
            self._excess = f"more than tests/support/run/spending.py allows: {', '.join(above)}"
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._tests:
            return
        counts = ", ".join(f"{started[name]} {name}" for name in (SERVERS, ENGINES))
        terminalreporter.section(f"spent: {self._total:.0f} s of processors, {counts}")
        rows = [*_by_folder(self._seconds).most_common(), *self._seconds.most_common(_COSTLIEST)]
        tests = self._tests + _by_folder(self._tests)
        rows += [("collecting", self._total - sum(self._seconds.values()))]
        for name, seconds in rows:
            terminalreporter.line(f"{name:45} {tests[name]:6} tests {seconds:7.0f} s")
        if self._excess:
            terminalreporter.line(self._excess, red=True)


def _by_folder(counts: Counter[str]) -> Counter[str]:
    folders: Counter[str] = Counter()
    for file, count in counts.items():
        folders[file.partition("/")[0]] += count
    return folders


def _is_whole(config: pytest.Config) -> bool:
    """Tell whether no test was chosen or left out."""
    chosen = (config.getoption(name) for name in ("keyword", "markexpr", "lf", "ignore"))
    return config.args_source == pytest.Config.ArgsSource.TESTPATHS and not any(chosen)
