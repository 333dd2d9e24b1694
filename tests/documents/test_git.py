"""Files of a Git revision are written below one folder only, within bounds, whatever the tree of the commit says."""

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from webhook.documents import git
from webhook.documents.files import KUSTOMIZATIONS
from webhook.model import Unusable

Entry = tuple[bytes, "bytes | Sequence[Entry]"]
"""A name in a tree with the contents of its file, or with the entries of its folder."""

ENVIRONMENT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "PATH": os.defpath}


def stored(kind: str, data: bytes) -> bytes:
    """Store an object as it is: Git itself makes no tree with such names, but reads and fetches it."""
    command = ["git", "hash-object", "-t", kind, "-w", "--literally", "--stdin"]
    return subprocess.run(command, input=data, env=ENVIRONMENT, check=True, capture_output=True).stdout.strip()


def tree(entries: Sequence[Entry]) -> str:
    """Store a tree. Returns its name."""
    rows = b""
    for written, inside in entries:
        name = written.replace(b"OUTSIDE", bytes(Path.cwd().parent / "outside"))
        mode, oid = (b"100644", stored("blob", inside)) if isinstance(inside, bytes) else (b"40000", tree(inside))
        rows += mode + b" " + name + b"\0" + bytes.fromhex(oid.decode() if isinstance(oid, bytes) else oid)
    return stored("tree", rows).decode()


@pytest.fixture(autouse=True)
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, and a folder next to it, which is returned. Temporary files are eight levels below that."""
    (tmp_path / "repository").mkdir()
    monkeypatch.chdir(tmp_path / "repository")
    monkeypatch.setenv("PATH", os.defpath)
    subprocess.run(["git", "init", "--quiet"], env=ENVIRONMENT, check=True)
    temporary = tmp_path / "outside" / "1/2/3/4/5/6/7/8"
    temporary.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return tmp_path / "outside"


def files_below(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def write(entries: Sequence[Entry], inside: str = "") -> dict[str, bytes]:
    with git.written(f"{tree(entries)}:{inside}", KUSTOMIZATIONS) as (root, _):
        return {str(file.relative_to(root)): file.read_bytes() for file in files_below(Path(root))}


NAMES = st.sampled_from(
    [b"..", b".", b".git", b".GIT", b"", b"a", b"a.yaml", b"b.json", b"../b.yaml", b"OUTSIDE/b.yaml", b"a/../../b.yaml"]
) | st.binary(max_size=4).map(lambda name: name.replace(b"\0", b"") + b".yaml")
TREES: st.SearchStrategy[Sequence[Entry]] = st.recursive(
    st.lists(st.tuples(NAMES, st.binary(max_size=3)), max_size=3),
    lambda inside: st.lists(st.tuples(NAMES, st.binary(max_size=3) | inside), max_size=3),
    max_leaves=4,
)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(TREES)
@example([(b"policies", [(b"..", [(b"..", [(b"escaped.yaml", b"x")])])])])
@example([(b"..", [(b"escaped.yaml", b"x")])])
@example([(b"OUTSIDE/b.yaml", b"x")])
@example([(b"../b.yaml", b"x")])
def test_no_name_in_a_tree_leads_out_of_the_folder(outside: Path, entries: Sequence[Entry]) -> None:
    before = set(files_below(outside))
    try:
        with git.written(f"{tree(entries)}:", KUSTOMIZATIONS) as (root, _):
            assert all(file.is_relative_to(root) for file in set(files_below(outside)) - before)
    except Unusable:
        pass
    assert set(files_below(outside)) == before


@pytest.mark.parametrize("name", [b"..", b".git", b".GIT", b"."])
def test_a_name_that_git_checks_out_nowhere_is_refused(name: bytes) -> None:
    with pytest.raises(Unusable, match=r"a\.yaml. is a name that Git never checks out"):
        write([(name, [(b"a.yaml", b"x")])])


def test_a_name_of_a_file_and_a_folder_is_refused() -> None:
    with pytest.raises(Unusable, match=r"a\.yaml"):
        write([(b"a.yaml", b"x"), (b"a.yaml", [(b"b.yaml", b"y")])])


def test_a_submodule_is_no_file() -> None:
    commit = "1" * 40
    name = stored("tree", b"160000 sub.yaml\0" + bytes.fromhex(commit)).decode()
    with git.written(f"{name}:", KUSTOMIZATIONS) as (root, _):
        assert list(files_below(Path(root))) == []


def test_an_object_that_is_absent_is_named() -> None:
    name = stored("tree", b"100644 a.yaml\0" + bytes.fromhex("1" * 40)).decode()
    with pytest.raises(Unusable, match=r"a\.yaml. is not in this repository"), git.written(f"{name}:", KUSTOMIZATIONS):
        pass


def test_sizes_are_added_before_a_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "MAX_READ", 10)
    asked = list[tuple[str, ...]]()
    run = git._run

    def noted(path: str, *command: str, **more: object) -> bytes:
        asked.append(command)
        return run(path, *command, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(git, "_run", noted)
    assert write([(b"a.yaml", b"12345"), (b"b.yaml", b"67890")]) == {"a.yaml": b"12345", "b.yaml": b"67890"}
    assert ("cat-file", "--batch") in asked
    asked.clear()
    with pytest.raises(Unusable, match="more than 0 MiB"):
        write([(b"a.yaml", b"12345"), (b"b.yaml", b"678901")])
    assert ("cat-file", "--batch") not in asked


def test_no_more_of_an_answer_is_read_than_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten levels of a folder that has itself ten times name more files than anybody can list."""
    entries: Sequence[Entry] = [(b"a.yaml", b"x")]
    name = tree(entries)
    for _ in range(10):
        rows = b"".join(b"40000 %d\0" % each + bytes.fromhex(name) for each in range(10))
        name = stored("tree", rows).decode()
    monkeypatch.setattr(git, "MAX_NAMES", 1000)
    with pytest.raises(Unusable, match="more than"), git.written(f"{name}:", KUSTOMIZATIONS):
        pass


