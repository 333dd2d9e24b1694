"""The probe says what there is, in a report that is bounded and that sighting.py reads, whatever a library does."""

import ast
import errno
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import ROOT
from tests.proving.program import LONG, PROBE, run
from tests.support.card.library import CannotCompile, library
from tests.support.card.state import MIB, State
from webhook.proving import probe
from webhook.proving.sighting import LONGEST, SeenCards, SeenCuda, SeenFiles, TakenMemory, sighting

DEVICE = Path("/dev/zero")
"""Stands for a GPU's device file: a character device that everybody may open."""


@pytest.fixture
def card(tmp_path: Path) -> State:
    try:
        library()
    except CannotCompile as error:
        pytest.skip(str(error))
    return State(tmp_path / "card", cards=2)


Stub = Callable[[str], dict[str, str]]


@pytest.fixture
def stub(tmp_path: Path) -> Stub:
    """Compile a library that stands for both of NVIDIA's, and return the environment in which it is found."""

    def compiled(source: str) -> dict[str, str]:
        (tmp_path / "stub.c").write_text(source, "utf-8")
        try:
            for name in (probe.NVML, probe.CUDA):
                command = ["cc", "-shared", "-fPIC", "-w", "-o", str(tmp_path / name), str(tmp_path / "stub.c")]
                subprocess.run(command, check=True, capture_output=True)
        except FileNotFoundError:
            pytest.skip("needs a C compiler")
        return {"LD_LIBRARY_PATH": str(tmp_path)}

    return compiled


# With a card


def test_it_names_the_devices_of_nvml_and_cuda(card: State) -> None:
    card.set(1, instances=2)
    _, seen = run(card.environment)
    assert isinstance(seen.nvml, SeenCards)
    assert (seen.nvml.count, seen.nvml.mig) == (4, 2)
    assert [(each.uuid[:3], each.name, each.mib) for each in seen.nvml.devices] == [
        ("GPU", "Pretended Card", 24576),
        ("GPU", "Pretended Card", 24576),
        ("MIG", "Pretended Card", 12288),
        ("MIG", "Pretended Card", 12288),
    ]
    assert seen.cuda == SeenCuda(1, ("01010101-0101-0101-0101-010101010101",), "", "")
    assert seen.memory is None
    assert seen.sees
    assert card.get("peak") == 0


def test_it_makes_a_context_only_if_asked_to(card: State) -> None:
    _, seen = run(card.environment, "--context")
    assert isinstance(seen.cuda, SeenCuda)
    assert seen.cuda.context == "made"


def test_it_takes_no_more_memory_than_asked_and_gives_it_back(card: State) -> None:
    _, seen = run(card.environment, "--memory", "1000")
    assert seen.memory == TakenMemory(1000, 1000, "")
    assert card.get("peak") == 1000 * MIB
    _, again = run(card.environment, "--memory", "24576")
    assert again.memory == TakenMemory(24576, 24576, "")


def test_it_measures_to_the_mib_what_is_left(card: State) -> None:
    card.hold(os.getpid(), 24576 - 777)
    _, seen = run(card.environment, "--memory", "100000")
    assert seen.memory == TakenMemory(100000, 777, "cuMemAlloc_v2: out of memory")


def test_it_asks_for_no_more_than_its_card_has(card: State) -> None:
    _, seen = run(card.environment, "--memory", "100000")
    assert seen.memory == TakenMemory(100000, 24576, "the device has no more")
    assert card.get("peak") == 24576 * MIB


