"""Each part of `python -m bench.gpu` on the pretended card: nobody can take their figures for measured ones."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import pynvml
import pytest

from bench.gpu import caps, contention, idle, limits, mps, nvml, readings, shim, truth
from bench.gpu.__main__ import EVERY, _seen
from bench.gpu.containers import Containers, Program, containers
from bench.gpu.tables import DRY, Measured, Unmeasurable, about, table
from tests import ROOT
from tests.support.card import clock
from tests.support.card.library import SOURCES, library
from tests.support.card.state import NO_SAMPLES, State
from webhook.agent.observe.nvml import Cards

ROUNDS = round(contention.STEP * 1e9)
"""The rounds of a step: the pretended card does a thousand in a microsecond, however busy the machine is."""


@pytest.fixture
def bench(card: State, made: Containers, monkeypatch: pytest.MonkeyPatch) -> Iterator[nvml.Card]:
    """The card as bench/gpu finds it, where there is a cgroup v2."""
    del made
    monkeypatch.setenv("LD_LIBRARY_PATH", card.environment["LD_LIBRARY_PATH"])
    yield nvml.first()
    pynvml.nvmlInit()  # the binding may end only what it began
    for _ in range(2):  # this one's, and that of bench.gpu
        pynvml.nvmlShutdown()


def body(written: str) -> list[list[str]]:
    lines = [line for line in written.splitlines() if line.startswith("|")]
    _, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return rows


def test_the_first_line_and_every_row_of_a_dry_run_say_that_it_is_none(card: State, bench: nvml.Card) -> None:
    assert about(bench).startswith(
        f"**{DRY}**; Pretended Card, 24,576 MiB (0 in use), driver 615.10, CUDA 13.2; Linux "
    )
    assert "Python 3." in about(bench)
    assert "Slicewarden " in about(bench)
    card.set(limits=1)
    modules: list[ModuleType] = [truth, limits]
    for module in modules:
        rows = body(table(bench, module.run(bench)))
        assert rows
        assert {row[0] for row in rows} == {"dry run"}


def test_what_containers_take_is_reported_in_its_place_and_gone_with_them(bench: nvml.Card) -> None:
    found = truth.run(bench)
    assert found.good
    assert [(row[1], row[2], row[3], row[5]) for row in found.rows] == [
        ("256 + 512", "768", "0", "reported in its place"),
        ("1024", "1024", "0", "reported in its place"),
        ("128", "128", "0", "reported in its place"),
    ]


def test_memory_that_is_reported_in_another_place_is_found_out(
    bench: nvml.Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.agent.observe.processes.places.place", lambda _: None)
    found = truth.run(bench)
    assert (found.good, [row[5] for row in found.rows]) == (False, ["**wrong**", "**wrong**", "reported in its place"])


def test_a_limit_is_tried_where_the_driver_has_one_and_found_out_where_it_does_not_hold(
    card: State, bench: nvml.Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = limits.run(bench)
    assert (found.good, found.rows[0][5]) == (True, "not tried: Not Supported")
    assert found.notes == (limits.UNTRIED,)
    card.set(limits=1)
    found = limits.run(bench)
    assert found.good
    assert found.notes == (
        "a limit of 2048 MiB is reported as 2048 MiB",
        "a limit of 1024 MiB for a container that has taken more is accepted; then NVML reports 2112 MiB, "
        "2 of 2 processes run, and 0 of them got 64 MiB more",
        limits.UNTRIED,
    )
    assert found.rows[0][:3] == ("2048", "2048", "2048")
    assert found.rows[0][4:] == ("64 more", "enforced, and for nobody else")
    assert card.limits() == {}
    with monkeypatch.context() as patched:
        patched.setattr(Program, "alive", property(lambda _: int("")))
        ended = "a limit of 1024 MiB for a container that has taken more ends its processes"
        assert (limits.run(bench).good, limits.run(bench).notes[1]) == (True, ended)
        assert card.limits() == {}
    monkeypatch.setattr(Cards, "limit", lambda *_: "")
    found = limits.run(bench)
    assert (found.good, found.rows[0][5]) == (False, "**not enforced**")


# Where no cgroup can be written to


@pytest.fixture
def no_cgroup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.gpu.containers.mount", lambda: None)


def test_without_a_cgroup_what_programs_take_is_checked_by_their_pids(bench: nvml.Card, no_cgroup: None) -> None:
    del no_cgroup
    found = truth.run(bench)
    assert found.good
    assert {row[0] for row in found.rows} == {"no container"}
    assert found.notes == ["no cgroup v2 that this user may write to: by the PID alone"]


def test_without_a_cgroup_turns_are_given_by_signals(
    card: State, bench: nvml.Card, no_cgroup: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    del no_cgroup
    monkeypatch.setattr(contention, "rounds_of", lambda _: ROUNDS)
    with clock.running(card):
        found = contention.run(bench, [2], 0.5)
    assert found.good
    assert found.notes[0].startswith("FirstCome by SIGSTOP")


# What a real card does


def test_a_first_launch_that_compiles_is_not_taken_for_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = [0.0], list[str]()

    class Compiles:
        """A million rounds a second, after 5 s for the first launch."""

        def ask(self, line: str) -> int:
            asked.append(line)
            now[0] += int(line.split()[2]) / 1e6 + 5 * (len(asked) == 1)
            return 0

    monkeypatch.setattr(contention, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert contention.rounds_of(cast("Program", Compiles())) == round(contention.STEP * 1e6)


def test_the_rounds_of_a_step_are_those_of_a_card_that_has_compiled(card: State, made: Containers) -> None:
    """With its second, the first launch of 1,024 rounds would make a step of 20."""
    card.set(compile=1_000_000)
    with clock.running(card):
        assert contention.rounds_of(made.run(None)) > 100


def test_work_that_is_too_short_to_be_contended_is_no_measurement(
    card: State, bench: nvml.Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contention, "rounds_of", lambda _: 1)
    monkeypatch.setattr(contention, "STEP", 10 * contention.STEP)  # fewer steps, so less work for the same 600 s
    with clock.running(card):
        found = contention.run(bench, [2], 600)
    assert not found.good
    assert found.rows[0][-1].startswith("**too short")


def test_contexts_are_there_before_any_program_computes(
    card: State, bench: nvml.Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    del bench
    order: list[str] = []
    ask = Program.ask

    def recorded(one: Program, line: str) -> int:
        order.append(line)
        return ask(one, line)

    monkeypatch.setattr(Program, "ask", recorded)
    card.set(context=100_000)
    with clock.running(card), containers() as made:
        programs = contention._started(made, 2)
        contention._ends(programs, "steps 3 1000000")
    assert order[:4] == ["take 256", "take 256", "steps 1 1", "steps 1 1"]
    assert order[4:] == ["steps 3 1000000"] * 2


def test_nvmls_use_is_read_for_loops_that_leave_the_card_partly_idle(
    card: State, bench: nvml.Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readings, "rounds_of", lambda _: ROUNDS)
    with clock.running(card):
        found = readings.run(bench, 0.5)
    assert [row[0].partition(" (")[0] for row in found.rows] == [
        "a look at 3 programs",
        *(f"busy of a loop with a gap of {gap} %" for gap in readings.GAPS),
    ]
    assert all(int(row[4]) > 0 for row in found.rows)


# What the agent takes for idle


PACE = 0.02
"""Seconds of the wall in place of one of a card that takes time."""


def verdicts(found: Measured) -> dict[tuple[str, str], str]:
    return {(row[0], row[1]): row[-1] for row in found.rows}


def test_whoever_copies_or_sets_memory_is_seen_in_use_and_whoever_waits_is_idle(bench: nvml.Card) -> None:
    found = idle.run(bench, PACE)
    seen = verdicts(found)
    assert seen.pop((idle.RESTS.what, "nothing")).startswith("in use for ")  # this card keeps its last samples
    assert seen == {
        (idle.WAITS.what, "nothing"): "idle",
        **{(doing.what, "nothing"): "in use" for doing in idle.LOOPS},
        (idle.WAITS.what, "all of these"): "not known",
        **{(doing.what, "all of these"): "in use" for doing in idle.LOOPS},
    }
    assert found.good
    assert found.notes[0] == "no kernels: the card does all work at once"
    assert found.notes[-1] == idle.UNTRIED


def test_work_that_no_look_shows_is_found_out_and_of_short_kernels_only_shown(
    bench: nvml.Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "rounds_of", lambda _: ROUNDS)  # no clock runs, so no kernel takes any time
    monkeypatch.setattr(idle, "LOOPS", (idle.Doing("computes unseen", "steps 9 1", True),))
    found = idle.run(bench, PACE)
    assert not found.good
    seen = verdicts(found)
    assert seen["computes unseen", "nothing"] == "**taken for idle**"
    short = [verdict for (_, beside), verdict in seen.items() if beside == "the other kernels"]
    assert short == ["taken for idle"] * len(idle.LENGTHS) * len(idle.EVERY)


def test_a_program_that_waits_and_is_seen_in_use_is_found_out(
    bench: nvml.Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "WAITS", idle.WAITS._replace(command="fill"))
    found = idle.run(bench, PACE)
    assert not found.good
    assert verdicts(found)[idle.WAITS.what, "nothing"] == "**in use**"


def test_a_driver_without_samples_shows_neither_work_nor_idleness(card: State, bench: nvml.Card) -> None:
    card.set(missing=NO_SAMPLES)
    found = idle.run(bench, PACE)
    assert not found.good
    seen = verdicts(found)
    assert seen.pop((idle.RESTS.what, "nothing")).startswith("not in use after ")
    assert seen.pop((idle.WAITS.what, idle.ALONE)) == "**not known**"
    assert set(seen.values()) == {"not known"}


def test_programs_that_break_are_rows_and_the_others_are_judged(
    card: State, bench: nvml.Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_ = idle.LOOPS
    breaks, fails = idle.Doing("breaks", "take nothing", True), idle.Doing("fails", "take 1000000", True)
    monkeypatch.setattr(idle, "LOOPS", (breaks, fails, first, first._replace(what="has no memory")))
    card.set(reserved=card.get("total") - 4 * idle.MIB * 2**20)
    found = idle.run(bench, PACE)
    assert not found.good
    seen = verdicts(found)
    assert seen["breaks", "nothing"] == seen["breaks", "all of these"] == "**broke**: it ended with 1"
    assert seen["fails", "nothing"] == "**broke**: CUDA error 2"
    assert seen["has no memory", ""] == "**broke**: the card has not enough free memory"
    assert seen[idle.WAITS.what, "all of these"] == "not known"
    assert seen[first.what, "nothing"] == seen[first.what, "all of these"] == "in use"


CONTROL = """#!/bin/sh
[ "$1" = -d ] && exit 0
while read -r word first second; do
    case $word in
    set_default_device_pinned_mem_limit) echo "${second%M}" > "$CUDA_MPS_PIPE_DIRECTORY/limit" ;;
    quit) rm -f "$CUDA_MPS_PIPE_DIRECTORY/limit" ;;
    esac
