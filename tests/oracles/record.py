"""Write down what the oracles say of each case: `python -m tests.oracles.record`, and read the diff.

`answers.json` holds an answer for each question that the cases lead to. `make test` goes by it without Go; `make e2e`
asks again. A patch that says more of what the toolkit reads leads to new questions.
"""

import json
import sys
from pathlib import Path
from typing import Any

from tests.oracles import compare
from tests.oracles.programs import Oracle, running
from tests.support.records import record

ANSWERS = Path(__file__).resolve().parent / "answers.json"


class Recorded:
    """An oracle that answers as it did when last asked."""

    def __init__(self, name: str) -> None:
        self._answers: dict[str, Any] = json.loads(ANSWERS.read_text("utf-8"))[name]

    def ask(self, question: Any) -> Any:
        """Look a question up."""
        line = written(question)
        assert line in self._answers, f"not recorded; python -m tests.oracles.record: {line}"
        return self._answers[line]


class Recording:
    """An oracle that remembers what it was asked."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self.answers: dict[str, Any] = {}

    def ask(self, question: Any) -> Any:
        """Put a question, and keep the answer."""
        answer = self._oracle.ask(question)
        return self.answers.setdefault(written(question), answer)


def written(question: Any) -> str:
    """A question in one way."""
    return json.dumps(question, sort_keys=True, separators=(",", ":"))


def asked(name: str, oracle: Oracle) -> dict[str, Any]:
    """Return what one oracle says now of all that the cases lead to."""
    recording = Recording(oracle)
    compare.CASES[name](recording)
    return dict(sorted(recording.answers.items()))


def ask() -> dict[str, Any]:
    """Start each oracle and ask it. Raises Missing."""
    answers = {}
    for name in compare.CASES:
        with running(name) as program:
            answers[name] = asked(name, program)
    return answers


if __name__ == "__main__":
    sys.exit(record(ANSWERS, ask, indent=0))