def test_a_framework_takes_no_more_than_asked(card: State, tmp_path: Path) -> None:
    """A pretended PyTorch; `make frameworks` has real ones."""
    package = tmp_path / "packages"
    package.mkdir()
    (package / "torch.py").symlink_to(ROOT / "tests/support/card/pretended_torch.py")
    env = {**card.environment, "PYTHONPATH": str(package)}
    command = [sys.executable, str(PROBE), "--report", "", "--memory", "1000", "--framework", "all"]
    for fraction, got in (("1", 992), ("0.02", 480)):
        env["PYTORCH_ALLOC_CONF"] = f"per_process_memory_fraction:{fraction}"
        ran = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        seen = sighting(ran.stdout)
        assert seen is not None
        stopped = "" if got == 992 else "OutOfMemoryError: CUDA out of memory"
        assert seen.frameworks == {"pytorch": TakenMemory(1000, got, stopped, "2.11.0")}


# Without one


def test_without_libraries_it_is_blind() -> None:
    _, seen = run({})
    if seen.nvml == SeenCards(0, 0, (), f"{probe.NVML} is not there"):  # else this machine has NVIDIA's driver
        assert seen.blind == (isinstance(seen.files, SeenFiles) and not seen.files.usable + seen.files.unclear)
    _, memory = run({}, "--memory", "64", "--framework", "all")
    assert memory.memory is not None
    assert memory.memory.asked == 64


def test_without_a_card_it_is_blind(tmp_path: Path, card: State) -> None:
    none = State(tmp_path / "none", cards=0)
    _, seen = run(none.environment, "--memory", "64")
    assert isinstance(seen.nvml, SeenCards)
    assert seen.nvml.count == 0
    assert seen.cuda == SeenCuda(0, (), "", "cuInit: no device")
    assert seen.memory == TakenMemory(64, 0, "cuInit: error 100")
    unloaded = {**card.environment, "CARD_STATE": str(tmp_path / "missing")}
    _, seen = run(unloaded)
    assert seen.nvml == SeenCards(0, 0, (), "nvmlInit_v2: driver not loaded")


# Libraries that nobody may trust

HOSTILE = r"""
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = COUNT; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)-1L; return 0; }
int nvmlDeviceGetUUID(void *h, char *t, unsigned n) { memset(t, '"', n); return 0; }
int nvmlDeviceGetName(void *h, char *t, unsigned n) {
    for (unsigned i = 0; i < n; i++) t[i] = "\n\\\x1b\xff"[i % 4];
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *h, unsigned long long *m) { m[0] = m[1] = m[2] = -1ull; return 0; }
int nvmlDeviceGetMigMode(void *h, unsigned *a, unsigned *b) { *a = *b = 1; return 0; }
int nvmlDeviceGetMaxMigDeviceCount(void *h, unsigned *n) { *n = -1; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *h, unsigned i, void **p) { *p = (void *)-1L; return 0; }
int cuInit(unsigned f) { return 0; }
int cuDeviceGetCount(int *n) { *n = COUNT; return 0; }
int cuDeviceGet(int *d, int i) { *d = -1; return 0; }
int cuDeviceTotalMem_v2(unsigned long *n, int d) { *n = -1; return 0; }
int cuDeviceGetUuid_v2(char *u, int d) { memset(u, 255, 16); return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)-1L; return 0; }
int cuCtxSetCurrent(void *c) { return 0; }
int cuMemAlloc_v2(void **a, unsigned long n) { *a = (void *)-1L; return 0; }
"""


