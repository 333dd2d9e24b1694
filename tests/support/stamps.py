"""Keeps stamps: which suites have passed on this machine with the inputs that they have now.

`python -m tests.support.stamps SUITE` ends with 0 if the suite was, and with 1 if it has to run; `--green` records it.
The digest covers every file that Git does not ignore, except three classes that a suite does not read: folders of tests
and benchmarks of which it neither imports a module nor names the folder, modules of tests of other folders, and pages.
A file of these classes counts, too, if a module of the suite names it, by its file name or by an import.
The README always counts, since it goes into the package. So a file that nobody thought of counts as an input.
The digest also covers the programs and packages that a suite runs with.

A suite that reads a file which its stamp does not cover gets none. Only what pytest's own processes read is seen, from
collection on; what programs read that they start is covered by the rules above.
"""

import ast
import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache as cached
from pathlib import Path

from tests import ROOT, SUITES
from tests.support import checkouts
from tests.support.go_programs import cache

TARGETS: Mapping[str, tuple[str, ...]] = {
    "e2e": ("e2e", "conformance", "oracles", "evaluator", "chart", "monitoring"),
    **{name: (name,) for name in ("browser", "faults", "frameworks", "image", "node")},
}
"""The folders of tests by the target of `make` that runs them."""
UNSTAMPED = frozenset({"release", "signing"})
"""Folders of tests without a stamp: the one reads the whole tree, the other only runs in `make nightly`."""
FOLDERS = SUITES | {"fuzz"}
"""Folders below `tests` that are read only by who imports from them."""
PROGRAMS = (
    "buildah",
    "busybox",
    "chromium",
    "debootstrap",
    "gcc",
    "git",
    "go",
    "iptables",
    "nft",
    "openssl",
    "unshare",
)
"""Programs of the machine that suites run."""
VARIABLES = ("CI", "KUBEBUILDER_ASSETS", "KUBE_LINTER", "GROWTH", "GOFLAGS")
"""Variables of the environment that change how a suite runs."""
OWN = "tests/support/stamps.py"
_MODULE = re.compile(r"(?:tests|bench)(?:\.\w+)+")


def main(arguments: list[str]) -> int:
    """Return 0 if the suite was green with these inputs, or is recorded as such; 1 if it has to run.

    The inputs are noted when it is asked. They have to be the same when it is recorded.
    """
    suite, *options = arguments
    stamp, begun = (cache() / "green" / f"{suite}{suffix}" for suffix in ("", ".begun"))
    now = digest(ROOT, suite, surroundings())
    if options == ["--green"]:
        if (found := uncovered(suite)).exists():
            names = ", ".join(sorted(set(found.read_text("utf-8").split("\n")) - {""}))
            print(f"{suite} gets no stamp: it reads {names}, which none covers (tests/support/stamps.py)")
        elif not begun.exists() or begun.read_text("utf-8") != now:
            print(f"{suite} gets no stamp: its inputs changed while it ran")
        else:
            begun.replace(stamp)
        return 0
    if stamp.exists() and stamp.read_text("utf-8") == now:
        return 0
    begun.parent.mkdir(parents=True, exist_ok=True)
    begun.write_text(now, "utf-8")
    uncovered(suite).unlink(missing_ok=True)
    return 1


def uncovered(suite: str) -> Path:
    """Return the file that lists the files a suite has read since the question and that its stamp does not cover."""
    return cache() / "green" / f"{suite}.uncovered"


def digest(root: Path, suite: str, around: Iterable[str]) -> str:
    """Return the SHA-256 of a suite's inputs in a checkout, and of its surroundings."""
    hashed = hashlib.sha256()
    for name in inputs(root, suite):
        path = root / name
        content = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
        hashed.update(f"{name}\0{path.lstat().st_mode & 0o111}\0{len(content)}\0".encode() + content)
    for line in around:
        hashed.update(f"{line}\0".encode())
    return hashed.hexdigest()


