"""Several models on one machine: each is planned with what the others leave.

Who uses the devices of this machine is in a file for each model, of all servers of this user. The
kernel keeps a file locked as long as its owner lives. So the file of a killed server no longer
counts, even if another process has its number since.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.files import private_folder
from lmi_backend.options.table import server as srv
from lmi_backend.plan.hardware import Allocation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lmi_backend.options import LmiOptions
    from lmi_backend.plan.engine_plan import EnginePlan
    from lmi_backend.plan.hardware import Hardware


_MOST = (srv.MAX_WORKERS, srv.GPU_MAX_WORKERS)
_LISTED, _BOUNDED, _OPEN = range(3)


def plan_together(
    models: Mapping[str, LmiOptions],
    hardware: Hardware,
    plan: Callable[[LmiOptions, Hardware], EnginePlan],
) -> dict[str, EnginePlan | ConfigurationError]:
    """Plan models that are served side by side; a refused model leaves its devices to the others.

    First come those that name their devices, then those with a bound of workers. The others share
    what is left evenly, in their order. Still others may hold devices already.
    """
    order = sorted(models, key=lambda name: _claim(models[name]))
    sharers = sum(_claim(options) == _OPEN for options in models.values())
    hardware = replace(hardware, is_shared=len(models) > 1)
    made: dict[str, EnginePlan | ConfigurationError] = {}
    for name in order:
        is_open = _claim(models[name]) == _OPEN
        try:
            made_plan = plan(models[name], replace(hardware, sharers=sharers if is_open else 1))
        except ConfigurationError as error:
            made[name] = error
        else:
            made[name] = made_plan
            allocation = Allocation.of(name, made_plan.parallel, hardware.gpus)
            hardware = replace(
                hardware,
                allocations=(*hardware.allocations, allocation),
                host_memory=_left_on_host(made_plan, hardware.host_memory),
            )
        sharers -= is_open
    return {name: made[name] for name in models}


def _left_on_host(plan: EnginePlan, memory: int) -> int:
    """Return the bytes of the host's memory that a plan leaves; 0 is for unknown."""
    parallel = plan.parallel
    if not memory or not plan.memory or any(parallel.device_groups):
        return memory
    each = plan.memory.weights + plan.memory.kv_cache
    return max(1, memory - each * parallel.workers * parallel.world_size)


def _claim(options: LmiOptions) -> int:
    """Return how precisely a model says which devices it wants."""
    if options[srv.LOAD_ON_DEVICES] != "*":
        return _LISTED
    return _BOUNDED if any(options.is_set(bound) for bound in _MOST) else _OPEN


_SUFFIX: Final = ".json"
_GUARD: Final = "lock"


@dataclass
class Reservation:
    """The devices of a model, until it is closed or its process exits; or none."""

    path: Path | None = None
    marks: tuple[Path, ...] = ()
    """A file for each of its devices."""
    files: ExitStack = field(default_factory=ExitStack)

    @contextmanager
    def loading(self, on_wait: Callable[[], None]) -> Iterator[None]:
        """Load while nobody else does on these devices.

        An engine that finds out how much memory it has would take another's growth for its own.
        """
        with ExitStack() as files:
            # All in one order, so that no two wait for each other.
            for path in sorted(self.marks):
                descriptor = _open(path, files)
                if not _lock(descriptor):
                    on_wait()
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield

    def close(self) -> None:
        """Give the devices back; may be called twice."""
        if self.path:
            self.path.unlink(missing_ok=True)
        self.files.close()


class Reservations:
    """The reservations on this machine, as one server sees them.

    Raises:
        ConfigurationError: somebody else has made their folder.
    """

    def __init__(self, server: str, base: Path | None = None) -> None:
        self._server = server
        self._folder = (base or Path(tempfile.gettempdir())) / f"lmi-devices-{os.getuid()}"

    def held(self, model: str = "") -> tuple[Allocation, ...]:
        """Return what is held, except by a model of this server: a new load takes its place."""
        if not self._folder.is_dir():
            return ()
        with self._guarded():
            return self._others(model)

    def take(
        self,
        allocation: Allocation,
        planned_with: tuple[Allocation, ...],
    ) -> Reservation | None:
        """Reserve what a model holds, in place of what was expected of it.

        Args:
            planned_with: what `held` said when it was planned.

        Returns:
            None if others have taken or given back something since.
        """
        with self._guarded():
            if self._others(allocation.model) != planned_with:
                return None
            return self._replace(allocation, is_planned=False)

    def expect(self, allocation: Allocation) -> Reservation:
        """Reserve what a model is to get that will be loaded; its load takes it over."""
        with self._guarded():
            return self._replace(allocation, is_planned=True)

    def plan(
        self, model: str, hardware: Hardware, plan: Callable[[Hardware], EnginePlan]
    ) -> tuple[EnginePlan, Reservation]:
        """Plan a model with what others leave, and reserve what it gets.

        It is planned again if others have taken or given back something meanwhile.
        """
        while True:
            held = self.held(model) if hardware.devices else ()
            made = plan(replace(hardware, allocations=held))
            allocation = Allocation.of(model, made.parallel, hardware.gpus)
            if not allocation.shares:
                return made, Reservation()
            if reservation := self.take(allocation, held):
                return made, reservation

    def _replace(self, allocation: Allocation, *, is_planned: bool) -> Reservation:
        for path, read in self._living():
            if read["is_planned"] and self._is_own(read, allocation.model):
                path.unlink()
        record = asdict(allocation) | {"server": self._server, "is_planned": is_planned}
        descriptor, name = tempfile.mkstemp(_SUFFIX, dir=self._folder)
        devices = (sha256(device.encode()).hexdigest()[:16] for device in allocation.shares)
        marks = tuple(self._folder / f"{device}.loading" for device in devices)
        reservation = Reservation(Path(name), marks)
        reservation.files.callback(os.close, descriptor)
        os.write(descriptor, json.dumps(record).encode())
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return reservation

    def _others(self, model: str) -> tuple[Allocation, ...]:
        living = [read for _, read in self._living() if not self._is_own(read, model)]
        others = [Allocation(model=read["model"], shares=read["shares"]) for read in living]
        return tuple(sorted(others, key=lambda each: (each.model, sorted(each.shares.items()))))

    def _is_own(self, read: dict[str, Any], model: str) -> bool:
        return bool(read["server"] == self._server and read["model"] == model)

    def _living(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Yield file and content of each reservation, and remove those of the dead."""
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
            # One that is given back just now.
            with suppress(FileNotFoundError), ExitStack() as files:
                descriptor = _open(path, files)
                if _lock(descriptor):
                    path.unlink()
                else:
                    yield path, json.loads(path.read_bytes())

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        with ExitStack() as files:
            descriptor = _open(private_folder(self._folder) / _GUARD, files)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield


def _open(path: Path, files: ExitStack) -> int:
    flags = os.O_RDWR | (0 if path.suffix == _SUFFIX else os.O_CREAT)
    descriptor = os.open(path, flags, 0o600)
    files.callback(os.close, descriptor)
    return descriptor


def _lock(descriptor: int) -> bool:
    """Lock a file; return whether nobody else has."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
