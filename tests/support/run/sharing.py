"""Who of several processes of pytest runs what: one has the units alone."""

from typing import Any

from xdist.scheduler import LoadGroupScheduling

UNITS = "unit"
"""The folder of tests that start no server and no engine."""
SERVERS = 3
"""Processes that run the other folders first: most of their tests wait for a server or an engine,
whose deadlines more of them would miss."""


def _has_units_alone(name: str) -> bool:
    return int(name.removeprefix("gw")) >= SERVERS


class Sharing(LoadGroupScheduling):
    """Hands out groups of tests, each whole, in their order.

    Units go to the processes that run nothing else, which end with them, and to the others once
    they have done what only they do: so none is idle at the end.
    """

    def _assign_work_unit(self, node: Any) -> None:
        has_units_alone = _has_units_alone(node.gateway.id)
        for group in self.workqueue:
            if group.startswith(f"{UNITS}/") == has_units_alone:
                self.workqueue.move_to_end(group, last=False)
                break
        else:
            if has_units_alone:
                node.shutdown()
                return
        super()._assign_work_unit(node)
