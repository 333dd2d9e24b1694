"""Asks NVIDIA's management library about the cards of this node. An answer may be missing; nothing is decided here.

Source of every call: nvml.h 13, and NVIDIA's binding nvidia-ml-py. `GetUtilizationRates` is the part of a period in
which any kernel ran, and not a part of the card's cores.
"""

from collections.abc import Callable, Iterator
from ctypes import c_char_p
from typing import Any, NamedTuple, TypeVar

import pynvml

MIB = 2**20
TRIES = 3
"""How often a list is asked for while processes start between the question for its length and the one for itself."""

LONGEST_SAMPLE = 1_000_000
"""Microseconds: NVML's sample periods are 1/6 to 1 s (nvml.h, nvmlDeviceGetUtilizationRates)."""

T = TypeVar("T")


class Unavailable(Exception):
    """NVML cannot be used at all. The text says why, and what to do."""


class Taken(NamedTuple):
    """The use of a card by a process: MiB, or None where the driver does not say; and percent of the SMs' time.

    `sm` is None where the card tells no utilisation by process, as under MIG. `mps` says that it is a client of MPS.
    """

    pid: int
    mib: int | None
    sm: int | None
    mps: bool = False


class Reading(NamedTuple):
    """A card's answers at one moment. Memory is in MiB. None stands for an answer that is missing.

    `number` is the card's number in NVML; behind a colon follows that of a MIG device. `busy` is the percent of NVML's
    last sample period in which a kernel ran. `faults` are the calls that failed, with the reason. `parent` is the UUID
    of the card of a MIG device.
    """

    uuid: str
    number: str
    name: str
    used: int | None
    total: int | None
    busy: int | None
    taken: tuple[Taken, ...]
    mig: bool = False
    faults: tuple[str, ...] = ()
    parent: str = ""

    @property
    def lost(self) -> bool:
        """Whether the card has fallen off its bus."""
        return any(fault.endswith(LOST) for fault in self.faults)


LOST = "GPU is lost"


class Trouble(NamedTuple):
    """An event of NVML about a card: its UUID, and what happened, such as `XID 79`.

    It is `fatal` unless the XID is an application's error.
    """

    uuid: str
    what: str
    fatal: bool


APPLICATION = frozenset((13, 31, 43, 45, 68, 109))
"""XIDs after which the card is in order: errors of applications (k8s-device-plugin internal/rm/health.go)."""

DOUBLE_BIT = "double-bit ECC error"

MOST_EVENTS = 100
"""Events that are read at one look; a card that breaks down may tell the same for a long time."""


class _Card(NamedTuple):
    handle: Any
    uuid: str
    number: str
    name: str
    mig: bool
    parent: str = ""


