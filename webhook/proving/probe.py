"""What a container sees of GPUs, in one line of JSON: device files, NVML's and CUDA's devices, and memory if asked for.

Any Python from 3.9 on runs this file. It imports the standard library alone, opens NVIDIA's libraries at run time, and
never computes. It looks in several ways: at files, through NVML, through CUDA, and by taking memory. Each look is a
function that runs in a process of its own: a library that crashes or hangs costs only that look, and all memory is
given back. The report (sighting.py reads it) has at most 4,096 bytes, as a termination message may have.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import json
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

VERSION = 1
LONGEST = 4096
FILES, DEVICES = 24, 8
"""How many files and devices are named; all are counted."""
MOST = 4096
"""How many files of a pattern and devices are counted, and how many files are opened."""
MIB = 2**20
SEEN = dict[str, Any]
"""A part of the report."""

# Files

DEVICE_FILES = (
    "nvidia*",  # cards, nvidiactl, nvidia-uvm, nvidia-modeset, switches, vGPUs
    "nvidia*/*",  # nvidia-caps and nvidia-caps-imex-channels
    "nvgpu/*/*",  # Tegra's
    "nvhost-*",
    "nvmap",
    "dxg",  # Windows' subsystem
    "dri/card*",
    "dri/renderD*",
    "kfd",  # AMD's, and Hygon's
    "mkfd",
    "accel/*",  # Intel's, Habana's and others'
    "accel[0-9]*",
    "davinci*",  # Ascend's
    "devmm_svm",
    "hisi_hdc",
    "biren*",
    "cambricon*",
    "gcu*",  # Enflame's
    "iluvatar*",
    "mtgpu*",  # Moore Threads'
    "mxcd",  # MetaX's
    "neuron[0-9]*",
    "vfio/[0-9]*",  # cards for virtual machines
    "vfio/devices/*",
)
"""Names below /dev of the device files of GPUs and their kin."""

NULL = os.makedev(1, 3)
"""The number of /dev/null: kernel Documentation/admin-guide/devices.txt."""

OPENED, UNCLEAR, NOT_OPENED = "usable", "unclear", "refused"

REFUSED = (errno.EPERM, errno.ENOENT)
"""Errors of a file that the container's control group does not let any user open, or that has gone since.

EACCES is none of them: it may come from the file's mode, which another user of the same container passes.
"""


def files(mounts: str, folder: str = "/dev") -> SEEN:
    """Count the device files of GPUs, and those of them that can be opened. `mounts` is the text of mountinfo."""
    found = dict.fromkeys(filter(is_device, candidates(mounts, folder)))
    by: dict[str, list[str]] = {OPENED: [], UNCLEAR: [], NOT_OPENED: []}
    for number, path in enumerate(found):
        by[opening(path) if number < MOST else UNCLEAR].append(path)
    names = [path for paths in by.values() for path in paths]
    return {
        "count": len(names),
        "usable": len(by[OPENED]),
        "unclear": len(by[UNCLEAR]),
        "names": [clean(each, 100) for each in names[:FILES]],
    }


def candidates(mounts: str, folder: str) -> Iterator[str]:
    """Yield paths that may be device files: in the folder, in each mount, and mounts of single files by any name."""
    folders = [folder]
    for line in mounts.splitlines():
        _, _, _, root, point, *_ = [*line.split(" "), *[""] * 5]
        source, point = (each.encode("latin-1", "replace").decode("unicode_escape") for each in (root, point))
        if any(fnmatch(source.removeprefix("/dev").lstrip("/"), pattern) for pattern in DEVICE_FILES):
            yield point
        if point and not f"{point}/".startswith(("/proc/", "/sys/")):
            folders += [point, f"{point.rstrip('/')}/dev"]
    for each in dict.fromkeys(folders):
        if is_closed(each):
            yield each
            continue
        for pattern in DEVICE_FILES:
            yield from map(str, islice(Path(each).glob(pattern), MOST + 1))


def is_device(path: str) -> bool:
    """Whether a path is a character device, or a link to one. Runtimes put /dev/null over what they hide."""
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return is_closed(path)
    return (stat.S_ISCHR(found.st_mode) and found.st_rdev != NULL) or is_closed(path)


def is_closed(path: str) -> bool:
    """Whether a path may be a folder that this user may not look into: what is in it is unclear."""
    try:
        return Path(path).is_dir() and not os.access(path, os.R_OK | os.X_OK)
    except PermissionError:
        return True  # it is in such a folder
    except (OSError, ValueError):
        return False


def opening(path: str) -> str:
    """Open a device file as CUDA does, or at least for reading, as MIG's capabilities are, and close it at once."""
    outcome = NOT_OPENED
    if is_closed(path):
        return UNCLEAR
    for mode in (os.O_RDWR, os.O_RDONLY):
        try:
            os.close(os.open(path, mode | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY))
            return OPENED
        except OSError as error:
            if error.errno not in REFUSED:
                outcome = OPENED if error.errno == errno.EBUSY else UNCLEAR  # busy: another process has it
    return outcome