@pytest.mark.parametrize(("count", "counted"), [("1000", 1000), ("-1", probe.MOST)])
def test_a_thousand_devices_with_hostile_names_fit(stub: Stub, count: str, counted: int) -> None:
    line, seen = run(stub(HOSTILE.replace("COUNT", count)), "--memory", "1000000", "--context")
    assert isinstance(seen.nvml, SeenCards)
    assert (seen.nvml.count, seen.nvml.mig) == (counted + probe.CARDS * probe.PARTS, probe.CARDS * probe.PARTS)
    assert 0 < len(seen.nvml.devices) <= probe.DEVICES
    assert isinstance(seen.cuda, SeenCuda)
    assert seen.cuda.count == (1000 if count == "1000" else 0)
    assert seen.cut
    assert seen.memory == TakenMemory(1000000, 1000000, "")
    assert line.isascii()
    assert line.isprintable()


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("return *(volatile int *)0;", "ended by signal 11"),
        ("for (;;) pause();", "no answer in "),
        ("return 999;", "error 999"),
        ("_exit(0);", "said nothing"),
        ("_exit(7);", "said nothing"),
        ('for (int fd = 3; fd < 20; fd++) write(fd, "{\\n", 2); _exit(0);', "said nothing"),
        ('for (int fd = 3; fd < 20; fd++) write(fd, "7\\n", 2); _exit(0);', "said nothing"),
    ],
)
def test_a_library_that_breaks_shows_nothing(stub: Stub, body: str, error: str) -> None:
    functions = "".join(f"int {name}(void) {{ {body} }}\n" for name in ("nvmlInit_v2", "cuInit"))
    seconds = "1" if "pause" in body else "60"
    _, seen = run(stub(f"#include <unistd.h>\n{functions}"), "--seconds", seconds, "--memory", "64")
    assert isinstance(seen.nvml, str)
    assert isinstance(seen.cuda, str)
    assert error in seen.nvml
    assert error in seen.cuda
    assert not seen.sees
    assert not seen.blind
    assert seen.memory is not None
    assert seen.memory.got == 0
    assert error in seen.memory.stopped


def test_a_library_without_functions_shows_nothing(stub: Stub) -> None:
    _, seen = run(stub("int nothing(void) { return 0; }"))
    assert seen.nvml == "nvmlInit_v2: error -1"
    assert seen.cuda == "cuInit: error -1"


def test_a_file_that_is_no_library_shows_nothing(tmp_path: Path) -> None:
    for name in (probe.NVML, probe.CUDA):
        (tmp_path / name).write_text("not a library", "ascii")
    _, seen = run({"LD_LIBRARY_PATH": str(tmp_path)})
    assert isinstance(seen.nvml, str)
    assert isinstance(seen.cuda, str)


def test_a_driver_that_hangs_while_memory_is_taken_is_left_with_what_it_gave(stub: Stub) -> None:
    hang = "static int calls; if (calls++) for (;;) pause();"
    hanging = HOSTILE.replace("COUNT", "1").replace("unsigned long n) {", f"unsigned long n) {{ {hang}")
    for seconds in ("5", "60", "240"):  # a machine that stands still may need more before the first chunk
        _, seen = run(stub(hanging), "--memory", "1000", "--seconds", seconds)
        if seen.memory is not None and seen.memory.got:
            break
    assert seen.memory is not None
    assert seen.memory.got == probe.CHUNK
    assert "no answer in" in seen.memory.stopped


def test_a_crash_in_a_context_keeps_what_was_listed(stub: Stub) -> None:
    crashing = HOSTILE.replace("COUNT", "1").replace("*c = (void *)-1L; return 0;", "return *(volatile int *)0;")
    _, seen = run(stub(crashing), "--context")
    assert seen.cuda == SeenCuda(1, ("ffffffff-ffff-ffff-ffff-ffffffffffff",), "ended by signal 11", "")


# What is free while the driver refuses more

REFUSING = HOSTILE.replace("COUNT", "1").replace("*a = (void *)-1L; return 0;", "return 2;")


@pytest.mark.parametrize(
    ("mig", "memory", "free"),
    [
        ("*a = *b = 0; return 0;", "m[0] = 40960ull << 20; m[1] = 30000ull << 20;", 30000),
        ("return 3;", "m[0] = 40960ull << 20; m[1] = 30000ull << 20;", 30000),
        ("*a = *b = 1; return 0;", "m[0] = 40960ull << 20; m[1] = 30000ull << 20;", None),
        ("return 15;", "m[0] = 40960ull << 20; m[1] = 30000ull << 20;", None),
        ("*a = *b = 0; return 0;", "m[0] = 40960ull << 20; m[1] = -5ull << 20;", None),
    ],
    ids=["a card without MIG", "a card that cannot", "a part of a card", "a lost card", "more than the card has"],
)
def test_what_is_free_is_that_of_the_whole_card_that_the_container_has(
    stub: Stub, mig: str, memory: str, free: int | None
) -> None:
    source = REFUSING.replace("*a = *b = 1; return 0;", mig).replace("m[0] = m[1] = m[2] = -1ull;", memory)
    _, seen = run(stub(source), "--memory", "1000")
    assert seen.memory == TakenMemory(1000, 0, "cuMemAlloc_v2: out of memory", free=free)


