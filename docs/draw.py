"""Draws the pictures of the README and the pages, from real runs: `make docs`.

Each picture is an SVG that loads nothing, and follows the reader's choice of light or dark colours.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from bench import runs
from bench.aims import AIMS
from bench.runs import Figure, Run
from webhook import rules
from webhook.documents import files
from webhook.documents.documents import read
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.policy.load import load
from webhook.policy.model import Policy
from webhook.reports.formats.html import bar
from webhook.scan.judge import judge
from webhook.scan.results import Judged
from webhook.scan.sharing import overview
from webhook.text.terminal import Look

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TOUR = ROOT / "webhook/sample/tour"
FACTS = ROOT / "webhook/sample/facts.yaml"
POLICY = ROOT / "policies/sample.yaml"

STYLE = """
svg { color-scheme: light dark; }
text { font-family: system-ui, sans-serif; font-size: 15px; fill: #17211c; }
.mono { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 14px; }
.strong { font-weight: 600; } .faint { fill: #526059; } .small { font-size: 13px; } .tiny { font-size: 12px; }
.panel { fill: #f5f7f6; stroke: #cbd5d0; } .card { fill: #e3e8e5; stroke: #8b97a0; }
.denied { fill: #a3140f; } .warned { fill: #7a4a00; } .allowed { fill: #17652f; }
.cap { fill: #3f9a54; } .context { fill: #c58a1b; } .reserve { fill: #8b97a0; } .slice { fill: #c9dccf; }
.arrow { stroke: #526059; stroke-width: 2; fill: none; } .head { fill: #526059; }
.ours { fill: #17652f; } .theirs { fill: #8b97a0; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6ede9; } .faint { fill: #a3b0a9; }
  .panel { fill: #18201c; stroke: #35423b; } .card { fill: #26302b; stroke: #7d8a94; }
  .denied { fill: #ff9c94; } .warned { fill: #f2bf6b; } .allowed { fill: #85d99b; }
  .cap { fill: #45a85c; } .context { fill: #d59b30; } .reserve { fill: #7d8a94; } .slice { fill: #33493c; }
  .arrow { stroke: #a3b0a9; } .head { fill: #a3b0a9; }
  .ours { fill: #85d99b; } .theirs { fill: #7d8a94; }
}
"""


def picture(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """Put parts into an SVG of this size, in pixels; the title is what a screen reader says."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label={quoteattr(title)}>\n<title>{escape(title)}</title>\n<style>{STYLE}</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def text(x: float, y: float, words: str, style: str = "", anchor: str = "start") -> str:
    """Write one line."""
    return f'<text x="{x:g}" y="{y:g}" class="{style}" text-anchor="{anchor}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, style: str, radius: int = 8) -> str:
    """Draw a rectangle."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}" class="{style}"/>'


def arrow(x: float, y: float, to: float) -> str:
    """Draw an arrow to the right."""
    return f'<path d="M{x:g} {y:g}H{to - 8:g}" class="arrow"/><path d="M{to:g} {y:g}l-10-5v10z" class="head"/>'


def way(*corners: tuple[float, float]) -> str:
    """Draw a line of horizontal and vertical parts through its corners, with an arrowhead at its end."""
    (x, y), (end_x, end_y) = corners[-2:]
    across, down = (end_x > x) - (end_x < x), (end_y > y) - (end_y < y)
    line = "L".join(f"{x:g} {y:g}" for x, y in (*corners[:-1], (end_x - 8 * across, end_y - 8 * down)))
    to, away = -10 * across - 5 * down, -10 * down - 5 * across
    return (
        f'<path d="M{line}" class="arrow"/>'
        f'<path d="M{end_x:g} {end_y:g}l{to:g} {away:g}l{10 * down:g} {10 * across:g}z" class="head"/>'
    )


def wrapped(words: str, characters: int) -> list[str]:
    """Break a text into lines."""
    return list(Look(characters).wrap(words, ""))


# Real runs


def world() -> tuple[Policy, Facts]:
    """The sample policy and the sample cluster."""
    documents, _ = read(POLICY.read_text("utf-8"), POLICY.name)
    policy = load(documents, [rule.id for rule in rules.walk()], POLICY.name)
    documents, _ = read(FACTS.read_text("utf-8"), FACTS.name)
    return policy, Facts.of(item for document in documents for item in document.value["items"])


def judged(name: str, policy: Policy, facts: Facts) -> Judged:
    """Judge a file of the tour."""
    documents, _ = read((TOUR / name).read_text("utf-8"), name)
    (item,), _ = files.items(documents)
    result = judge(item, Engine(policy, rules.walk()), facts)
    if not isinstance(result, Judged):
        raise TypeError(f"{name} is not judged")
    return result


# Pictures


def flow(policy: Policy, facts: Facts) -> str:
    """Draw three pods: one is steered to a shared GPU and capped, one gets a whole GPU, one is denied."""
    shared, whole = judged("01-trusted.yaml", policy, facts), judged("02-untrusted.yaml", policy, facts)
    denied = judged("05-two-slices.yaml", policy, facts)
    (to_shared,), (to_whole,) = shared.landings, whole.landings
    if not (shared.verdict.allowed and whole.verdict.allowed and to_shared.cap) or denied.verdict.allowed:
        raise ValueError("the tour has other verdicts than the picture shows")
    cap, card = to_shared.cap, to_shared.cap.card
    reason = denied.verdict.results[0]
    whole_product = next(pool.nodes[0].product for pool in overview(policy, facts) if pool.name == to_whole.pool)
    parts = [box(325, 30, 190, 325, "panel", 12), text(420, 70, "Slicewarden", "strong", "middle")]
    lines = (
        "mutates: steers pods,",
        "caps GPU memory",
        "",
        "validates: allows",
        "or denies, and says why",
        "",
        f"{len(rules.walk())} rules, one policy:",
        "pools, and who is trusted",
    )
    parts += [text(420, 112 + 26 * row, line, "small", "middle") for row, line in enumerate(lines)]
    for row, (pod, trust) in enumerate(
        ((shared, "asks to be trusted"), (whole, "untrusted"), (denied, "asks to be trusted"))
    ):
        top = 30 + 115 * row
        asks = ", ".join(f"{name}: {amount}" for name, amount in pod.landings[0].asks.items())
        parts += [
            box(10, top, 265, 95, "panel"),
            text(24, top + 28, pod.title, "strong"),
            text(24, top + 54, asks, "mono"),
            text(24, top + 78, trust, "small faint"),
            arrow(279, top + 47, 321),
            arrow(519, top + 47, 561),
        ]
    parts += [box(565, 30, 325, 95, "panel"), text(579, 54, f"pool {to_shared.pool}", "strong")]
    for slice_ in range(card.replicas):
        parts.append(box(579 + 75 * slice_, 64, 69, 24, "slice" if slice_ else "cap", 3))
    parts.append(text(579, 112, f"{card.product}: 1 slice of {card.replicas}, capped at {cap.mib:,} MiB", "small"))
    parts += [
        box(565, 145, 325, 95, "panel"),
        text(579, 169, f"pool {to_whole.pool}", "strong"),
        box(579, 179, 294, 24, "cap", 3),
        text(579, 227, f"{whole_product}: a whole GPU", "small"),
    ]
    parts += [box(565, 260, 325, 95, "panel"), text(579, 284, f"denied: {reason.rule}", "strong denied")]
    said = wrapped(reason.finding.message, 45)
    parts += [text(579, 305 + 15 * row, line, "tiny") for row, line in enumerate(said[:4])]
    return picture(
        900, 370, "Three pods: one is steered to a shared GPU and capped, one gets a GPU, one is denied", parts
    )


def part(x: float, y: float, height: float, name: str, *lines: str, ours: bool = True) -> list[str]:
    """Draw a part of the architecture: its name in a box of 210 pixels, with what it does."""
    return [
        box(x, y, 210, height, "slice" if ours else "panel"),
        text(x + 105, y + 24, name, "strong", "middle"),
        *(text(x + 105, y + 45 + 18 * row, line, "small", "middle") for row, line in enumerate(lines)),
    ]


def architecture() -> str:
    """Draw who asks whom: API server, webhook, fallback, command line, policy and agent."""
    parts = [
        *part(10, 10, 40, "kubectl, GitOps", ours=False),
        *part(680, 10, 40, "CI, editors", ours=False),
        *part(10, 100, 160, "API server", "stores what is admitted", ours=False),
        *part(345, 100, 110, "webhook", "engine and rules:", "steers, caps, denies"),
        *part(680, 100, 110, "slicewarden", "check, diff, test, audit:", "the same engine and rules"),
        box(24, 196, 182, 50, "slice"),
        text(115, 217, "fallback", "small strong", "middle"),
        text(115, 235, "admission policies in CEL", "tiny", "middle"),
        *part(10, 330, 60, "node agent", "reads GPU use from NVML"),
        *part(345, 330, 60, "policy in Git", "pools, and who is trusted"),
        *part(680, 330, 60, "reports", "terminal, browser, CI"),
        way((115, 50), (115, 98)),
        way((785, 50), (785, 98)),
        way((220, 128), (343, 128)),
        text(281, 121, "AdmissionReview", "tiny", "middle"),
        way((345, 158), (222, 158)),
        text(281, 151, "verdict, patch", "tiny", "middle"),
        way((220, 188), (343, 188)),
        text(281, 181, "facts, by watches", "tiny", "middle"),
        way((450, 330), (450, 212)),
        way((345, 360), (281, 360), (281, 221), (208, 221)),
        text(287, 300, "made from it", "tiny"),
        way((555, 360), (617, 360), (617, 155), (678, 155)),
        way((785, 210), (785, 328)),
        way((60, 330), (60, 262)),
        text(68, 300, "Events, taints", "tiny"),
        way((180, 260), (180, 328)),
        text(188, 300, "pods", "tiny"),
    ]
    return picture(900, 400, "The architecture: the webhook, the fallback and the command line share a policy", parts)


def memory(policy: Policy, facts: Facts) -> str:
    """Draw the memory of a shared GPU of the sample cluster."""
    division = next(division for pool in overview(policy, facts) for division in pool.divisions)
    budget, made = division.budget, bar(division)
    parts = [
        text(
            10, 26, f"One {budget.card.product}: {budget.card.memory:,} MiB in {budget.card.replicas} slices", "strong"
        )
    ]
    parts.append(box(10, 40, 880, 60, "card", 4))
    heights = {"reserve": (52, 36), "context": (46, 48), "cap": (40, 60)}
    for part in made.segments:
        top, height = heights[part.style]
        parts.append(box(10 + part.start * 0.88, top, max(part.width * 0.88 - 1.5, 0.5), height, part.style, 2))
    for row, (style, words) in enumerate(
        (
            ("reserve", f"{budget.reserve} MiB reserve for the driver and fragmentation"),
            ("context", f"{budget.context} MiB for the CUDA context of each process"),
            ("cap", f"{budget.budget:,} MiB cap of each slice, {budget.fraction} of the GPU"),
        )
    ):
        parts += [box(10, 114 + 24 * row, 14, 14, style, 2), text(32, 126 + 24 * row, words, "small")]
    return picture(900, 184, made.words, parts)


OURS = "Slicewarden"
RATE, SLOWEST = "reviews a second, to ", "p99, to "


def ratios(figures: Mapping[str, Figure], load: str, what: str) -> dict[str, float]:
    """Read the ratios of ours to each other server under a load, and turn them into theirs to ours, by name."""
    start = f"{load}: {what}"
    theirs = {name.removeprefix(start): 1 / each.median for name, each in figures.items() if name.startswith(start)}
    return {OURS: 1.0, **theirs}


def speed(kept: Mapping[str, Run]) -> str:
    """Draw how many reviews a second each webhook answers, and how long the slowest of a hundred wait."""
    figures = kept["https"].figures
    parts = []
    for row, review in enumerate(("4 KB", "40 KB")):
        for column, (what, title) in enumerate(
            ((RATE, "reviews a second, more is better"), (SLOWEST, "p99 latency, less is better"))
        ):
            values = ratios(figures, f"{review}, 32 connections", what)
            left, top, most = 10 + 450 * column, 24 + 155 * row, max(values.values())
            parts.append(text(left, top, f"{review}: {title}", "strong"))
            for place, (name, value) in enumerate(values.items()):
                y = top + 12 + 28 * place
                width = 220 * value / most
                parts += [
                    text(left, y + 15, name, "small"),
                    box(left + 130, y, width, 20, "theirs" if place else "ours", 3),
                    text(left + 138 + width, y + 15, f"{value:.2g}", "small"),
                ]
    words = f"{OURS} = 1. TLS, 32 kept connections, on {kept['https'].machine.cores} cores shared with the load."
    parts.append(text(10, 328, words, "small faint"))
    return picture(900, 340, f"Rate and p99 latency of webhooks, {OURS} = 1", parts)


def aimed(kept: Mapping[str, Run]) -> str:
    """Draw each figure in its aim: a bar that ends left of the line keeps it."""
    left, unit, step = 440, 200, 24
    parts, rows = [], 0
    for aim in AIMS:
        figure = kept[aim.part].figures.get(aim.figure) if aim.part in kept else None
        if figure is None:
            continue
        share = aim.bound / figure.median if aim.least else figure.median / aim.bound
        y, width = 30 + step * rows, unit * min(max(share, 0), 1.9)
        parts += [
            text(10, y + 14, f"{aim.part}: {aim.figure}", "tiny"),
            box(left, y, width, 16, "cap" if aim.met(figure) else "context", 3),
            text(left + width + 6, y + 13, f"{figure.median:.3g}{figure.unit and ' ' + figure.unit}", "tiny"),
        ]
        rows += 1
    height = 40 + step * rows
    parts.append(f'<path d="M{left + unit} 24V{height - 8}" class="arrow"/>')
    parts.append(text(left + unit, 18, "aim", "small", "middle"))
    return picture(900, height, "Each figure in its aim", parts)


def pictures() -> dict[str, str]:
    """Every picture, by its file's name."""
    policy, facts = world()
    kept = runs.read()
    return {
        "architecture.svg": architecture(),
        "overview.svg": flow(policy, facts),
        "memory.svg": memory(policy, facts),
        "speed.svg": speed(kept),
        "aims.svg": aimed(kept),
    }


if __name__ == "__main__":
    for name, drawn in pictures().items():
        (HERE / "img" / name).write_text(drawn, "utf-8")