# NVIDIA's libraries

FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/local/nvidia/lib64",  # GKE's
    "/usr/lib/wsl/lib",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
)
"""Where NVIDIA's runtimes put the driver's libraries. An image without ldconfig has no cache that names them."""

NVML, CUDA = "libnvidia-ml.so.1", "libcuda.so.1"

NO_CARD_NVML = {4: "no permission", 6: "not found", 9: "driver not loaded", 17: "blocked by the system"}
"""Errors of nvmlInit where a process can reach no card (nvml.h, nvmlReturn_t)."""

NO_CARD_CUDA = {34: "stub library", 100: "no device"}
"""Errors of cuInit where a process can reach no card (cuda.h, CUresult)."""

OUT_OF_MEMORY = 2


class NotThere(Exception):
    """There is no such library in this container."""


class Unanswered(Exception):
    """A library answered with an error that does not say what the container can reach."""


class Library:
    """A library whose functions return an error number, 0 for success. Raises NotThere and OSError."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._library = _loaded(name)

    def status(self, function: str, *arguments: Any) -> int:
        """Call a function, and return its error; -1 if the library lacks the function."""
        try:
            called = getattr(self._library, function)
        except AttributeError:
            return -1
        return int(called(*arguments))

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function that has to succeed. Raises Unanswered."""
        error = self.status(function, *arguments)
        if error:
            raise Unanswered(f"{function}: error {error}" if error > 0 else f"{self.name} has no {function}")


def _loaded(name: str) -> Any:
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        for folder in FOLDERS:
            path = Path(folder, name)
            if path.exists():
                return ctypes.CDLL(str(path))
        if name in str(error) and "No such file" in str(error):
            raise NotThere(f"{name} is not there") from error
        raise


