"""Writes the page on frameworks, docs/frameworks.md, from the tables of their files."""

from collections.abc import Iterable, Iterator

from webhook.memory.command_line import PROGRAMS
from webhook.memory.frameworks import walk
from webhook.memory.tables import Variable
from webhook.text import tables

ELSEWHERE = (
    ("RAPIDS RMM, cuDF", "`maximum_pool_size` of the memory resource", "rmm, every getenv in it"),
    ("Dask-CUDA", "`--rmm-maximum-pool-size`; `--device-memory-limit` only spills", "dask-cuda documentation"),
    ("ONNX Runtime", "the provider option `gpu_mem_limit`, for its arena", "onnxruntime documentation"),
    ("TensorRT", "`setMemoryPoolLimit`, for the builder's workspace", "TensorRT documentation"),
    ("XGBoost, LightGBM", "nothing", "no such name in the wheels"),
    ("Transformers, Accelerate", "PyTorch's variables; `device_map` plans with the whole card", "their code"),
    ("Ray", "nothing: a fractional `num_gpus` is bookkeeping", "docs.ray.io, resources"),
)
"""Other frameworks, and where their limit is set: name, place, source."""


def text() -> str:
    """Write the page, in Markdown."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield "# What frameworks know of memory caps"
    yield ""
    yield "Written by `slicewarden explain frameworks` from the files in `webhook/memory/frameworks/`."
    yield "Most of it was seen by running the frameworks' own wheels on a stub CUDA driver that counts allocations."
    yield "[memory-caps.md](memory-caps.md) says what a cap does not reach."
    yield ""
    yield "## Variables"
    for owner, variables in (
        *((framework.name, framework.variables) for framework in walk()),
        *((program.name, program.variables) for program in PROGRAMS),
    ):
        for variable in variables:
            yield from _variable(owner, variable)
    yield from _section(
        "What takes a cap away",
        "Slicewarden warns of these, or refuses them with `memory.defeats: Deny`.",
        ("framework", "variable", "values", "what it does", "source"),
        (
            (f"`{framework.name}`", f"`{defeat.name}`", values, effect, defeat.source)
            for framework in walk()
            for defeat in framework.defeats
            for values, effect in defeat.ways
        ),
    )
    for framework in walk():
        for section in framework.sections:
            yield from _section(*section)
    yield from _section(
        "Programs that only an argument limits",
        "Slicewarden warns of these. With `memory.arguments: Append` it adds the argument where a container clearly\n"
        "starts one of them.",
        ("program", "argument", "source"),
        (
            (program.name, f"`{program.flag}`" if program.flag else f"none: {program.advice}", program.source)
            for program in PROGRAMS
        ),
    )
    yield from _section("Without any", "", ("framework", "where its limit is set", "source"), ELSEWHERE)


def _variable(owner: str, variable: Variable) -> Iterator[str]:
    yield ""
    yield f"### `{variable.name}`"
    yield ""
    yield from _table(
        ("", ""),
        (
            ("framework", f"`{owner}`"),
            ("value", f"`{variable.text}`" if variable.text else variable.form.value),
            ("effect", variable.effect.value),
            ("since", variable.since),
            ("a bad value", variable.bad),
            ("merging", variable.merge),
            ("written where absent", "yes" if variable.written else "no"),
            ("source", variable.source),
        ),
    )


def _section(title: str, above: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield ""
    yield f"## {title}"
    yield ""
    if above:
        yield above
        yield ""
    yield from _table(head, rows)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield from tables.markdown(head, (tuple(map(tables.escaped, row)) for row in rows))
