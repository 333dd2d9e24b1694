"""Writes the pages of figures (docs/evidence/speed.md, bench/figures.md), and the figures in README.md and scale.md."""

import re
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill

from bench import aims, runs, tables
from bench.gpu import page as gpu
from bench.runs import ROOT, Figure, Run
from docs import parts

PAGE = ROOT / "docs" / "evidence" / "speed.md"
TABLES = ROOT / "bench" / "figures.md"
README = ROOT / "README.md"
SCALE = ROOT / "docs" / "evidence" / "scale.md"

BEGIN, END = "<!-- figures: written by `make docs` from bench/runs -->\n", "<!-- end of the figures -->\n"


ANSWERED = """## Answered

These questions are no longer measured. `bench/pythons.py` was last changed at commit `3c0084f`. Commit `3f7453e` has it
with the run that gave the figures, whose ratios are to the CPython 3.11.7 that ran the benchmarks.

- **Should the engine be compiled?** No: with mypyc, `serve` answered 1.03 times as many reviews of 4 KB a second, and a
  wheel for each platform is worth it only from 1.25 times on.
- **Is a newer Python faster?** A little: Debian's 3.11, 3.13 and 3.14 answered 1.09, 1.12 and 1.13 times as many
  reviews of 4 KB a second, with 1.18, 1.19 and 1.33 times the memory. The image stays on 3.13.
- **Can workers be threads without the GIL?** Not yet: orjson 3.13 has no wheel for a CPython 3.13 or 3.14 without it.
"""
"""Benchmarks that were removed: what they found, and where their code is."""


def write() -> None:
    """Write all pages and figures."""
    kept = runs.read()
    for file, text in pages(kept).items():
        file.write_text(text, "utf-8")


def pages(kept: Mapping[str, Run]) -> dict[Path, str]:
    """Return the text of each file that has figures."""
    return {
        PAGE: page(kept),
        TABLES: figures(kept),
        README: filled(README.read_text("utf-8"), readme(kept)),
        gpu.PAGE: gpu.page(),
        SCALE: filled(SCALE.read_text("utf-8"), scale(kept)),
    }


def filled(text: str, figures: str) -> str:
    """Put figures between the two marks in a text. Raises ValueError unless each mark occurs once."""
    return parts.filled(text, BEGIN, END, figures)


def page(kept: Mapping[str, Run]) -> str:
    """Write the page on speed: the aims and the charts."""
    return f"""# How fast it is

`make bench` measures these figures, keeps them in `bench/runs`, and writes this page. [bench](../../bench/README.md)
explains how each figure is measured and how to read it, and [figures](../../bench/figures.md) has the full table of
each part. Load and servers share the machine, so a ratio says more than a time.

![Rate and p99 latency of the webhooks, Slicewarden = 1](../img/speed.svg)

## Aims

{_aims(kept)}

![Each figure to its aim: what ends left of the line keeps it](../img/aims.svg)

[Large clusters](scale.md) shows the load that a cluster of thousands of nodes puts on the replicas.

{ANSWERED}"""


def figures(kept: Mapping[str, Run]) -> str:
    """Write the table that each part printed, with the machine and the tree."""
    parts = "\n\n".join(
        f"## {run.title}\n\n{_where(run)}\n\n{run.text}" for name, run in kept.items() if name != "scale"
    )
    return f"""# Figures of each part

Written by `make docs` from `bench/runs`. [How fast it is](../docs/evidence/speed.md) has the aims.

{parts}
"""


def scale(kept: Mapping[str, Run]) -> str:
    """Write the figures of docs/evidence/scale.md."""
    return f"{_where(kept['scale'])}\n\n{kept['scale'].text}\n" if "scale" in kept else ""


def _where(run: Run) -> str:
    """Name the machine, the time and the tree of a part's measurement."""
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    machine = run.machine
    busy = f", beside other work (load {machine.load:g})" if run.busy else ""
    return (
        f"Measured {run.day} at `{run.commit}` in {run.seconds} s on {machine.cores} cores of {machine.cpu}, "
        f"{machine.memory_gib} GiB{busy}; {versions}."
    )


def _aims(kept: Mapping[str, Run]) -> str:
    rows = []
    for aim in aims.AIMS:
        figure = kept[aim.part].figures.get(aim.figure) if aim.part in kept else None
        bound = f"{'≥' if aim.least else '≤'} {_amount(aim.bound, figure.unit if figure else '')}"
        head = (kept[aim.part].title if aim.part in kept else aim.part, aim.figure, bound)
        if figure is None:
            rows.append((*head, "not measured", "", ""))
            continue
        verdict = "met" if aim.met(figure) else f"missed: {aim.reason}"
        rows.append((*head, _amount(figure.median, figure.unit), _spread(figure), verdict))
    return tables.markdown(("part", "figure", "aim", "median", "spread", ""), rows)


def _amount(value: float, unit: str) -> str:
    return f"{value:,.4g} {unit}".rstrip()


def _spread(figure: Figure) -> str:
    return "" if figure.min == figure.max else f"{figure.min:,.4g}-{figure.max:,.4g}"


SENTENCES = (
    "- **A decision** on a GPU pod takes {instructions/4 KB, mutate: to parsing} times the machine instructions of "
    "parsing its 4 KB review, and {instructions/40 KB, mutate: to parsing} times those of a 40 KB one.",
    "- **Over HTTPS**, with 32 connections, it answers "
    "{https/4 KB, 32 connections: reviews a second, to Go net/http} times as many reviews of 4 KB a second as "
    "a webhook in Go that judges nothing, and "
    "{https/40 KB, 32 connections: reviews a second, to Go net/http} times as many of 40 KB.",
    "- **Through a real API server**, the p99 of a GPU pod's creation is "
    "{apiserver/4 KB, 8 connections, Slicewarden: p99, to none} times that without a webhook.",
    "- **On the command line**, one file takes {check/slicewarden check, one file} and 10,000 files "
    "{check/10,000, a file each}.",
    "- **A replica** uses {https/4 KB, 32 connections: memory}.",
)
"""The sentences for README.md. `{PART/FIGURE}` stands for a figure.

Sentences with an unmeasured figure are left out.
"""


def readme(kept: Mapping[str, Run]) -> str:
    """Write the sentences of README.md."""
    said = [line for sentence in SENTENCES if (line := _said(sentence, kept))]
    named = {part for sentence in SENTENCES for part in re.findall(r"\{([^/{}]+)/", sentence)}
    if any(kept[part].busy for part in named & kept.keys()):
        said.append("- Some of this was measured beside other work, which makes it look slower than it is.")
    return "".join(f"{fill(line, 120, subsequent_indent='  ', break_on_hyphens=False)}\n" for line in said)


def _said(sentence: str, kept: Mapping[str, Run]) -> str | None:
    """Put figures into a sentence, with two significant digits; None if one of them was not measured."""
    words = []
    for text, part, name in re.findall(r"([^{}]+)(?:\{([^/{}]+)/([^{}]+)\})?", sentence):
        words.append(text)
        if not part:
            continue
        figure = kept[part].figures.get(name) if part in kept else None
        if figure is None:
            return None
        unit = "" if figure.unit == "×" else f" {figure.unit}"
        words.append(f"{float(f'{figure.median:.2g}'):,g}{unit}")
    return "".join(words)