def surroundings() -> Iterator[str]:
    """Yield the inputs of a suite outside the checkout: interpreter, kernel, packages, programs, variables and tags."""
    yield f"{sys.version} {platform.platform()} {os.cpu_count()} {os.geteuid()}"
    status, hierarchies = Path("/proc/self/status"), Path("/sys/fs/cgroup")
    if status.exists():  # a suite that lacks a capability or a hierarchy says so and skips
        yield from (line for line in status.read_text().splitlines() if line.startswith("CapEff"))
        yield from sorted(each.name for each in hierarchies.glob("*") if (each / "cgroup.procs").exists())
    yield from sorted({f"{each.name}=={each.version}" for each in importlib.metadata.distributions()})
    for name in PROGRAMS:
        place = shutil.which(name)
        about = Path(place).stat() if place else None
        yield f"{name} {place} {about and (about.st_size, int(about.st_mtime))}"
    for name in VARIABLES:
        yield f"{name}={os.environ.get(name)}"
    yield f"the release before: {checkouts.before()}"


def inputs(root: Path, suite: str) -> list[str]:
    """List the files that a suite may read, by their paths below the root, sorted."""
    there = files(root)
    reached = _reached(root, suite, [name for name in there if name.endswith(".py")])
    folders = {"/".join(name.split("/")[:2]) for name in reached} | {f"tests/{folder}" for folder in TARGETS[suite]}
    texts = "".join((root / name).read_text("utf-8") for name in sorted(reached - {OWN, "tests/__init__.py"}))

    @cached
    def is_named(folder: str) -> bool:
        """Whether a module of the suite's imports from a folder, or has it in a text."""
        top, _, name = folder.partition("/")
        return folder in folders or folder in texts or (f'"{top}"' in texts and f'"{name}"' in texts)

    def counts(name: str) -> bool:
        top, _, rest = name.partition("/")
        if top == "tests" and Path(name).match("test_*.py"):
            return False
        if top == "bench" or (top == "tests" and (name.endswith(".py") or rest.partition("/")[0] in FOLDERS)):
            return is_named("/".join(name.split("/")[:2]))
        if name.endswith(".md"):
            return name == "README.md" or "*.md" in texts
        return True

    return [name for name in there if name in reached or counts(name) or Path(name).name in texts]


def noting() -> Callable[[], list[str]]:
    """Record the files that this process opens from now on.

    The returned function gives them, with those of all modules.
    """
    opened: list[str] = []

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str):
            opened.append(arguments[0])

    sys.addaudithook(hook)

    def noted() -> list[str]:
        return [*opened, *filter(None, (getattr(module, "__file__", None) for module in list(sys.modules.values())))]

    return noted


def unseen(suite: str, opened: Iterable[str]) -> list[str]:
    """Return those of the opened files (absolute paths) that are in the checkout but are no inputs of the suite."""
    below = f"{ROOT}{os.sep}"
    own = {path.removeprefix(below) for path in map(os.path.realpath, {*opened}) if path.startswith(below)}
    return sorted((own & set(files(ROOT))) - set(inputs(ROOT, suite)))


def files(root: Path) -> list[str]:
    """Return the existing files that Git tracks or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    return sorted({name for name in listed.split("\0") if name and os.path.lexists(root / name)})


def _reached(root: Path, suite: str, modules: list[str]) -> set[str]:
    """The Python files below `tests` and `bench` that a suite's own reach by imports, or name in a text."""
    by_name = {_dotted(name): name for name in modules}
    own = tuple(f"tests/{folder}/" for folder in TARGETS[suite])
    waiting = [name for name in modules if name.startswith(own) or name in ("tests/__init__.py", "tests/conftest.py")]
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        for dotted in _named((root / name).read_text("utf-8")):
            parts = dotted.split(".")
            waiting += [by_name[part] for end in range(len(parts)) if (part := ".".join(parts[: end + 1])) in by_name]
            waiting += [by_name[part] for part in (f"{dotted}.__main__", f"{dotted}.conftest") if part in by_name]
    return reached


@cached
def _named(text: str) -> frozenset[str]:
    """The modules of the project's own that a module imports, or names in a text, by their dotted names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= set(_MODULE.findall(node.value))
    return frozenset(name for name in found if name.startswith(("tests", "bench")))


def _dotted(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
