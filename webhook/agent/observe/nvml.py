"""Reads the cards of this node through NVIDIA's management library, NVML. Any part of an answer may be missing.

Source of every call: nvml.h 13, and NVIDIA's binding nvidia-ml-py. `GetUtilizationRates` reports the part of a period
in which any kernel ran; it does not report how many of the card's cores were used.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from ctypes import c_char_p
from typing import Any, NamedTuple, TypeVar

import pynvml

from webhook.text.words import shown

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

    `sm` is None if the card reports no utilization per process, as under MIG. `mps` is whether the process is a client
    of MPS. `other` is whether it used the card's memory, or its video encoder or decoder; None without samples.
    """

    pid: int
    mib: int | None
    sm: int | None
    mps: bool = False
    other: bool | None = False


class CardReading(NamedTuple):
    """One reading of a card or MIG device. Memory is in MiB. None stands for a missing answer.

    `number` is the card's index in NVML; a MIG device adds a colon and its own index. `busy` is the percent of NVML's
    last sample period in which a kernel ran. `errors` are the calls that failed, with the reason. `parent` is the UUID
    of a MIG device's card. `opened` is whether NVML gave a handle of the card. If it did not, `uuid` is `index N`.
    `kept` is the part of `used` that the driver keeps for itself, which no program can have.
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
    opened: bool = True
    kept: int | None = None

    @property
    def lost(self) -> bool:
        """Whether the card no longer answers on the bus."""
        return any(error.endswith(LOST) for error in self.errors)


LOST = "GPU is lost"

INDEX = "index "
"""The beginning of the name of a card whose UUID is unknown, because NVML cannot open it."""


class NvmlEvent(NamedTuple):
    """An event of a card: the card's UUID, and the event in words, such as `XID 79`.

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
    error: str = ""
    """Why the card cannot be opened; then it has no handle."""


class _Samples(NamedTuple):
    """The samples of a card's processes at the last look, in NVML's time of day (microseconds).

    `newest` is the newest stamp. `stamps` has the last stamp of each process.
    """

    newest: int = 0
    stamps: Mapping[int, int] = {}


def nvmlDeviceGetMemoryInfo_v2(handle: Any) -> Any:  # noqa: N802 - NVML's name
    """Ask for a card's memory and the driver's own part of it (R510 and newer). Raises NVMLError."""
    return pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)