class Cards:
    """The cards of this node, from the start of NVML to its end. Raises Unavailable where there is no NVML."""

    def __init__(self) -> None:
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise Unavailable(_why(error)) from error
        self._since: dict[str, int] = {}
        try:
            self._cards = tuple(self._found())
            self.driver = _text(pynvml.nvmlSystemGetDriverVersion())
            self._events = self._listen()
        except pynvml.NVMLError as error:
            self.close()
            raise Unavailable(_why(error)) from error

    def close(self) -> None:
        """End the use of NVML."""
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            return

    def look(self) -> tuple[Reading, ...]:
        """Ask every card."""
        return tuple(self._read(card) for card in self._cards)

    def troubles(self) -> tuple[Trouble, ...]:
        """Return what has happened to the cards since the last question. Never waits."""
        found: list[Trouble] = []
        for _ in range(MOST_EVENTS if self._events else 0):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
                uuid = _text(pynvml.nvmlDeviceGetUUID(event.device))
            except pynvml.NVMLError:  # there is none, or the card is lost, as its reading says
                break
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                found.append(Trouble(uuid, f"XID {event.eventData}", event.eventData not in APPLICATION))
            elif event.eventType == pynvml.nvmlEventTypeDoubleBitEccError:
                found.append(Trouble(uuid, DOUBLE_BIT, fatal=True))
        return tuple(found)

    def _listen(self) -> Any:
        """Register for the events of all cards. None where none of them has any."""
        wanted = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError
        events, registered = pynvml.nvmlEventSetCreate(), False
        for number in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(number)
                types = wanted & pynvml.nvmlDeviceGetSupportedEventTypes(handle)
                if types:
                    pynvml.nvmlDeviceRegisterEvents(handle, types, events)
                    registered = True
            except pynvml.NVMLError:  # too old a card, or one that is lost
                continue
        return events if registered else None

    @property
    def whole(self) -> tuple[str, ...]:
        """The UUIDs of the cards that are no MIG devices."""
        return tuple(card.uuid for card in self._cards if not card.mig)

    def limit(self, uuid: str, cgroup: str, mib: int | None) -> str:
        """Set the memory that all processes of a cgroup may take of a card together; None takes the limit away.

        `cgroup` is the full path of a folder under the mount of cgroups. Needs root and driver R615 (nvml.h 13.5,
        nvmlDeviceSetMemoryLimits_v1). Returns why it failed, or an empty text.
        """
        handles = [card.handle for card in self._cards if card.uuid == uuid and not card.mig]
        if not handles or not hasattr(pynvml, "nvmlDeviceSetMemoryLimits_v1"):
            return "Not Supported"
        limits = pynvml.c_nvmlSetMemoryLimits_v1_t()
        limits.nameSpace = c_char_p(cgroup.encode())
        limits.softLimit, limits.hardLimit = 0, _NO_LIMIT if mib is None else mib * MIB
        try:
            pynvml.nvmlDeviceSetMemoryLimits_v1(handles[0], limits)
        except pynvml.NVMLError as error:
            return _why(error)
        return ""

    def _found(self) -> Iterator[_Card]:
        """Yield the cards. One that is lost is left out until NVML is started anew."""
        for number in range(pynvml.nvmlDeviceGetCount()):
            try:
                yield from _devices(number)
            except pynvml.NVMLError:
                continue

    def _read(self, card: _Card) -> Reading:
        faults: list[str] = []
        memory = _ask(faults, pynvml.nvmlDeviceGetMemoryInfo, card.handle)
        total = None if memory is None else memory.total // MIB
        rates = None if card.mig else _ask(faults, pynvml.nvmlDeviceGetUtilizationRates, card.handle)
        busy = rates.gpu if rates is not None and rates.gpu <= _PERCENT else None
        shares = None if busy is None else self._shares(faults, card)
        clients = {
            each.pid for each in _ask(faults, pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, card.handle) or ()
        }
        taken: dict[int, Taken] = {}
        for ask in (
            pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
            pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3,
            pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3,
        ):
            for process in _ask(faults, ask, card.handle) or ():
                mib = None if process.usedGpuMemory is None else process.usedGpuMemory // MIB
                if mib is not None and total is not None and mib > total:
                    continue  # older bindings shuffle the fields of some drivers' answers (nvitop#75)
                sm = None if shares is None else shares.get(process.pid, 0)
                taken.setdefault(process.pid, Taken(process.pid, mib, sm, process.pid in clients))
        return Reading(
            card.uuid,
            card.number,
            card.name,
            None if memory is None else memory.used // MIB,
            total,
            busy,
            tuple(taken.values()),
            card.mig,
            tuple(dict.fromkeys(faults)),
            card.parent,
        )

    def _shares(self, faults: list[str], card: _Card) -> dict[int, int] | None:
        """Return each process's newest share of the SMs' time since the last look, in percent; None if unknown.

        Some drivers give samples of no process, or above 100 (nvtop#110); those are dropped.
        """
        since = self._since.get(card.uuid, 0)
        samples = _ask(faults, pynvml.nvmlDeviceGetProcessUtilization, card.handle, since, nothing=())
        if samples is None:
            return None
        newest: dict[int, tuple[int, int]] = {}
        for sample in samples:
            if sample.smUtil <= _PERCENT and sample.timeStamp > max(since, newest.get(sample.pid, (0, 0))[0]):
                newest[sample.pid] = sample.timeStamp, sample.smUtil
        if newest:  # samples of different processes differ in time, so those of the last period are asked for again
            self._since[card.uuid] = max(since, max(at for at, _ in newest.values()) - LONGEST_SAMPLE)
        return {pid: share for pid, (_, share) in newest.items()}


_PERCENT = 100
_NO_LIMIT = 2**64 - 1
"""NVML_DEVICE_MEMORY_LIMIT_MAX of nvml.h 13.5."""


def _devices(number: int) -> Iterator[_Card]:
    """Yield a card, or the MIG devices on it. Raises NVMLError."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(number)
    card, name = _text(pynvml.nvmlDeviceGetUUID(handle)), _text(pynvml.nvmlDeviceGetName(handle))
    instances = list(_instances(handle))
    if not instances:
        yield _Card(handle, card, str(number), name, mig=False)
    for place, instance in instances:
        uuid = _text(pynvml.nvmlDeviceGetUUID(instance))
        yield _Card(instance, uuid, f"{number}:{place}", f"{name} MIG", mig=True, parent=card)


def _instances(card: Any) -> Iterator[tuple[int, Any]]:
    """Yield the MIG devices of a card, with their places; none if MIG is off, or unknown to the card."""
    try:
        if not pynvml.nvmlDeviceGetMigMode(card)[0]:
            return
        most = pynvml.nvmlDeviceGetMaxMigDeviceCount(card)
    except pynvml.NVMLError:
        return
    for place in range(most):
        try:
            yield place, pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, place)
        except pynvml.NVMLError:  # there is none at this place
            continue


def _ask(faults: list[str], call: Callable[..., T], *arguments: Any, nothing: Any = None) -> T | None:
    """Ask, and note a failure under the name of the call. `nothing` is returned where there is nothing to tell."""
    for _ in range(TRIES):
        try:
            return call(*arguments)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_NOT_FOUND:
                return nothing  # type: ignore[no-any-return]
            if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED:
                return None
            if error.value != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                faults.append(f"{call.__name__}: {_why(error)}")
                return None
    faults.append(f"{call.__name__}: the list grew {TRIES} times")
    return None


def _why(error: pynvml.NVMLError) -> str:
    return LOST if error.value == pynvml.NVML_ERROR_GPU_IS_LOST else str(error)


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
