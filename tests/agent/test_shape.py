"""The agent's shape: what decides touches nothing, and each outside thing has one home."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from webhook import agent

FOLDER = Path(agent.__file__).parent
FILES = sorted(FOLDER.rglob("*.py"))

DECIDES = (
    "actions",
    "limits/dead",
    "limits/over",
    "limits/taint",
    "observe/look",
    "../cgroups/places",
    "observe/pods",
    "observe/sight",
    "observe/view",
    "turns/plan",
)
"""Values in, values out: what a test can try ten thousand times."""

OUTSIDE = frozenset(
    {"ctypes", "fcntl", "http", "io", "mmap", "os", "pathlib", "pynvml", "shutil", "signal", "socket", "subprocess"}
    | {"threading", "time", "urllib", "urllib3"}
)

HOMES = {
    "pynvml": {"nvml"},
    "ctypes": {"nvml"},
    "signal": {"enforce"},
    "webhook.cluster.watch": {"node"},
}
"""Which modules import what belongs to the outside."""


def imported(file: Path) -> Iterator[str]:
    """The modules that a file imports, but for those that it needs for types alone."""
    tree = ast.parse(file.read_text("utf-8"))
    skipped = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.If) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize("name", DECIDES)
def test_what_decides_imports_nothing_that_reads_writes_waits_or_tells_the_time(name: str) -> None:
    used = {module.partition(".")[0] for module in imported(FOLDER / f"{name}.py")}
    assert not used & OUTSIDE
    calls = {
        node.func.id
        for node in ast.walk(ast.parse((FOLDER / f"{name}.py").read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & {"open", "print", "input", "exec", "eval"}


@pytest.mark.parametrize("module", HOMES)
def test_each_outside_thing_has_its_homes(module: str) -> None:
    assert {file.stem for file in FILES if module in set(imported(file))} == HOMES[module]
