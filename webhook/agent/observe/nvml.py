"""Reads the cards of this node through NVIDIA's management library, NVML. Any answer may be missing.

Source of every call: nvml.h 13, and NVIDIA's binding nvidia-ml-py. `GetUtilizationRates` reports the part of a
period in which any kernel ran; it does not report how many of the card's cores were used.
"""

from collections.abc import Callable, Iterator
from ctypes import c_char_p
from typing import Any, NamedTuple, TypeVar

import pynvml

MIB = 2**20
TRIES = 3
"""Maximum attempts to read a list, which may grow between the call for its length and the call for its contents."""

LONGEST_SAMPLE = 1_000_000
"""Microseconds: NVML's sample periods are 1/6 to 1 s (nvml.h, nvmlDeviceGetUtilizationRates)."""

T = TypeVar("T")


class Unavailable(Exception):
    """NVML cannot be used at all. The text says why."""


class NvmlProcess(NamedTuple):
    """A process on a card: its memory in MiB, None if the driver does not report it, and percent of the SMs' time.

    `sm` is None if the card reports no utilization per process, as under MIG. `mps` is whether it is a client of MPS.
    """

    pid: int
    mib: int | None
    sm: int | None
    mps: bool = False


class CardReading(NamedTuple):
    """One reading of a card or MIG device. Memory is in MiB. None stands for a missing answer.

    `number` is the card's index in NVML; a MIG device adds a colon and its own index. `busy` is the percent of NVML's
    last sample period in which a kernel ran. `errors` are the calls that failed, with the reason. `parent` is the UUID
    of a MIG device's card.
    """

    uuid: str
    number: str
    name: str
    used: int | None
    total: int | None
    busy: int | None
    processes: tuple[NvmlProcess, ...]
    mig: bool = False
    errors: tuple[str, ...] = ()
    parent: str = ""

    @property
    def lost(self) -> bool:
        """Whether the card has fallen off the bus."""
        return any(error.endswith(LOST) for error in self.errors)


LOST = "GPU is lost"


class NvmlEvent(NamedTuple):
    """An event of a card: the card's UUID, and what happened, such as `XID 79`.

    It is `fatal` unless it is an XID that applications cause.
    """

    uuid: str
    what: str
    fatal: bool


APPLICATION = frozenset((13, 31, 43, 45, 68, 109))
"""XIDs that applications cause; the card is healthy afterwards (k8s-device-plugin internal/rm/health.go)."""

DOUBLE_BIT = "double-bit ECC error"

MOST_EVENTS = 100
"""Maximum number of events read at one look; a failing card may repeat an event for a long time."""


class _NvmlDevice(NamedTuple):
    handle: Any
    uuid: str
    number: str
    name: str
    mig: bool
    parent: str = ""