def test_a_file_is_read_within_the_bound_of_all_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "MAX_FILE", 8)
    name = tree([(b"a.yaml", b"a: 12345"), (b"b.yaml", b"b: 123456")])
    assert [each.value for each in git.load(f"{name}:a.yaml", None)] == [{"a": 12345}]
    with pytest.raises(Unusable, match="more than"):
        git.load(f"{name}:b.yaml", None)


def test_names_need_not_be_text() -> None:
    """A file that nobody can name in a kustomization spoils no policy."""
    name = tree([(b"a.yaml", b"a: 1"), (b"\xff.yaml", b"x")])
    assert [each.value for each in git.load(f"{name}:a.yaml", None)] == [{"a": 1}]
    assert git.names(f"{name}:") == ["a.yaml", os.fsdecode(b"\xff.yaml")]
    assert write([(b"\xff.yaml", b"x")]) == {os.fsdecode(b"\xff.yaml"): b"x"}


PATHS = st.lists(st.sampled_from(["a", "a-", "b", "kustomization.yaml", "c.txt"]), min_size=1, max_size=4).map("/".join)


@given(st.sets(PATHS, max_size=8))
def test_a_file_is_below_a_folder_by_its_name(paths: set[str]) -> None:
    folders = [path.removesuffix("kustomization.yaml") for path in paths if Path(path).name == "kustomization.yaml"]
    outermost = git._outermost(folders)
    for path in paths:
        assert git._is_below(path, outermost) == any(
            Path(path).parent.is_relative_to(folder or ".") for folder in folders
        )


def test_what_a_kustomization_may_read_is_written_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "MAX_DATA", 4)
    folder: Sequence[Entry] = [
        (b"Kustomization", b"k"),
        (b"b", [(b"fits", b"1234"), (b"large", b"12345"), (b"c.json", b"{    }")]),
    ]
    written = write([(b"a", folder), (b"other.txt", b"x")])
    assert written == {"a/Kustomization": b"k", "a/b/fits": b"1234", "a/b/c.json": b"{    }"}
