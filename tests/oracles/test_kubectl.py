"""What kubectl would create from a file is judged, or an error: its own reader is asked."""

import json
import os
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

from tests.oracles.manifests import Files, compared
from tests.oracles.programs import Oracle
from tests.oracles.record import ANSWERS
from tests.oracles.record import asked as asked_now
from tests.support.records import SAME
from webhook.policy.model import Policy

FILES, AT_A_TIME = 50_000, 500


def test_what_kubectl_would_create_is_judged_or_an_error(kubectl: Oracle, sample_policy: Policy) -> None:
    seed = "first" if SAME else os.urandom(4).hex()
    files = Files(Random(seed))  # noqa: S311 - no secret
    outcomes = Counter[tuple[bool, bool]]()
    for _ in range(FILES // AT_A_TIME):
        batch = [files.one() for _ in range(AT_A_TIME)]
        # In memory where that can be had: to write a file takes as long as to read it twice.
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:  # noqa: S108
            for data, case in zip(
                batch, compared(kubectl, batch, Path(folder), sample_policy.gpu_resources), strict=True
            ):
                assert (case.lost, case.invented) == ([], []), (seed, data)
                outcomes[bool(case.problems), bool(case.theirs)] += 1
    # Files that both read, that both refuse, and that only kubectl reads in part: none of them is rare.
    assert outcomes[False, True] > FILES // 10
    assert outcomes[True, False] > FILES // 10
    assert outcomes[True, True] > FILES // 100


def test_the_record_is_what_it_says(kubectl: Oracle) -> None:
    recorded = json.loads(ANSWERS.read_text("utf-8"))["files"]
    assert asked_now("files", kubectl) == recorded