class Cards:
    """A session of NVML with the cards of this node. Raises Unavailable if NVML cannot be used."""

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
        """End the session."""
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            return

    def look(self) -> tuple[CardReading, ...]:
        """Read every card."""
        return tuple(self._read(card) for card in self._cards)

    def events(self) -> tuple[NvmlEvent, ...]:
        """Return the events since the last call. Never waits."""
        found: list[NvmlEvent] = []
        for _ in range(MOST_EVENTS if self._events else 0):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
                uuid = _text(pynvml.nvmlDeviceGetUUID(event.device))
            except pynvml.NVMLError:  # no event is waiting, or the card is lost, which its next reading reports
                break
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                found.append(NvmlEvent(uuid, f"XID {event.eventData}", event.eventData not in APPLICATION))
            elif event.eventType == pynvml.nvmlEventTypeDoubleBitEccError:
                found.append(NvmlEvent(uuid, DOUBLE_BIT, fatal=True))
        return tuple(found)

    def _listen(self) -> Any:
        """Register for the events of all cards. None if no card supports events."""
        wanted = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError
        events, registered = pynvml.nvmlEventSetCreate(), False
        for number in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(number)
                types = wanted & pynvml.nvmlDeviceGetSupportedEventTypes(handle)
                if types:
                    pynvml.nvmlDeviceRegisterEvents(handle, types, events)
                    registered = True
            except pynvml.NVMLError:  # the card is lost, or too old
                continue
        return events if registered else None

    @property
    def whole(self) -> tuple[str, ...]:
        """The UUIDs of the cards without MIG devices."""
        return tuple(card.uuid for card in self._cards if not card.mig)

    def limit(self, uuid: str, cgroup: str, mib: int | None) -> str:
        """Limit the memory of a card that all processes of a cgroup may use together, in MiB; None removes the limit.

        `cgroup` is the full path of the cgroup's folder. Needs root and driver R615 (nvml.h 13.5,
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

    def _found(self) -> Iterator[_NvmlDevice]:
        """Yield the cards. A lost card is left out until NVML is restarted."""
        for number in range(pynvml.nvmlDeviceGetCount()):
            try:
                yield from _devices(number)
            except pynvml.NVMLError:
                continue

    def _read(self, card: _NvmlDevice) -> CardReading:
        errors: list[str] = []
        memory = _ask(errors, pynvml.nvmlDeviceGetMemoryInfo, card.handle)
        total = None if memory is None else memory.total // MIB
        rates = None if card.mig else _ask(errors, pynvml.nvmlDeviceGetUtilizationRates, card.handle)
        busy = rates.gpu if rates is not None and rates.gpu <= _PERCENT else None
        shares = None if busy is None else self._shares(errors, card)
        clients = {
            each.pid for each in _ask(errors, pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, card.handle) or ()
        }
        found: dict[int, NvmlProcess] = {}
        for ask in (
            pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
            pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3,
            pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3,
        ):
            for process in _ask(errors, ask, card.handle) or ():
                mib = None if process.usedGpuMemory is None else process.usedGpuMemory // MIB
                if mib is not None and total is not None and mib > total:
                    continue  # with some drivers, older bindings mix up the fields (nvitop#75)
                sm = None if shares is None else shares.get(process.pid, 0)
                found.setdefault(process.pid, NvmlProcess(process.pid, mib, sm, process.pid in clients))
        return CardReading(
            card.uuid,
            card.number,
            card.name,
            None if memory is None else memory.used // MIB,
            total,
            busy,
            tuple(found.values()),
            card.mig,
            tuple(dict.fromkeys(errors)),
            card.parent,
        )

    def _shares(self, errors: list[str], card: _NvmlDevice) -> dict[int, int] | None:
        """Return each process's latest share of the SMs' time since the last look, in percent; None if unknown.

        Some drivers return samples above 100 percent (nvtop#110); they are dropped.
        """
        since = self._since.get(card.uuid, 0)
        samples = _ask(errors, pynvml.nvmlDeviceGetProcessUtilization, card.handle, since, nothing=())
        if samples is None:
            return None
        newest: dict[int, tuple[int, int]] = {}
        for sample in samples:
            if sample.smUtil <= _PERCENT and sample.timeStamp > max(since, newest.get(sample.pid, (0, 0))[0]):
                newest[sample.pid] = sample.timeStamp, sample.smUtil
        if newest:  # processes are sampled at different times, so the last period is read again
            self._since[card.uuid] = max(since, max(at for at, _ in newest.values()) - LONGEST_SAMPLE)
        return {pid: share for pid, (_, share) in newest.items()}


_PERCENT = 100
_NO_LIMIT = 2**64 - 1
"""NVML_DEVICE_MEMORY_LIMIT_MAX of nvml.h 13.5."""


def _devices(number: int) -> Iterator[_NvmlDevice]:
    """Yield a card, or the MIG devices on it. Raises NVMLError."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(number)
    card, name = _text(pynvml.nvmlDeviceGetUUID(handle)), _text(pynvml.nvmlDeviceGetName(handle))
    instances = list(_instances(handle))
    if not instances:
        yield _NvmlDevice(handle, card, str(number), name, mig=False)
    for index, instance in instances:
        uuid = _text(pynvml.nvmlDeviceGetUUID(instance))
        yield _NvmlDevice(instance, uuid, f"{number}:{index}", f"{name} MIG", mig=True, parent=card)


def _instances(card: Any) -> Iterator[tuple[int, Any]]:
    """Yield the MIG devices of a card, with their indexes; none if MIG is off or not supported."""
    try:
        if not pynvml.nvmlDeviceGetMigMode(card)[0]:
            return
        most = pynvml.nvmlDeviceGetMaxMigDeviceCount(card)
    except pynvml.NVMLError:
        return
    for index in range(most):
        try:
            yield index, pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, index)
        except pynvml.NVMLError:  # no device has this index
            continue


def _ask(errors: list[str], call: Callable[..., T], *arguments: Any, nothing: Any = None) -> T | None:
    """Call NVML, and record a failure with the name of the call. Returns `nothing` if NVML has found nothing."""
    for _ in range(TRIES):
        try:
            return call(*arguments)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_NOT_FOUND:
                return nothing  # type: ignore[no-any-return]
            if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED:
                return None
            if error.value != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                errors.append(f"{call.__name__}: {_why(error)}")
                return None
    errors.append(f"{call.__name__}: the list grew {TRIES} times")
    return None


def _why(error: pynvml.NVMLError) -> str:
    return LOST if error.value == pynvml.NVML_ERROR_GPU_IS_LOST else str(error)


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