class Cards:
    """A session of NVML with the cards of this node. Raises Unavailable if NVML cannot be used.

    `missing` has the functions of NVML that were called and that this driver lacks. Only their answers are missing.
    """

    def __init__(self) -> None:
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise Unavailable(_why(error)) from error
        self._samples: dict[str, _Samples] = {}
        self.missing: set[str] = set()
        self._events: Any = None
        try:
            self._cards = tuple(_found())
            self.driver = _text(pynvml.nvmlSystemGetDriverVersion())
            self._events = self._listen()
        except pynvml.NVMLError as error:
            self.close()
            raise Unavailable(_why(error)) from error

    def close(self) -> None:
        """End the session."""
        with suppress(pynvml.NVMLError):
            if self._events:
                pynvml.nvmlEventSetFree(self._events)
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()

    def look(self) -> tuple[CardReading, ...]:
        """Read every card."""
        return tuple(self._read(card) for card in self._cards)

    @property
    def stale(self) -> bool:
        """Whether the cards or MIG devices of the node have changed since the start of the session."""
        try:
            return [(each.number, each.uuid) for each in _found()] != [(each.number, each.uuid) for each in self._cards]
        except pynvml.NVMLError:
            return True

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
        """Register for the events of all cards. None if the driver or no card supports events."""
        wanted = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError
        try:
            events, registered = pynvml.nvmlEventSetCreate(), False
        except pynvml.NVMLError:
            self.missing.add("nvmlEventSetCreate")
            return None
        for number in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(number)
                types = wanted & pynvml.nvmlDeviceGetSupportedEventTypes(handle)
                if types:
                    pynvml.nvmlDeviceRegisterEvents(handle, types, events)
                    registered = True
            except pynvml.NVMLError:  # the card is lost, or too old
                continue
        if registered:
            return events
        with suppress(pynvml.NVMLError):
            pynvml.nvmlEventSetFree(events)
        return None

    @property
    def whole(self) -> tuple[str, ...]:
        """The UUIDs of the cards without MIG devices."""
        return tuple(card.uuid for card in self._cards if not card.mig and not card.error)

    def limit(self, uuid: str, cgroup: str, mib: int | None) -> str:
        """Limit the memory of a card that all processes of a cgroup may use together, in MiB; None removes the limit.

        Returns why it failed, or an empty text. `cgroup` is the full path of the cgroup's folder. The call needs root
        and driver R615 (nvml.h 13.5, nvmlDeviceSetMemoryLimits_v1).
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

    def limit_of(self, uuid: str, cgroup: str) -> int | None:
        """Return the hard limit of a cgroup on a card in MiB, UNLIMITED if it has none; None if it cannot be read.

        Never tested on a card (nvml.h 13.5, nvmlDeviceGetMemoryLimits_v1).
        """
        handles = [card.handle for card in self._cards if card.uuid == uuid and not card.mig]
        if not handles or not hasattr(pynvml, "nvmlDeviceGetMemoryLimits_v1"):
            return None
        try:
            return _limit_of(handles[0], cgroup)
        except pynvml.NVMLError:
            return None

    @property
    def mig(self) -> bool:
        """Whether a card has MIG devices."""
        return any(card.mig for card in self._cards)

    @property
    def has_limits(self) -> bool | None:
        """Whether the driver can limit the memory of cgroups on all whole cards; None if that is not known."""
        handles = [card.handle for card in self._cards if not card.mig and not card.error]
        found: bool | None = None
        if hasattr(pynvml, "nvmlDeviceGetMemoryLimits_v1"):
            for handle in handles:
                try:
                    _limit_of(handle, _ROOT)
                except pynvml.NVMLError as error:
                    return False if error.value in _LACKS else None
                found = True
        return found

    def _read(self, card: _NvmlDevice) -> CardReading:
        if card.error:
            return CardReading(card.uuid, card.number, "", None, None, None, (), errors=(card.error,), opened=False)
        errors: list[str] = []
        memory = self._ask(errors, pynvml.nvmlDeviceGetMemoryInfo, card.handle)
        total = None if memory is None else memory.total // MIB
        # nothing depends on it, so a failure is no reason to doubt the reading
        reserved = None if memory is None else self._ask([], nvmlDeviceGetMemoryInfo_v2, card.handle)
        rates = None if card.mig else self._ask(errors, pynvml.nvmlDeviceGetUtilizationRates, card.handle)
        busy = rates.gpu if rates is not None and rates.gpu <= _PERCENT else None
        clients = self._ask(errors, pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, card.handle) or ()
        listed = [
            *(self._ask(errors, pynvml.nvmlDeviceGetComputeRunningProcesses_v3, card.handle) or ()),
            *(self._ask(errors, pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3, card.handle) or ()),
            *clients,
        ]
        of_mps = {each.pid for each in clients}
        odd = set[int]()
        shares = None if busy is None else self._shares(errors, card, {each.pid for each in listed}, odd)
        found: dict[int, NvmlProcess] = {}
        for process in listed:
            mib = None if process.usedGpuMemory is None else process.usedGpuMemory // MIB
            if mib is not None and total is not None and mib > total:
                continue  # with some drivers, older bindings mix up the fields (nvitop#75)
            sample = shares.get(process.pid) if shares else None
            sm = None if shares is None else sample.smUtil if sample else 0
            other = None if process.pid in odd else bool(sample) and _other(sample)
            found.setdefault(process.pid, NvmlProcess(process.pid, mib, sm, process.pid in of_mps, other))
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
            kept=None if reserved is None else reserved.reserved // MIB,
        )

    def _shares(
        self, errors: list[str], card: _NvmlDevice, pids: Collection[int], odd: set[int]
    ) -> dict[int, Any] | None:
        """Return each process's latest sample since the last look; None if unknown. Its `smUtil` is in percent.

        Some drivers return samples above 100 percent, or of processes that are not on the card (nvtop#110). They are
        dropped, and `odd` gets the processes of the former. NVML stamps samples with the time of day, which may be set
        back. So if no sample is new, all are read once, and one with another stamp than before is new.
        """
        before = self._samples.get(card.uuid, _Samples())
        samples = self._newest(errors, card, max(before.newest - LONGEST_SAMPLE, 0), pids, odd)
        if samples is None:
            return None
        new = {pid: each for pid, each in samples.items() if before.stamps.get(pid) != each.timeStamp}
        newest = before.newest
        if not new and newest:
            every = self._newest(errors, card, 0, pids, set()) or {}
            new = {pid: each for pid, each in every.items() if before.stamps.get(pid) != each.timeStamp}
            newest = 0
        if new:  # processes are sampled at different times, so the last period is read again
            newest = max(newest, *(each.timeStamp for each in new.values()))
            stamps = {pid: stamp for pid, stamp in before.stamps.items() if pid in pids}
            self._samples[card.uuid] = _Samples(newest, stamps | {pid: each.timeStamp for pid, each in new.items()})
        else:
            newest = before.newest
        current = {pid: each for pid, each in samples.items() if newest - LONGEST_SAMPLE < each.timeStamp <= newest}
        return current | new

    def _newest(
        self, errors: list[str], card: _NvmlDevice, since: int, pids: Collection[int], odd: set[int]
    ) -> dict[int, Any] | None:
        """Return the newest possible sample of each of these processes after a time; None if there are none by NVML."""
        samples: Sequence[Any] | None = self._ask(
            errors, pynvml.nvmlDeviceGetProcessUtilization, card.handle, since, nothing=()
        )
        if samples is None:
            return None
        found: dict[int, Any] = {}
        for sample in samples:
            if sample.pid not in pids or sample.timeStamp <= since:
                continue
            if sample.smUtil > _PERCENT:
                odd.add(sample.pid)
            else:
                found[sample.pid] = max(found.get(sample.pid, sample), sample, key=lambda each: each.timeStamp)
        return found

    def _ask(self, errors: list[str], call: Callable[..., T], *arguments: Any, nothing: Any = None) -> T | None:
        """Call NVML, and record a failure with the name of the call. Returns `nothing` if NVML has found nothing."""
        for _ in range(TRIES):
            try:
                return call(*arguments)
            except pynvml.NVMLError as error:
                match error.value:
                    case pynvml.NVML_ERROR_NOT_FOUND:
                        return nothing  # type: ignore[no-any-return]
                    case pynvml.NVML_ERROR_NOT_SUPPORTED:
                        return None
                    case pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                        self.missing.add(call.__name__)
                        return None
                    case pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                        continue
                errors.append(f"{call.__name__}: {_why(error)}")
                return None
        errors.append(f"{call.__name__}: the list grew {TRIES} times")
        return None


def _other(sample: Any) -> bool | None:
    """Whether a process used something else of a card than the SMs; None if that is not possible by NVML."""
    shares = sample.memUtil, sample.encUtil, sample.decUtil
    return None if max(shares) > _PERCENT else any(shares)


_PERCENT = 100
_NO_LIMIT = 2**64 - 1
"""NVML_DEVICE_MEMORY_LIMIT_MAX of nvml.h 13.5."""

UNLIMITED = _NO_LIMIT // MIB
"""The same in MiB."""


_ROOT = "/sys/fs/cgroup"
"""A cgroup of which every node can be asked."""

_LACKS = (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NOT_SUPPORTED)


def _limit_of(handle: Any, cgroup: str) -> int:
    """Return the hard limit of a cgroup on a card in MiB. Raises NVMLError."""
    limits = pynvml.c_nvmlGetMemoryLimits_v1_t()
    limits.nameSpace = c_char_p(cgroup.encode())
    pynvml.nvmlDeviceGetMemoryLimits_v1(handle, limits)
    return int(limits.hardLimit) // MIB


def _found() -> Iterator[_NvmlDevice]:
    """Yield the cards, and the MIG devices on them. A card that cannot be opened has an error. Raises NVMLError."""
    for number in range(pynvml.nvmlDeviceGetCount()):
        try:
            yield from _devices(number)
        except pynvml.NVMLError as error:
            why = f"nvmlDeviceGetHandleByIndex: {_why(error)}"
            yield _NvmlDevice(None, f"{INDEX}{number}", str(number), "", mig=False, error=why)


def _devices(number: int) -> list[_NvmlDevice]:
    """Return a card, or the MIG devices on it. Raises NVMLError."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(number)
    card, name = _text(pynvml.nvmlDeviceGetUUID(handle)), _name(handle)
    return [
        _NvmlDevice(
            instance,
            _text(pynvml.nvmlDeviceGetUUID(instance)),
            f"{number}:{index}",
            f"{name} MIG",
            mig=True,
            parent=card,
        )
        for index, instance in _instances(handle)
    ] or [_NvmlDevice(handle, card, str(number), name, mig=False)]


def _name(handle: Any) -> str:
    """Return a card's model in printable ASCII. Raises NVMLError."""
    try:
        return shown(_text(pynvml.nvmlDeviceGetName(handle)), quotes=False)
    except UnicodeDecodeError:  # from the binding, which decodes the name itself
        return "unknown"


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


def _why(error: pynvml.NVMLError) -> str:
    return LOST if error.value == pynvml.NVML_ERROR_GPU_IS_LOST else str(error)


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