def nvml(_: float) -> Iterator[SEEN]:
    """List NVML's cards and MIG devices."""
    seen: SEEN = {"count": 0, "mig": 0, "devices": [], "why": ""}
    try:
        library = Library(NVML)
    except NotThere as missing:
        yield {**seen, "why": str(missing)}
        return
    error = library.status("nvmlInit_v2")
    if error in NO_CARD_NVML:
        yield {**seen, "why": f"nvmlInit_v2: {NO_CARD_NVML[error]}"}
        return
    if error:
        raise Unanswered(f"nvmlInit_v2: error {error}")
    count = ctypes.c_uint()
    library.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
    seen["count"] = min(count.value, MOST)
    for index in range(min(seen["count"], CARDS)):
        card = ctypes.c_void_p()
        error = library.status("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(card))
        if error:
            _add(seen["devices"], {"uuid": "", "name": f"error {error}", "mib": 0})
            continue
        _add(seen["devices"], _device(library, card))
        for part in _mig_devices(library, card):
            seen["count"] += 1
            seen["mig"] += 1
            _add(seen["devices"], _device(library, part))
    yield seen


CARDS, PARTS = 64, 16
"""How many cards are asked for their MIG devices, and how many of these."""


def _mig_devices(library: Library, card: ctypes.c_void_p) -> Iterator[ctypes.c_void_p]:
    now, pending, most = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
    if library.status("nvmlDeviceGetMigMode", card, ctypes.byref(now), ctypes.byref(pending)) or now.value != 1:
        return
    if library.status("nvmlDeviceGetMaxMigDeviceCount", card, ctypes.byref(most)):
        return
    for index in range(min(most.value, PARTS)):
        part = ctypes.c_void_p()
        if not library.status("nvmlDeviceGetMigDeviceHandleByIndex", card, index, ctypes.byref(part)):
            yield part


def _device(library: Library, handle: ctypes.c_void_p) -> SEEN:
    memory = (ctypes.c_ulonglong * 3)()
    error = library.status("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
    return {
        "uuid": _said(library, "nvmlDeviceGetUUID", handle),
        "name": _said(library, "nvmlDeviceGetName", handle),
        "mib": 0 if error else min(memory[0] // MIB, 2**40),
    }


def _said(library: Library, function: str, handle: ctypes.c_void_p) -> str:
    text = ctypes.create_string_buffer(96)
    error = library.status(function, handle, text, len(text))
    return f"error {error}" if error else clean(text.value.decode("utf-8", "replace"), 64)


def _add(devices: list[SEEN], device: SEEN) -> None:
    if len(devices) < DEVICES:
        devices.append(device)


def cuda(context: bool) -> Callable[[float], Iterator[SEEN]]:
    """Return the function that lists CUDA's devices, and creates a context on the first one if `context`."""

    def look(_: float) -> Iterator[SEEN]:
        seen: SEEN = {"count": 0, "uuids": [], "context": None, "why": ""}
        try:
            library = Library(CUDA)
        except NotThere as missing:
            yield {**seen, "why": str(missing)}
            return
        error = library.status("cuInit", 0)
        if error in NO_CARD_CUDA:
            yield {**seen, "why": f"cuInit: {NO_CARD_CUDA[error]}"}
            return
        if error:
            raise Unanswered(f"cuInit: error {error}")
        count = ctypes.c_int()
        library.call("cuDeviceGetCount", ctypes.byref(count))
        seen["count"] = max(0, min(count.value, MOST))
        for index in range(min(seen["count"], DEVICES)):
            raw = (ctypes.c_ubyte * 16)()
            if not library.status("cuDeviceGetUuid_v2", ctypes.byref(raw), _ordinal(library, index)):
                text = bytes(raw).hex()
                seen["uuids"].append("-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])))
        yield seen  # a context may crash or hang
        if context and seen["count"]:
            try:
                with_context(library)
                yield {**seen, "context": "made"}
            except Unanswered as failed:
                yield {**seen, "context": clean(str(failed), 100)}

    return look


def _ordinal(library: Library, index: int) -> ctypes.c_int:
    device = ctypes.c_int()
    library.call("cuDeviceGet", ctypes.byref(device), index)
    return device


def with_context(library: Library) -> None:
    """Make a context on the first device. It ends with the process."""
    context = ctypes.c_void_p()
    library.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), _ordinal(library, 0))
    library.call("cuCtxSetCurrent", context)


def first_device() -> Library:
    """Return CUDA, initialised. Raises NotThere and Unanswered."""
    library = Library(CUDA)
    library.call("cuInit", 0)
    return library


# Memory

CHUNK = 256
"""MiB that are asked for at once, and halved where the driver has no more."""


def memory(bound: int) -> Callable[[float], Iterator[SEEN]]:
    """Return the function that allocates MiB from the driver up to a bound, and frees them."""

    def look(until: float) -> Iterator[SEEN]:
        library = first_device()
        with_context(library)
        taken: list[ctypes.c_size_t] = []
        got, chunk, stopped = 0, CHUNK, ""
        most = min(bound, total())
        while got < most and chunk and not stopped:
            if time.monotonic() > until:
                stopped = LATE
                break
            size, address = min(chunk, most - got), ctypes.c_size_t()
            error = library.status("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size * MIB))
            if not error:
                taken.append(address)
                got += size
                yield {"got": got, "stopped": ""}
            elif error == OUT_OF_MEMORY:
                chunk = size // 2
            else:
                stopped = f"cuMemAlloc_v2: error {error}"
        short = got < bound and not stopped
        if short:
            stopped = "the device has no more" if got == most else "cuMemAlloc_v2: out of memory"
        seen: SEEN = {"got": got, "stopped": stopped}
        yield seen
        if short:
            seen["free"] = spare(library)
        for address in taken:
            library.status("cuMemFree_v2", address)
        yield seen

    return look


TIMES = 5
"""How often the driver is asked again, and NVML before and after each time."""


def spare(library: Library) -> int | None:
    """Return the MiB that are free on the card while the driver refuses one more; None if one of both is not so.

    A neighbour may free memory between a refusal and NVML's answer. So both are asked several times, and the least of
    NVML's answers counts.
    """
    least = free()
    for _ in range(TIMES):
        address = ctypes.c_size_t()
        error = library.status("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(MIB))
        if not error:
            library.status("cuMemFree_v2", address)
        now = free()
        if error != OUT_OF_MEMORY or least is None or now is None:
            return None
        least = min(least, now)
        time.sleep(0.01)
    return least


NO_MIG = (-1, 3, 13)
"""Errors of nvmlDeviceGetMigMode of a card or a driver without MIG: the function is lacking, or not supported."""


def free() -> int | None:
    """Return the MiB that are free on the only card that NVML names.

    None if it names others, or does not say. Also if the card is divided by MIG: then the answer is that of the whole
    card, and not of the part that the container has.
    """
    memory, count, card = (ctypes.c_ulonglong * 3)(), ctypes.c_uint(), ctypes.c_void_p()
    now, pending = ctypes.c_uint(), ctypes.c_uint()
    try:
        library = Library(NVML)
        library.call("nvmlInit_v2")
        library.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        library.call("nvmlDeviceGetHandleByIndex_v2", 0, ctypes.byref(card))
        library.call("nvmlDeviceGetMemoryInfo", card, ctypes.byref(memory))
        error = library.status("nvmlDeviceGetMigMode", card, ctypes.byref(now), ctypes.byref(pending))
    except (NotThere, Unanswered, OSError):
        return None
    whole = error in NO_MIG or (not error and not now.value)
    return memory[1] // MIB if whole and count.value == 1 and memory[1] <= memory[0] < 2**60 else None


LATE = "no time left"

PIECE = 16
"""MiB that are asked of a framework at once, and never less: PyTorch would take 20 MiB of the card for 8."""


class Taking(NamedTuple):
    """A framework's version, and what allocates so many bytes with it, or raises an error of the framework."""

    version: str
    take: Callable[[int], object]


def pytorch(_: int) -> Taking:
    """PyTorch's allocator."""
    torch = import_module("torch")
    return Taking(torch.__version__, lambda size: torch.empty(size, dtype=torch.uint8, device="cuda"))


NEW_FRACTION, FRACTION = "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"
PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"


def jax(bound: int) -> Taking:
    """JAX's pool, which might take most of the card at once. A device array from a host array compiles nothing."""
    name = NEW_FRACTION if os.environ.get(NEW_FRACTION) else FRACTION
    os.environ[name] = str(min(float(os.environ.get(name) or 0.75), bound / total()))
    os.environ[PREALLOCATE] = "false"
    numpy, library = import_module("numpy"), import_module("jax")
    (device, *_) = library.devices("cuda")
    host = numpy.zeros(PIECE * MIB, numpy.uint8)
    return Taking(library.__version__, lambda size: library.device_put(host[:size], device).block_until_ready())


def tensorflow(bound: int) -> Taking:
    """TensorFlow's pool, which may take the whole card at once."""
    library = import_module("tensorflow")
    (device, *_) = library.config.list_physical_devices("GPU")
    capped = import_module("tensorflow.python.eager.context").context().config.gpu_options
    fraction = capped.per_process_gpu_memory_fraction
    if not fraction or fraction * total() > bound:
        limit = library.config.LogicalDeviceConfiguration(memory_limit=bound)
        library.config.set_logical_device_configuration(device, [limit])

    def take(size: int) -> object:
        with library.device("GPU:0"):
            return library.raw_ops.Empty(shape=[size], dtype=library.uint8)

    return Taking(library.__version__, take)


def cupy(_: int) -> Taking:
    """CuPy's default pool."""
    library = import_module("cupy")
    return Taking(library.__version__, lambda size: library.empty(size, dtype=library.uint8))


def total() -> int:
    """Return the MiB of the first device."""
    library, size = first_device(), ctypes.c_size_t()
    library.call("cuDeviceTotalMem_v2", ctypes.byref(size), _ordinal(library, 0))
    return max(1, size.value // MIB)


FRAMEWORKS: dict[str, tuple[str, Callable[[int], Taking]]] = {
    "pytorch": ("torch", pytorch),
    "jax": ("jax", jax),
    "tensorflow": ("tensorflow", tensorflow),
    "cupy": ("cupy", cupy),
}
"""The module and the allocator of each framework."""


def framework(name: str, bound: int) -> Callable[[float], Iterator[SEEN]]:
    """Return the function that allocates MiB with a framework up to a bound."""

    def look(until: float) -> Iterator[SEEN]:
        source = FRAMEWORKS[name][1](bound)
        held: list[object] = []
        seen: SEEN = {"version": clean(str(source.version), 24), "got": 0, "stopped": ""}
        while seen["got"] + PIECE <= bound and not seen["stopped"]:
            yield seen
            if time.monotonic() > until:
                seen["stopped"] = LATE
                break
            try:
                held.append(source.take(PIECE * MIB))
                seen["got"] += PIECE
            except Exception as error:
                seen["stopped"] = reason(error)
        yield seen

    return look


# Looks


def apart(look: Callable[[float], Iterator[SEEN]], seconds: float) -> tuple[SEEN, bool]:
    """Run a look in a process of its own, and return its last report, with the `error` that ended it early.

    Also return whether its process has ended, and so freed its memory: one may be stuck in a driver. The look has to
    end a little before the process is killed, so that it can free the memory itself.
    """
    end = time.monotonic() + seconds
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _say(look, end - min(1, seconds / 4), seconds, writer)
    os.close(writer)
    last, done = _heard(reader, end)
    os.close(reader)
    if not done:
        os.kill(child, signal.SIGKILL)
    ended = _ended(child, max(end, time.monotonic() + 1))
    try:
        seen: SEEN = dict(json.loads(last or b"{}"))
    except (ValueError, TypeError):  # a library has written into the pipe
        seen = {}
    if not done:
        seen.setdefault("error", f"no answer in {seconds:.0f} s")
    elif ended:
        seen.setdefault("error", f"ended by {ended}")
    elif not seen:
        seen["error"] = "said nothing"
    return seen, ended is not None


def _say(look: Callable[[float], Iterator[SEEN]], until: float, seconds: float, writer: int) -> None:
    """Write each report of a look in a line, and end this process. Output of libraries is dropped."""
    last: SEEN = {}
    try:
        for ending in (signal.SIGALRM, signal.SIGTERM):
            signal.signal(ending, signal.SIG_DFL)
        signal.alarm(int(seconds) + 2)  # if nobody is left to kill it
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        for seen in look(until):
            last = dict(seen)
            _write(writer, last)
    except BaseException as error:
        _write(writer, {**last, "error": reason(error)})
    finally:
        os._exit(0)


def _write(writer: int, seen: SEEN) -> None:
    data = json.dumps(seen).encode("ascii") + b"\n"
    while data:
        data = data[os.write(writer, data) :]


LINE = 1 << 16
"""The most bytes of a line that a look writes."""


def _heard(reader: int, end: float) -> tuple[bytes, bool]:
    """Return the last line that was written, and whether the writer was done in time."""
    last = rest = b""
    while True:
        left = end - time.monotonic()
        if left <= 0 or len(rest) > LINE or not select.select([reader], [], [], left)[0]:
            return last, False
        part = os.read(reader, LINE)
        if not part:
            return last, True
        *lines, rest = (rest + part).split(b"\n")
        last = lines[-1] if lines else last


def _ended(child: int, until: float) -> str | None:
    """Wait for a process, and return the signal that ended it; None if it has not gone, and is left to the kernel."""
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else ""
        time.sleep(0.005)
    return None


# The report


def clean(text: str, most: int) -> str:
    """Return a text as printable ASCII, cut to a length."""
    text = " ".join(text[: 4 * most].split())
    return "".join(each if " " <= each <= "~" else "?" for each in text)[:most]


def reason(error: BaseException) -> str:
    """Return an error in one line."""
    if isinstance(error, (Unanswered, NotThere)):
        return clean(str(error), 100)
    return clean(f"{type(error).__name__}: {error}", 100)


def written(report: SEEN) -> str:
    """Return the report in one line of at most LONGEST bytes. The longest list loses its last item until it fits."""
    lists = [part[key] for part in report.values() if isinstance(part, dict) for key in LISTS if key in part]
    while len(text := json.dumps(report, separators=(",", ":"))) > LONGEST:
        report["cut"] = True
        max(lists, key=lambda each: len(json.dumps(each))).pop()
    return text


LISTS = ("names", "devices", "uuids")


def look_around(options: argparse.Namespace) -> SEEN:
    """Run each look, and return the report. Each gets an equal share of the time that is left.

    After a look whose process has not ended, none takes memory, because that process may still have some.
    """
    wanted = FRAMEWORKS if "all" in options.framework else dict.fromkeys(options.framework)
    installed = [name for name in FRAMEWORKS if name in wanted and find_spec(FRAMEWORKS[name][0])]
    bound = options.memory
    looks: dict[str, Callable[[float], Iterator[SEEN]]] = {
        "files": lambda _: (files(each) for each in (_mountinfo(),)),
        "nvml": nvml,
        "cuda": cuda(options.context),
    }
    if bound:
        looks["memory"] = memory(bound)
        looks.update({name: framework(name, bound) for name in installed})
    end = time.monotonic() + options.seconds
    seen: dict[str, SEEN] = {}
    stuck = False
    for name, look in looks.items():
        if stuck and name not in ("files", "nvml", "cuda"):
            seen[name] = {"error": "an earlier process is stuck in the driver"}
            continue
        share = (end - time.monotonic()) / (len(looks) - len(seen))
        seen[name], gone = apart(look, max(share, 0.1))
        stuck = stuck or not gone
    report: SEEN = {"probe": VERSION}
    for name in ("files", "nvml", "cuda"):
        report[name] = seen[name] if "error" not in seen[name] else {"error": seen[name]["error"]}
    if "uuids" in seen["cuda"]:  # then an error is that of the context
        report["cuda"] = {**seen["cuda"], "context": seen["cuda"].get("error", seen["cuda"]["context"])}
        report["cuda"].pop("error", None)
    report["memory"] = {"asked": bound, **_taken(seen["memory"])} if bound else None
    report["frameworks"] = {
        name: {"version": seen[name].get("version", ""), **_taken(seen[name])} for name in installed if bound
    }
    report["cut"] = any(
        part.get("count", 0) > len(part[key]) for part in report.values() if isinstance(part, dict)
        for key in LISTS if key in part
    )  # fmt: skip
    return report


def _taken(seen: SEEN) -> SEEN:
    known = {"free": seen["free"]} if seen.get("free") is not None else {}
    return {"got": seen.get("got", 0), "stopped": seen.get("error") or seen.get("stopped", ""), **known}


def _mountinfo() -> str:
    with Path("/proc/self/mountinfo").open(encoding="utf-8", errors="replace") as opened:
        text = opened.read(MIB)
        if opened.read(1):
            raise Unanswered("there are too many mounts to look into")
        return text


TERMINATION_LOG = Path("/dev/termination-log")
"""The file whose text the kubelet puts into the status of the pod, and which every user may write."""


def main() -> int:
    """Look, and report on standard output and in a file."""
    parser = argparse.ArgumentParser(
        prog="probe", description="Say what this container sees of GPUs. Computes nothing."
    )
    parser.add_argument("--memory", type=int, default=0, metavar="MIB", help="take so much memory of the first device")
    parser.add_argument(
        "--framework", action="append", default=[], choices=[*FRAMEWORKS, "all"], help="take --memory with it as well"
    )
    parser.add_argument("--context", action="store_true", help="make a context on the first device")
    parser.add_argument("--seconds", type=int, default=60, help="the most time for everything; 60 if not given")
    parser.add_argument("--report", metavar="FILE", help=f"write the report here too; {TERMINATION_LOG} if it is there")
    options = parser.parse_args()
    if options.framework and not options.memory:
        parser.error("--framework needs --memory, which bounds what is taken")
    if not 0 <= options.memory <= 2**24 or not 1 <= options.seconds <= 3600:
        parser.error("--memory is at most 16 TiB, and --seconds is from 1 to 3600")
    for ending in (signal.SIGALRM, signal.SIGTERM):  # without a handler the first process of a container ignores both
        signal.signal(ending, lambda *_: os._exit(1))
    signal.alarm(options.seconds + 30)
    text = written(look_around(options))
    file = Path(options.report) if options.report else TERMINATION_LOG
    if options.report or (options.report is None and file.exists()):
        try:
            file.write_text(text, "ascii")
        except OSError as error:
            print(f"{file}: {error.strerror}", file=sys.stderr)
    print(text, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
