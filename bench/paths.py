"""Measures the cost of a path that names its policy, and how much memory each additional policy takes in a worker."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from time import monotonic, thread_time_ns

from bench import payloads, tables
from bench.decision import FACTS, POLICY, ROOT
from bench.runs import Result, figure
from webhook import rules
from webhook.cli.inputs import load_engine
from webhook.engine.engine import Engine
from webhook.http.messages import HttpRequest, Reply
from webhook.memory import frameworks
from webhook.policy import load, revisions
from webhook.policy.model import Policy
from webhook.serving.app import ReviewApplication
from webhook.serving.processes import settle
from webhook.serving.replica_state import MOST, ReplicaState
from webhook.serving.revisions import Revisions

ROUNDS, REVIEWS = 20, 1_000
RELEASE = "bench"


class NothingNeeded:
    """Stands for a cluster whose facts have all been read."""

    def follow(self, wanted: object) -> None:
        """Read nothing more."""

    def lacks(self, policy: Policy) -> str:
        """Report that nothing is missing."""
        del policy
        return ""

    def forbidden(self, policy: Policy) -> str:
        """Report that nothing is refused."""
        del policy
        return ""


def run() -> Result:
    """Run this part of the benchmarks. Times are CPU times, so that other load on the machine does not count."""
    engine, facts = load_engine(str(POLICY), str(FACTS))
    plain = ReviewApplication(engine, lambda: facts, lambda _: None)
    judges = holding([engine.policy])
    named = ReviewApplication(judges, lambda: facts, lambda _: None, release=RELEASE)
    settle()
    body, digest = payloads.small().body, engine.policy.digest
    sides = ((plain, "/validate"), (named, f"/validate/{digest}"))
    rates, tails = [], []
    for number in range(ROUNDS + 1):
        times: list[list[int]] = [[], []]
        for _ in range(REVIEWS):  # by turns, so that caches and the clock of the CPU affect both
            for place, (app, path) in enumerate(sides):
                times[place].append(_timed(app, path, body))
        if number:  # the first round fills the caches
            without, with_path = times
            rates.append(sum(without) / sum(with_path))
            tails.append(tables.percentile(with_path, 99) / tables.percentile(without, 99))
    grown = _memory()
    rows = [
        ("reviews a second, with a name to without", tables.spread(rates, ".3f")),
        ("p99, with a name to without", tables.spread(tails, ".3f")),
        ("memory of each further policy, MiB", f"{grown:.3f}"),
    ]
    figures = [
        figure("4 KB, validate: reviews a second, with a name to without", "×", rates),
        figure("4 KB, validate: p99, with a name to without", "×", tails),
        figure("memory of each further policy in a worker", "MiB", [grown]),
    ]
    return Result(tables.markdown(("path", "value"), rows), figures)


def holding(policies: list[Policy]) -> Revisions:
    """Return the revisions of a worker that has loaded these policies."""
    read = partial(revisions.read, rules=rules.releases(), frameworks=frameworks.names())
    making = partial(Engine, rules=rules.walk())
    judges = Revisions(RELEASE, (ReplicaState(1), 0), NothingNeeded(), read, making, lambda _: None)
    judges.look([revisions.revision(policy, "bench") for policy in policies])
    return judges


def _timed(app: ReviewApplication, path: str, body: bytes) -> int:
    head = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    request = HttpRequest("POST", path, "timeout=5s", head, monotonic(), (body,))
    start = thread_time_ns()
    refused = app.refusal(request)
    answer = app(request)
    taken = thread_time_ns() - start
    if refused is not None or not isinstance(answer, Reply) or answer.status != 200:
        raise ValueError(f"{path} answers {answer}")
    return taken


def _memory() -> float:
    """Return the MiB of each policy after the first, each with reviews answered by it, in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "bench.paths"]
    return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Print the MiB of each policy after the first."""
    engine, facts = load_engine(str(POLICY), str(FACTS))
    value = json.loads(engine.policy.written)
    named = [{**value, "metadata": {"name": f"policy-{number}"}} for number in range(MOST)]
    policies = [load.of_object(each, rules.releases(), frameworks=frameworks.names()) for each in named]
    texts = [revisions.revision(policy, "bench") for policy in policies]
    digests = [policy.digest for policy in policies]
    del policies, named, value
    judges = holding([])
    app = ReviewApplication(judges, lambda: facts, lambda _: None)
    resident = []
    for number in range(MOST):
        judges.look(texts[: number + 1])
        for path in ("/mutate", "/validate"):
            for payload in (payloads.small(), payloads.large(), payloads.plain()):
                for _ in range(50):
                    _timed(app, f"{path}/{digests[number]}", payload.body)
        resident.append(_resident())
    print((resident[-1] - resident[0]) / (MOST - 1))


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    main()