class Answering:
    """A driver that gives these errors for the MiB that it is asked for, and then refuses all."""

    def __init__(self, errors: Iterator[int]) -> None:
        self._errors, self.freed = errors, 0

    def status(self, function: str, *_: object) -> int:
        if function == "cuMemFree_v2":
            self.freed += 1
            return 0
        return next(self._errors, probe.OUT_OF_MEMORY)


@given(
    st.lists(st.sampled_from([0, probe.OUT_OF_MEMORY, probe.OUT_OF_MEMORY, 999]), max_size=probe.TIMES),
    st.lists(st.none() | st.integers(0, 9000), min_size=probe.TIMES + 1, max_size=probe.TIMES + 1),
)
def test_memory_that_a_neighbour_frees_in_between_is_not_free(errors: list[int], answers: list[int | None]) -> None:
    driver, said = Answering(iter(errors)), iter(answers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe, "free", lambda: next(said))
        patch.setattr(time, "sleep", lambda _: None)
        found = probe.spare(driver)  # type: ignore[arg-type]
    known = [each for each in answers if each is not None]
    refused = all(each == probe.OUT_OF_MEMORY for each in errors)
    assert found == (min(known) if refused and len(known) == len(answers) else None)
    assert driver.freed <= 1


def test_no_look_takes_memory_after_one_whose_process_has_not_gone() -> None:
    """A driver may be busy with what a killed process had, so its memory and that of the next would add up."""
    program = """
import argparse, json
from webhook.proving import probe
def taking(*_):
    return lambda until: iter([{"version": "1", "got": 4019, "stopped": ""}])
ended, looks = probe._ended, []
def stuck(child, until):
    ended(child, until)
    looks.append(child)
    return None if len(looks) == STUCK else ""
probe.memory = probe.framework = taking
probe.find_spec = lambda name: True
probe._ended = stuck
options = argparse.Namespace(memory=4019, framework=["all"], context=True, seconds=60)
print(probe.written(probe.look_around(options)))
"""
    for number, took in ((3, []), (4, ["memory"]), (5, ["memory", "pytorch"])):
        command = [sys.executable, "-c", program.replace("STUCK", str(number))]
        ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LONG)
        seen = sighting(ran.stdout)
        assert seen is not None
        assert seen.memory is not None
        looks = {"memory": seen.memory, **seen.frameworks}
        assert [name for name, each in looks.items() if each.got] == took
        assert {each.stopped for each in looks.values() if not each.got} == {
            "an earlier process is stuck in the driver"
        }


# Files


def mount(root: str, point: Path | str) -> str:
    return f"36 35 98:0 {root} {point} rw,noatime master:1 - ext4 /dev/root rw\n"