done
"""


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH with a stand-in for the control program of MPS."""
    folder = tmp_path / "bin"
    folder.mkdir()
    file = folder / mps.CONTROL
    file.write_text(CONTROL)
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return file


def test_a_client_of_mps_is_refused_at_its_limit_and_reported_as_one(bench: nvml.Card, control: Path) -> None:
    found = mps.run(bench, 4)
    assert found.good
    assert found.rows[0] == ("6144", "6144", "6144", "yes", "refused at its limit, and within its allowance")
    control.write_text("#!/bin/sh\ncat >/dev/null\n")  # a daemon that limits nothing
    found = mps.run(bench, 4)
    assert not found.good


def test_without_the_control_program_mps_is_not_measured(bench: nvml.Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unmeasurable, match="no nvidia-cuda-mps-control"):
        mps.run(bench, 4)


# Frameworks


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with a `torch` that uses the pretended card, and a CuPy that breaks."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    shutil.copy(SOURCES / "pretended_torch.py", packages / "torch.py")
    (packages / "cupy.py").write_text("raise ImportError('libnvrtc.so.13: cannot open shared object file')\n")
    return folder / "bin" / "python"


def test_a_framework_that_breaks_is_a_row_and_the_others_are_measured(bench: nvml.Card, python: Path) -> None:
    found = caps.run(bench, [str(python)], 4)
    assert not found.good
    assert [(row[0], row[1], row[4], row[5]) for row in found.rows] == [
        ("pytorch", "2.11.0", "0", "each stopped at its cap, all fit"),  # the pretended card has no contexts
        ("cupy", "", "", "**broke**: ImportError: libnvrtc.so.13: cannot open shared object file"),
    ]


