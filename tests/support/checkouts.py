"""Makes clones of this tree, and unpacks the release before it."""

import subprocess
from pathlib import Path

from tests import ROOT

STAND_IN = "4678f99c"
"""The commit that stands for the release before until there is a tag."""


def before(root: Path = ROOT) -> str | None:
    """Return the commit of the release before: of the newest tag `v...` behind HEAD, or STAND_IN where there is no tag.

    None if the history of the clone does not go back so far.
    """
    tag = _git(root, "describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "HEAD^") or STAND_IN
    return _git(root, "rev-parse", "--verify", "--quiet", f"{tag}^{{commit}}") or None


def unpacked(commit: str, tree: Path, root: Path = ROOT) -> Path:
    """Make a new folder of the files of a commit."""
    tree.mkdir(parents=True)
    packed = subprocess.run(["git", "archive", commit], cwd=root, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "--extract", f"--directory={tree}"], input=packed, check=True)
    return tree


def _git(root: Path, *arguments: str) -> str:
    """What git prints; nothing if it fails."""
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False).stdout.strip()


def committed(root: Path) -> Path:
    """Fill a new folder with all files that Git does not ignore here, changed files too, as one commit."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes((ROOT / name).read_bytes())
            (root / name).chmod((ROOT / name).stat().st_mode)
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")
    for words in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "--message", "all")):
        subprocess.run(["git", *who, *words], cwd=root, check=True)
    return root
