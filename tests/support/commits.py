"""Checks the messages of the commits since `BASE`: `python -m tests.support.commits`. CONTRIBUTING.md has the rules."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests import ROOT

BASE = "fb369586d7f15549"
"""The last commit before these rules."""
LONGEST = 72
"""Characters of a subject."""
_SUBJECT = re.compile(r"[a-z][a-z0-9/_.-]*: (?P<verb>[a-z-]+) \S.*[^.]")
_INFLECTED = re.compile(r"(?!embed|feed|need|seed|shed|speed|bring|string).*(?:ed|ing|[^s]s)")


def main(root: Path = ROOT, base: str = BASE) -> int:
    """Print a line for each message that breaks a rule, and return 1. Return 0 if the history is too short to check."""
    if _git(root, "merge-base", "--is-ancestor", base, "HEAD").returncode:
        print(f"commit messages are not checked: there is no history back to {base} here")
        return 0
    log = _git(root, "log", "-z", "--no-merges", "--format=%h%n%B", f"{base}..HEAD").stdout
    wrong = [
        f"{commit}: {problem}: {message.partition(chr(10))[0]}"
        for commit, _, message in (entry.partition("\n") for entry in log.split("\0") if entry)
        for problem in problems(message)
    ]
    print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
    return int(bool(wrong))


def problems(message: str) -> Iterator[str]:
    """Yield the rules that a commit's message breaks."""
    subject, _, body = message.strip().partition("\n")
    if len(subject) > LONGEST:
        yield f"the subject has {len(subject)} characters, more than {LONGEST}"
    found = _SUBJECT.fullmatch(subject)
    if found is None or _INFLECTED.fullmatch(found["verb"]):
        yield "the subject is not `area: verb object`, as in `fallback: read parameters once`"
    if not [line for line in body.splitlines() if line.strip() and not re.match(r"[A-Z][\w-]+: ", line)]:
        yield "no body says why"


def _git(root: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
