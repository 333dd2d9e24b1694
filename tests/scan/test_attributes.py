"""Which files of Git's attributes, and which pointers of Git LFS, change what is read."""

import subprocess
from pathlib import Path

import pytest

from webhook.scan import attributes, folders

NAMES = ("a.txt", "b.TXT", "files/a.txt", "files/x/a.txt", "x/files/a.txt", "windows/run.bat", "run.cmd", "a b.txt")

PATTERNS = (
    *("*", "*.txt", "*.bat", "*.[tT][xX][tT]", "a.txt", "/a.txt", "files/a.txt", "files/*", "files/**", "/files/*.txt"),
    *("**/a.txt", "**/files/*", "**/files/**/*.txt", "files/**/a.txt", "files", "files/", "/**", "**", "windows/**/*"),
    *("f*s/a.txt", "*.{cmd,bat}", "?.txt", "a\\.txt", '"a b.txt"', "*.[!x]xt", "x**/files/a.txt", "*.t*t", "!a.txt"),
)


@pytest.fixture(autouse=True)
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository, which is the working folder."""
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "-q", "."], check=True)
    return tmp_path


def write(files: dict[str, str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


def is_converted(text: str, *texts: str, names: tuple[str, ...] = ()) -> bool:
    write({".gitattributes": text})
    return attributes.converted([".gitattributes"], names, texts) == [".gitattributes"]


def test_each_file_fits_that_fits_for_git() -> None:
    """Some more fit if Python may read a pattern otherwise than Git."""
    write(dict.fromkeys(NAMES, ""))
    Path(".gitattributes").write_text("".join(f"{each} p{number}\n" for number, each in enumerate(PATTERNS)))
    words = ["git", "check-attr", "-z", "-a", "--", *NAMES]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split("\0")
    git = {(name, attribute) for name, attribute in zip(said[::3], said[1::3], strict=False)}
    ours = {
        (name, f"p{number}")
        for number, each in enumerate(PATTERNS)
        for name in NAMES
        if is_converted(f"{each} eol=crlf\n", name)
    }
    assert git <= ours
    unsure = {f"p{number}" for number, each in enumerate(PATTERNS) if set('?\\"!') & set(each)}
    assert {(name, attribute) for name, attribute in ours - git if attribute not in unsure} == set()


@pytest.mark.parametrize(
    "line",
    [
        *("*.txt text", "*.txt text=auto", "*.txt eol=lf", "*.txt crlf", "*.txt crlf=input", "*.txt binary"),
        *("*.txt eol=crlf", "*.txt\ttext=auto eol=crlf\r", "\ufeff*.txt eol=crlf", "[attr]dos eol=crlf\n*.txt dos"),
        *("# eol=crlf", "*.txt -eol", "[attr]dos eol=crlf\n*.bat dos"),
    ],
)
@pytest.mark.parametrize("kept", ["a\nb\n", "a\r\nb\r\n"])
def test_line_ends_count_if_git_writes_others(line: str, kept: str) -> None:
    file = Path("a.txt")
    file.write_bytes(kept.encode())
    subprocess.run(["git", "-c", "core.safecrlf=false", "add", "a.txt"], check=True)
    Path(".gitattributes").write_bytes(f"{line}\n".encode())
    subprocess.run(["git", "update-index", "--cacheinfo", f"100644,{_blob(kept)},a.txt"], check=True)
    file.unlink()
    subprocess.run(["git", "checkout-index", "-f", "a.txt"], check=True)
    if file.read_bytes() != kept.encode():
        assert attributes.converted([".gitattributes"], [], ["a.txt"]) == [".gitattributes"]
    elif "\r" not in kept:
        assert attributes.converted([".gitattributes"], [], ["a.txt"]) == []


def _blob(text: str) -> str:
    words = ["git", "hash-object", "-w", "--no-filters", "--stdin"]
    return subprocess.run(words, check=True, capture_output=True, input=text.encode()).stdout.decode().strip()


def test_line_ends_matter_only_where_a_file_is_read_as_text() -> None:
    write({"a.yaml": "a: 1\n"})
    assert is_converted("*.yaml text eol=crlf\n", "a.yaml")
    assert not is_converted("*.yaml text eol=crlf\n", names=("a.yaml",))


FLUX = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\n"


@pytest.mark.parametrize(
    ("flux", "text", "names", "texts", "noted"),
    [
        (FLUX, "x", (), ("a.txt",), True),
        (FLUX, "x", ("a.txt",), (), True),
        (FLUX, "version https://git-lfs.github.com/spec/v1\n", (), ("a.txt",), False),
        (FLUX, "x", (), (), False),
        ("", "x", (), ("a.txt",), False),
    ],
)
def test_a_filter_matters_to_what_flux_reads(
    flux: str, text: str, names: tuple[str, ...], texts: tuple[str, ...], *, noted: bool
) -> None:
    """Others get what the filter writes, and a pointer of Git LFS has its own note."""
    write({"a.txt": text, "flux.yaml": flux})
    assert is_converted("*.txt filter=lfs -text\n", *texts, names=("flux.yaml", *names)) == noted


def test_of_very_many_lines_each_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attributes, "MOST_PAIRS", 2)
    assert not is_converted("*.x eol=crlf\n" * 2, "a.txt")
    assert is_converted("*.x eol=crlf\n" * 3, "a.txt")


@pytest.mark.parametrize(
    ("start", "found"),
    [
        ("version https://git-lfs.github.com/spec/v1", True),
        ("version https://hawser.github.com/spec/v1", True),
        ("version http://git-media.io/v/2", True),
        ("\n version https://git-lfs.github.com/spec/v1", True),
        ("version: 1", False),
        ("# version https://git-lfs.github.com/spec/v1", False),
    ],
)
def test_a_pointer_of_git_lfs_has_one_of_its_first_lines(start: str, *, found: bool) -> None:
    write({"a.txt": f"{start}\noid sha256:4d7a\nsize 12\n"})
    assert folders.pointers(["a.txt", "gone.txt"]) == ["a.txt"] * found
