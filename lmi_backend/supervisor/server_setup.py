"""What a tritonserver is started with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.repository.files import CONFIG
from lmi_backend.repository.restricted_apis import CLIENT_MEMORY
from lmi_backend.supervisor.log_relay import STANDARD_ERROR

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lmi_backend.plan.allocations import Allocation
    from lmi_backend.repository.restricted_apis import Restriction
    from lmi_backend.supervisor.installation import TritonServer
    from lmi_backend.supervisor.ports import Ports
    from lmi_backend.supervisor.processes import Traces
    from lmi_backend.supervisor.run_folder import RunFolder

# After draining the server has nothing to wait for but idle connections.
EXIT_SECONDS: Final = 5
# Memory that server and stub of a model share for requests and responses. When its 1 MiB has to
# grow, a stub of 24.10 whose threads send meanwhile may die of a segmentation fault (seen once).
_REGION_BYTES: Final = 1 << 24
_BODY: Final = "--http-max-input-size"
# Triton's default.
_BODY_BYTES: Final = 64 << 20
# A text may be twice as long as a string of JSON: each of its quotes and line ends is two bytes.
_JSON_GROWTH: Final = 2


@dataclass(frozen=True)
class ServerSetup:
    """What a server is started with, each time."""

    installation: TritonServer
    repository: Path
    names: list[str]
    """Models to load. By name (explicit mode), so that they can be unloaded and loaded again."""
    ports: Ports
    folder: RunFolder
    traces: Traces
    restriction: Restriction
    log: int = STANDARD_ERROR
    """The descriptor on which the server and all below it log."""
    allocations: tuple[Allocation, ...] = ()
    """What each model is to get of the devices, in any order of their loads."""
    largest_message: int = 0
    """Of all models, in bytes."""
    required: frozenset[str] = frozenset()
    """Models without which the server does not start."""

    def prepare(self) -> None:
        """Make sure that what a server is started with is there.

        Raises:
            ConfigurationError: a model is missing that we may not write again.
            OSError: the run folder cannot be written.
        """
        self.folder.restore()
        for name in self.names:
            if not (config := self.repository / name / CONFIG).is_file():
                raise ConfigurationError(f"{config}: was removed; --model-repository is needed")

    def argv(self, restriction: Restriction) -> list[str]:
        """Return the server's command line."""
        return [
            str(self.installation.binary),
            f"--backend-directory={self.installation.backends}",
            f"--model-repository={self.repository}",
            "--model-control-mode=explicit",
            # What is loaded has been written whole; completing it takes a second.
            "--disable-auto-complete-config",
            # One that cannot be loaded does not end the others.
            "--exit-on-error=false",
            *(f"--load-model={name}" for name in self.names),
            *self.ports.arguments(),
            # Ports of their own, and before 26.03 a way around the restrictions. With AIP_MODE set,
            # Triton would open Vertex AI's and none of the others.
            "--allow-sagemaker=false",
            "--allow-vertex-ai=false",
            "--allow-http=true",
            "--allow-grpc=true",
            *restriction.arguments(),
            *self._newer_arguments(restriction),
            f"--exit-timeout-secs={EXIT_SECONDS}",
            f"--backend-config=python,shm-region-prefix-name={self.traces.names.prefix}",
            f"--backend-config=python,shm-default-byte-size={_REGION_BYTES}",
        ]

    def _newer_arguments(self, restriction: Restriction) -> Iterator[str]:
        """Yield what not every release takes."""
        # Off by default from 26.04 on, so that opening the API alone would open nothing.
        if self.installation.takes(CLIENT_MEMORY):
            yield f"{CLIENT_MEMORY}={str('shared-memory' not in restriction.apis).lower()}"
        # From 25.06 on Triton refuses bodies above 64 MiB before a model's own bound is asked.
        if self.installation.takes(_BODY):
            yield f"{_BODY}={max(_BODY_BYTES, _JSON_GROWTH * self.largest_message)}"
