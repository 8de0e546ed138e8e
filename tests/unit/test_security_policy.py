"""What SECURITY.md says of Triton is what the lock and the package say."""

from lmi_backend.supervisor.installation import (
    IN_WHEELS,
    OLDEST_FOR_FLEETS,
    READ_UNTIL,
    release_name,
)
from tests.support.run.places import ROOT

POLICY = " ".join((ROOT / "SECURITY.md").read_text("utf-8").split())


def test_it_says_what_the_embedded_server_is_and_is_for() -> None:
    locked = (ROOT / "requirements" / "server.txt").read_text("utf-8").split()
    (wheel,) = (pin for pin in locked if pin in IN_WHEELS)
    version = IN_WHEELS[wheel]
    assert "is for trying and for tests on a trusted network: nvidia-pytriton" in POLICY
    assert (
        f"{wheel.replace('==', ' ')}, the newest, holds Triton {release_name(version)} " in POLICY
    )
    assert f"({version}), which is open to" in POLICY


def test_it_says_which_release_a_fleet_needs() -> None:
    assert (
        f"A fleet needs Triton {OLDEST_FOR_FLEETS} or later, the first release to which none of "
        f"NVIDIA's bulletins until {READ_UNTIL} applies."
    ) in POLICY
