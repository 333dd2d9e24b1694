"""The release before this tree, by the tags of a clone."""

import subprocess
from pathlib import Path

from tests.support.checkouts import before, unpacked

WHO = (
    "-c",
    "user.name=Ada",
    "-c",
    "user.email=ada@example.org",
    "-c",
    "commit.gpgsign=false",
    "-c",
    "tag.gpgsign=false",
)


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *WHO, *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_release_before_is_that_of_the_newest_tag_behind_head(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    commits = list[str]()
    for number in range(4):
        (tmp_path / "number").write_text(str(number), "utf-8")
        git(tmp_path, "add", "number")
        git(tmp_path, "commit", "--quiet", "--message", str(number))
        commits.append(git(tmp_path, "rev-parse", "HEAD"))
    assert before(tmp_path) is None  # its history has no tag, nor the commit that stands for one
    for tagged, tag in enumerate(("v0.1.0", "v0.2.0", "not-a-release")):
        git(tmp_path, "tag", tag, commits[tagged])
    assert before(tmp_path) == commits[1]
    git(tmp_path, "tag", "--annotate", "--message", "the release that HEAD is", "v0.3.0", commits[3])
    assert before(tmp_path) == commits[1]
    assert (unpacked(commits[1], tmp_path / "tree", tmp_path) / "number").read_text("utf-8") == "1"
    git(tmp_path, "tag", "--annotate", "--message", "a release", "v0.2.1", commits[2])
    assert before(tmp_path) == commits[2]
