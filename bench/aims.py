"""Lists the aims of the figures, and the reasons why some figures miss them."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from bench.runs import Figure, Run


class Aim(NamedTuple):
    """A bound on the median of a figure. `reason` is shown if the figure misses it."""

    part: str
    figure: str
    bound: float
    reason: str
    least: bool = False
    """Whether the bound is a minimum and not a maximum."""

    def met(self, figure: Figure) -> bool:
        """Whether a figure meets the bound."""
        return figure.median >= self.bound if self.least else figure.median <= self.bound


GO, EKS, HAMI = "Go net/http", "EKS pod-identity", "HAMi"

PYTHON = "the decision and the HTTP of a small review are Python, and the webhook in Go decides nothing"
NATIVE = "a small review is mostly TLS and HTTP, which theirs does in Go"
TWO_CALLS = "the API server writes and reads the whole pod for each of two calls; the webhook in Go has most of it too"
BOTH_CALLS = "most of what any webhook adds is the API server's own part in two calls, which is the same for all"
HELD = "Python, its modules and two workers; theirs holds little beside few policies and few objects"
PARSING = "parsing a small review is native code and takes microseconds, and each rule that looks at the pod is Python"
MODULES = "the modules of Python, aiohttp and Flask; workers share them until they write to a page"
KEPT = "the verdicts of all manifests are kept until the report is written"
YAML = "each manifest is parsed by libyaml and composed in Python, which is most of it"
IMPORTS = "it is the start of Python and the import of the rules"
SIZE = "the cost grows with the number of them"


def _rates() -> Iterator[Aim]:
    for name, go, go_why in (("4 KB", 0.8, PYTHON), ("40 KB", 1.0, PYTHON)):
        for other, bound, why in ((GO, go, go_why), (EKS, 2, NATIVE), (HAMI, 6, NATIVE)):
            yield Aim("https", f"{name}, 32 connections: reviews a second, to {other}", bound, why, least=True)


def _creations() -> Iterator[Aim]:
    for connections in (1, 8):
        name = f"{connections} connections, Slicewarden: p99, to none"
        yield Aim("apiserver", f"4 KB, {name}", 1.15, TWO_CALLS)
        yield Aim("apiserver", f"4 KB, no GPU, {name}", 1.05, "such pods are never sent: the rest is the machine's")


def _engines() -> Iterator[Aim]:
    for connections in (1, 8, 32):
        yield Aim("engines", f"4 KB, {connections} connections: p99 added, to the better other", 0.5, BOTH_CALLS)
    yield Aim("engines", "memory, to the better other", 0.2, HELD)


def _decisions() -> Iterator[Aim]:
    for half in ("mutate", "validate"):
        yield Aim("decision", f"4 KB, {half}: to parsing", 4, PARSING)
    for half in ("mutate", "validate"):
        yield Aim("decision", f"4 KB, no GPU, {half}: to parsing", 2, PARSING)
    for half in ("mutate", "validate"):
        yield Aim("decision", f"40 KB, {half}: p99", 1, "other work of the machine comes between")


def _growth() -> Iterator[Aim]:
    for what in ("nodes in the facts", "namespaces in the facts"):
        yield Aim("growth", f"{what}: exponent", 0.1, SIZE)
    for what in ("grants", "pools", "exemptions"):
        yield Aim("growth", f"{what} of the policy: exponent", 0.1, SIZE)


AIMS = (
    *_rates(),
    Aim("https", f"4 KB, 200/s: p99, to {GO}", 1.0, PYTHON),
    Aim("https", "4 KB, 32 connections: memory", 75, MODULES),
    *_creations(),
    *_engines(),
    *_decisions(),
    *_growth(),
    Aim("check", "10,000, a file each", 4, YAML),
    Aim("check", "10,000, a file each: largest process", 80, KEPT),
    Aim("check", "slicewarden check, one file", 120, IMPORTS),
    Aim("fallback", "4 KB, 1 connections: p99, with to without", 1.05, "with its store in memory a creation is short"),
    Aim("agent", "50 containers, 1 looks a second: of a core", 0.5, "each look reads the cgroups of all containers"),
    Aim("agent", "50 containers, 10 looks a second: of a core", 4, "each look reads the cgroups of all containers"),
    Aim("agent", "50 containers, 1 looks a second: memory", 80, "it is Python with the binding of NVML"),
    Aim("controller", "controller resident memory", 80, "it is Python with Kubernetes' client, TLS and the rules"),
    Aim("controller", "controller idle CPU", 1, "it renews its lease, and looks twice a minute"),
)
"""The aims in the order of the page.

A reason names what takes the time or memory, so it stays true when figures change.

Those of `check` are for two cores.
"""


def missed(runs: Mapping[str, Run]) -> list[str]:
    """Return a line for each aim that a run misses or has no figure for."""
    lines = []
    for aim in AIMS:
        if run := runs.get(aim.part):
            if (figure := run.figures.get(aim.figure)) is None:
                lines.append(f"{aim.part}: no figure {aim.figure!r}")
            elif not aim.met(figure):
                bound = f"{'at least' if aim.least else 'at most'} {aim.bound:g}"
                lines.append(f"{aim.part}: {aim.figure}: {figure.median:g} {figure.unit}, aim {bound}: {aim.reason}")
    return lines