def test_the_shim_is_tried_with_and_without_a_flag_that_skips_it(bench: nvml.Card, python: Path) -> None:
    found = shim.run(bench, [str(python)], 4)
    assert found.good
    assert [(row[0], row[4]) for row in found.rows] == [
        ("python", "stopped at its cap"),
        ("python -I", "not capped, as the page says"),
    ]


@pytest.mark.thorough
def test_a_dry_run_of_all_does_each_part_and_writes_down_what_it_saw(
    card: State, bench: nvml.Card, python: Path, control: Path, tmp_path: Path
) -> None:
    del bench
    settings = "contention.COUNTS, contention.ALONE, readings.SECONDS, idle.PACE = (2,), 0.5, 0.5, 0.1"
    program = (
        f"import sys; from bench.gpu import contention, idle, readings; {settings}; "
        "from bench.gpu.__main__ import main; sys.exit(main())"
    )
    file = tmp_path / "seen.json"
    path = f"{control.parent}{os.pathsep}{os.environ['PATH']}"
    with clock.running(card):
        ran = subprocess.run(
            [sys.executable, "-c", program, "all", "--python", str(python), "--json", str(file)],
            cwd=ROOT,
            env={**card.environment, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
    seen = json.loads(file.read_text())
    assert seen["pretended"]
    assert seen["about"].startswith(f"**{DRY}**")
    assert [part["part"] for part in seen["parts"]] == [*EVERY]
    bad = {part["part"] for part in seen["parts"] if not part["good"]}
    # CuPy is broken. A busy machine finds too few rounds, and gives a program too little time for NVML to show its use.
    assert {"caps"} <= bad <= {"caps", "contention", "idle"}, ran.stdout
    assert {row[0] for row in body(ran.stdout) if row[0] not in ("", "---")} == {"dry run"}
    assert ran.returncode == 1


def test_one_command_installs_wheels_that_were_carried_along_and_measures(
    card: State, made: Containers, tmp_path: Path
) -> None:
    del made  # limits are of containers, so they need a cgroup v2
    card.set(limits=1)
    wheels, results, programs = (tmp_path / name for name in ("wheels", "results", "programs"))
    for folder in (wheels, results, programs):
        folder.mkdir()
    (wheels / "slicewarden-0.1.0-py3-none-any.whl").touch()
    stand_in = f'#!/bin/sh\n[ "$2" = pip ] && exec echo "$@" >{tmp_path}/pip\nexec {sys.executable} "$@"\n'
    (programs / "python3").write_text(stand_in)
    (programs / "python3").chmod(0o755)
    environment = {**card.environment, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    command = ["sh", "bench/gpu/lease.sh", str(wheels), str(results), "limits", "--slices", "2"]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (tmp_path / "pip").read_text().rstrip().endswith(f"{wheels}/slicewarden-0.1.0-py3-none-any.whl")
    assert ran.stdout == (results / "bench.md").read_text()
    (seen,) = json.loads((results / "bench.json").read_text())["parts"]
    assert (seen["part"], seen["good"], seen["rows"][0][-1]) == ("limits", True, "enforced, and for nobody else")


def test_a_part_that_breaks_ends_no_other_one(
    bench: nvml.Card, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(_: nvml.Card) -> Measured:
        raise OSError("the card is gone")

    found = _seen(bench, "limits", breaks)
    assert (found["part"], found["good"], found["error"]) == ("limits", False, "OSError: the card is gone")
    assert capsys.readouterr().err == "limits: nothing measured: OSError: the card is gone\n"
    monkeypatch.setenv("PATH", "/nowhere")
    assert _seen(bench, "mps", lambda card: mps.run(card, 4))["good"]  # it is not possible here


def test_without_a_card_it_says_so_in_one_line_and_measures_nothing() -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library().parent), "CARD_STATE": "/missing"}
    command = [sys.executable, "-m", "bench.gpu", "truth"]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "nothing measured: there is no NVIDIA GPU here (an NVIDIA driver, but no card)\n"


@pytest.mark.parametrize("which", ["caps", "truth"])
def test_without_a_card_and_without_the_binding_it_says_so_in_one_line(tmp_path: Path, which: str) -> None:
    ran = _without_binding(tmp_path, which, CARD_STATE="/missing")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "nothing measured: there is no NVIDIA GPU here (an NVIDIA driver, but no card)\n"


def test_with_a_card_and_without_the_binding_it_says_how_to_install_it(card: State, tmp_path: Path) -> None:
    ran = _without_binding(tmp_path, "truth", **card.environment)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        "nothing measured: nvidia-ml-py is not installed; install it in a clone: pip install '.[agent]'\n"
    )


def _without_binding(tmp_path: Path, which: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run the bench where importing pynvml fails as it does without the extra."""
    (tmp_path / "pynvml.py").write_text("raise ModuleNotFoundError(\"No module named 'pynvml'\", name='pynvml')\n")
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    given = {**os.environ, "LD_LIBRARY_PATH": str(library().parent), **environment, "PYTHONPATH": path}
    command = [sys.executable, "-P", "-m", "bench.gpu", which]
    return subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False)


def test_the_limits_are_tried_in_one_command_and_nobody_can_take_its_table_for_a_measurement(
    card: State, bench: nvml.Card, tmp_path: Path
) -> None:
    del bench
    card.set(limits=1)
    written = tmp_path / "limits.json"
    command = [sys.executable, "-m", "bench.gpu", "limits", "--json", str(written)]
    done = subprocess.run(command, cwd=ROOT, env=card.environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"**{DRY}**")
    assert "enforced, and for nobody else" in done.stdout
    assert limits.UNTRIED in done.stdout
    value = json.loads(written.read_text("utf-8"))
    assert (value["pretended"], [part["part"] for part in value["parts"]]) == (True, ["limits"])
