"""Who of several processes of pytest runs what: one begins with the units."""

from typing import Any

from xdist.scheduler import LoadGroupScheduling

UNITS = "unit"
"""The folder of tests that start no server and no engine."""
SERVERS = 3
"""Processes that begin with the other folders: most of their tests wait for a server."""


class Sharing(LoadGroupScheduling):
    """Hands out groups of tests, each whole, in their order.

    Units go first to the processes beyond `SERVERS`, which help the others when no unit is left.
    """

    def _assign_work_unit(self, node: Any) -> None:
        begins_with_units = int(node.gateway.id.removeprefix("gw")) >= SERVERS
        for group in self.workqueue:
            if group.startswith(f"{UNITS}/") == begins_with_units:
                self.workqueue.move_to_end(group, last=False)
                break
        super()._assign_work_unit(node)
