"""Other projects' own code, asked: NVIDIA's container toolkit, the scheduler's matching, kubectl's reader of files,
kustomize's reader of kustomizations, and what Flux and Argo CD make of repositories.

The module is named below NVIDIA's, since Go lets nobody else import what is `internal` there.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

from tests.support.go_programs import built

HERE = Path(__file__).resolve().parent
PROGRAMS = {"toolkit": "./toolkit", "kubernetes": "./kubernetes", "files": "./files", "kustomize": "./kustomize"}
MODULES = {
    "flux": {"flux": "."},
    "argo": {"argo": ".", "kustomize": "sigs.k8s.io/kustomize/kustomize/v5"},
}
"""The programs with modules of their own, since Flux and Argo CD have versions of their own, and what these need."""
WITHOUT_GO = "the oracles need Go 1.26 (https://go.dev/dl)"


class Oracle(Protocol):
    """Start a program that answers questions, JSON by JSON."""

    def ask(self, question: Any) -> Any:
        """Answer one question."""


class Program:
    """A running program that answers one line after the other."""

    def __init__(self, questions: IO[bytes], answers: IO[bytes]) -> None:
        self._questions = questions
        self._answers = answers
        self._known: dict[bytes, Any] = {}

    def ask(self, question: Any) -> Any:
        """Put one question to it, unless it had the same before."""
        line = json.dumps(question).encode()
        if line not in self._known:
            self._questions.write(line + b"\n")
            self._questions.flush()
            self._known[line] = json.loads(self._answers.readline())
        return self._known[line]


@contextmanager
def running(name: str, *needed: Path, home: Path | None = None) -> Iterator[Program]:
    """Start a program, which finds those in the folders `needed`. Raises Missing."""
    own = (HERE / name, MODULES[name]) if name in MODULES else (HERE, PROGRAMS)
    folder = built(*own, without_go=WITHOUT_GO, patience="; the first time, ten minutes or so" if needed else "")
    command, quietly = [folder / name], subprocess.DEVNULL  # kustomize warns of fields that are deprecated
    path = ":".join(map(str, (folder, *needed, os.environ["PATH"])))
    given = {**os.environ, "PATH": path, **({"HOME": str(home)} if home else {})}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=quietly, env=given) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield Program(process.stdin, process.stdout)
        process.stdin.close()
