"""NVIDIA's device plugin, asked what it makes of a configuration: main.go around the plugin's own package."""

import base64
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.support.go_programs import built

HERE = Path(__file__).resolve().parent
WITHOUT_GO = "the conformance tests need Go 1.26 (https://go.dev/dl)"


class DevicePlugin:
    """A running program that answers one configuration after the other."""

    def __init__(self, questions: IO[bytes], answers: IO[bytes]) -> None:
        self._questions = questions
        self._answers = answers

    def refusal(self, config: bytes) -> str:
        """The error on which the plugin would not start; empty when it would."""
        self._questions.write(base64.b64encode(config) + b"\n")
        self._questions.flush()
        answer = json.loads(self._answers.readline())
        assert isinstance(answer, str)
        return answer


@contextmanager
def running() -> Iterator[DevicePlugin]:
    """Start the program. Raises Missing."""
    folder = built(HERE, {"device-plugin": "."}, without_go=WITHOUT_GO)
    with subprocess.Popen([folder / "device-plugin"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield DevicePlugin(process.stdin, process.stdout)
        process.stdin.close()