def test_device_files_are_found_below_dev(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidiactl", "nvidia-caps/nvidia-cap1", "dri/renderD128", "kfd", "davinci0", "null"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(DEVICE)
    (tmp_path / "nvidia1").write_text("", "ascii")  # a plain file is no device
    (tmp_path / "nvidia2").symlink_to("/dev/null")  # what a runtime puts over a file that it hides
    (tmp_path / "nvidia3").symlink_to(tmp_path / "nothing")
    seen = probe.files("", str(tmp_path))
    assert (seen["count"], seen["usable"], seen["unclear"]) == (6, 6, 0)
    assert {str(Path(each).relative_to(tmp_path)) for each in seen["names"]} == {
        "nvidia0", "nvidiactl", "nvidia-caps/nvidia-cap1", "dri/renderD128", "kfd", "davinci0"
    }  # fmt: skip


def test_device_files_are_found_in_a_mount_below_dev(tmp_path: Path) -> None:
    """A volume may be mounted there, such as the node's own /dev."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        Path(folder, "nvidia0").symlink_to(DEVICE)
        assert probe.files(mount("/", folder), str(tmp_path / "nothing"))["names"] == [f"{folder}/nvidia0"]


def test_device_files_are_found_below_mounts(tmp_path: Path) -> None:
    folder = tmp_path / "a way"
    (folder / "dev").mkdir(parents=True)
    (folder / "dev" / "nvidia0").symlink_to(DEVICE)
    (tmp_path / "any name").symlink_to(DEVICE)
    escaped = str(tmp_path).replace(" ", "\\040")
    mounts = mount("/", f"{escaped}/a\\040way") + mount("/dev/nvidia7", f"{escaped}/any\\040name") + "torn line\n"
    seen = probe.files(mounts, str(tmp_path / "nothing"))
    assert seen["names"] == [str(tmp_path / "any name"), str(folder / "dev" / "nvidia0")]
    assert seen["usable"] == 2
    other = mount("/zero", f"{escaped}/any\\040name")
    assert probe.files(other, str(tmp_path / "nothing"))["count"] == 0


@pytest.mark.parametrize(
    ("name", "shown"),
    [("EPERM", (0, 0)), ("EACCES", (0, 1)), ("EBUSY", (1, 0)), ("EIO", (0, 1)), ("ENXIO", (0, 1)), ("ENODEV", (0, 1))],
)
def test_a_refusal_is_told_from_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, shown: tuple[int, int]
) -> None:
    (tmp_path / "nvidia0").symlink_to(DEVICE)

    def failing(*_: object) -> int:
        raise OSError(getattr(errno, name), name)

    monkeypatch.setattr(os, "open", failing)
    seen = probe.files("", str(tmp_path))
    assert (seen["usable"], seen["unclear"]) == shown
    assert seen["count"] == 1


def test_a_file_that_can_only_be_read_is_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia0").symlink_to(DEVICE)
    opened = os.open

    def reading(path: str, mode: int) -> int:
        if mode & os.O_RDWR:
            raise PermissionError(errno.EACCES, "refused")
        return opened(path, mode)

    monkeypatch.setattr(os, "open", reading)
    assert probe.files("", str(tmp_path))["usable"] == 1


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that other users may look into, with the probe in it."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        shutil.copy(PROBE, made)
        yield Path(made)


def as_nobody(program: str) -> Any:
    """Run a program by a user who may only do what everybody may, and return the value that it prints."""
    if os.geteuid():
        pytest.skip("needs root, to run as another user")
    nobody: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": "/"}
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin")
    if python is None or subprocess.run([python, "-c", "1"], check=False, **nobody).returncode:
        pytest.skip("needs a Python that every user may run")
    ran = subprocess.run([python, "-B", "-c", program], capture_output=True, text=True, check=False, **nobody)
    assert ran.returncode == 0, ran.stderr
    return ast.literal_eval(ran.stdout)


@pytest.mark.parametrize(("mode", "shown"), [(0o755, (1, 1, 0)), (0o700, (3, 0, 3)), (0o744, (4, 0, 4))])
def test_a_folder_that_another_user_might_look_into_is_unclear(
    public: Path, mode: int, shown: tuple[int, int, int]
) -> None:
    (public / "nvidia-caps").mkdir()
    (public / "nvidia-caps" / "nvidia-cap1").symlink_to(DEVICE)
    (public / "mounted" / "dev").mkdir(parents=True)
    for folder in ("nvidia-caps", "mounted"):
        (public / folder).chmod(mode)
    files = f"probe.files({mount('/', public / 'mounted')!r}, {str(public)!r})"
    found = as_nobody(f"import sys; sys.path.insert(0, {str(public)!r}); import probe; print({files})")
    assert (found["count"], found["usable"], found["unclear"]) == shown, found


def test_a_file_that_another_user_might_open_is_unclear(public: Path) -> None:
    try:
        os.mknod(public / "nvidia0", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("may make no device file")
    files = f"probe.files('', {str(public)!r})"
    found = as_nobody(f"import sys; sys.path.insert(0, {str(public)!r}); import probe; print({files})")
    assert (found["count"], found["usable"], found["unclear"]) == (1, 0, 1), found


def test_files_are_counted_and_the_usable_ones_named_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1000):
        (tmp_path / f"nvidia{number}").symlink_to(DEVICE)
    monkeypatch.setattr(probe, "opening", lambda path: probe.OPENED if path.endswith("77") else probe.NOT_OPENED)
    seen = probe.files("", str(tmp_path))
    assert (seen["count"], seen["usable"], len(seen["names"])) == (1000, 10, probe.FILES)
    assert all(each.endswith("77") for each in seen["names"][:10])


@given(st.text())
def test_no_list_of_mounts_raises(text: str) -> None:
    [*probe.candidates(text, "/nothing")]


# The report

TEXTS = st.text(max_size=300)
CLEANED = TEXTS.map(lambda text: probe.clean(text, 100))
NUMBERS = st.integers(0, 2**40)
TAKEN = st.fixed_dictionaries({"got": st.just(0), "stopped": CLEANED})
SHORT = TEXTS.map(lambda text: probe.clean(text, 64))
ERROR = st.fixed_dictionaries({"error": CLEANED})


def counting(**parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"count": st.integers(1000, 2**40), **parts}) | ERROR


REPORTS = st.fixed_dictionaries(
    {
        "probe": st.just(1),
        "files": counting(usable=st.just(0), unclear=st.just(0), names=st.lists(SHORT, max_size=probe.FILES)),
        "nvml": counting(
            mig=st.just(0),
            why=CLEANED,
            devices=st.lists(
                st.fixed_dictionaries({"uuid": SHORT, "name": SHORT, "mib": NUMBERS}), max_size=probe.DEVICES
            ),
        ),
        "cuda": counting(uuids=st.lists(SHORT, max_size=probe.DEVICES), why=CLEANED, context=st.none() | CLEANED),
        "memory": st.none() | st.builds(lambda taken: {"asked": 2**24, **taken}, TAKEN),
        "frameworks": st.fixed_dictionaries(
            {}, optional={name: st.builds(lambda t: {"version": '"' * 24, **t}, TAKEN) for name in probe.FRAMEWORKS}
        ),
        "cut": st.just(False),
    }
)


def filled(quote: str) -> dict[str, Any]:
    """Return the longest report there can be."""
    taken = {"got": 2**24, "stopped": quote * 100}
    device = {"uuid": quote * 64, "name": quote * 64, "mib": 2**40}
    return {
        "probe": 1,
        "files": {"count": 2**40, "usable": 2**40, "unclear": 0, "names": [quote * 64] * probe.FILES},
        "nvml": {"count": 2**40, "mig": 2**40, "devices": [device] * probe.DEVICES, "why": quote * 100},
        "cuda": {"count": 2**40, "uuids": [quote * 64] * probe.DEVICES, "context": quote * 100, "why": quote * 100},
        "memory": {"asked": 2**24, **taken},
        "frameworks": {name: {"version": quote * 24, **taken} for name in probe.FRAMEWORKS},
        "cut": False,
    }


@given(REPORTS)
def test_every_report_is_short_and_is_read(report: dict[str, Any]) -> None:
    whole = json.dumps(report)
    text = probe.written(report)
    assert len(text.encode()) <= LONGEST
    seen = sighting(text)
    assert seen is not None
    assert seen.cut == (len(json.dumps(json.loads(whole), separators=(",", ":"))) > LONGEST)


@pytest.mark.parametrize("quote", ['"', "\\", "x"])
def test_the_longest_report_is_cut_and_keeps_its_counts(quote: str) -> None:
    text = probe.written(filled(quote))
    assert len(text) <= LONGEST
    seen = sighting(text)
    assert seen is not None
    assert seen.cut
    assert isinstance(seen.files, SeenFiles)
    assert isinstance(seen.nvml, SeenCards)
    assert seen.files.count == seen.nvml.count == 2**40


@given(TEXTS, st.integers(1, 200))
def test_texts_are_cleaned_and_bounded(text: str, most: int) -> None:
    cleaned = probe.clean(text, most)
    assert cleaned.isascii()
    assert cleaned.isprintable()
    assert len(cleaned) <= most


def test_the_report_is_written_to_a_file_too(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-m", "webhook.proving.probe", "--report", str(tmp_path / "report")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (tmp_path / "report").read_text("ascii") == ran.stdout.rstrip("\n")
    command[-1] = str(tmp_path / "no" / "report")
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0
    assert "No such file" in again.stderr
    assert sighting(again.stdout) is not None


@pytest.mark.parametrize("options", [["--framework", "all"], ["--memory", "-1"], ["--seconds", "0"], ["--report"]])
def test_wrong_options_are_refused(options: list[str]) -> None:
    ran = subprocess.run([sys.executable, str(PROBE), *options], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr.startswith("usage: probe")


def test_it_says_how_it_is_used() -> None:
    ran = subprocess.run([sys.executable, str(PROBE), "--help"], capture_output=True, text=True, check=True)
    assert all(option in ran.stdout for option in ("--memory", "--framework", "--context", "--seconds", "--report"))


# Where it runs


def test_it_is_of_the_standard_library_alone_and_of_old_pythons() -> None:
    tree = ast.parse(PROBE.read_text("utf-8"), feature_version=(3, 9))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {
        name
        for node in imports
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names])
    }
    assert names <= sys.stdlib_module_names | {"__future__", "collections.abc", "importlib.util"}
    assert not any(isinstance(node, ast.ImportFrom) and node.level for node in imports)


def apart(look: str, **names: object) -> Any:
    """Run a look by itself, in a Python that has no threads: the body of a function, with the time to be done."""
    text = "".join(f"probe.{name} = {value!r}\n" for name, value in names.items())
    program = f"from webhook.proving import probe\n{text}{look}\nprint(probe.json.dumps(probe.apart(look, 60)[0]))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=LONG)
    return json.loads(ran.stdout)


def test_a_look_that_says_too_much_is_cut_off() -> None:
    loud = "def look(_):\n    yield {'got': 1}\n    yield {'got': 'x' * 3 * probe.LINE}"
    assert apart(loud) == {"got": 1, "error": "no answer in 60 s"}


def test_an_error_of_python_keeps_what_was_said() -> None:
    assert apart("def look(_):\n    yield {'got': 1}\n    1 / 0") == {
        "got": 1,
        "error": "ZeroDivisionError: division by zero",
    }


def test_libraries_are_found_in_the_folders_of_runtimes_without_a_cache(stub: Stub, tmp_path: Path) -> None:
    stub(HOSTILE.replace("COUNT", "3"))
    name = "libslicewarden-stub.so.1"  # which no machine has, as it may have NVIDIA's
    (tmp_path / probe.CUDA).rename(tmp_path / name)
    assert apart("look = probe.cuda(False)", FOLDERS=("/nothing", str(tmp_path)), CUDA=name)["count"] == 3
    assert apart("look = probe.cuda(False)", FOLDERS=("/nothing",), CUDA=name)["why"] == f"{name} is not there"
