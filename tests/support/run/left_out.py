"""Say once for each reason how many tests a machine leaves out."""

from collections import defaultdict

import pytest


class LeftOut:
    """A plugin of pytest: a reason names what is missing, and the command that installs it."""

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Count the tests of each reason; name one that is alone."""
        tests = defaultdict(list)
        for report in terminalreporter.stats.get("skipped", []):
            tests[report.longrepr[2].removeprefix("Skipped: ")].append(report.nodeid)
        for reason, names in sorted(tests.items()):
            which = f"{len(names)} tests" if len(names) > 1 else names[0]
            terminalreporter.line(f"left out: {which}: {reason}")
