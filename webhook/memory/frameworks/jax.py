"""JAX: one of two variables sets the fraction of the card that its BFC allocator takes; it fails if both are set."""

import re
from collections.abc import Iterator

from webhook.memory.steps import Cap, Environment, Step, StepKind, Words, not_known, stricter_fraction, unknown
from webhook.memory.tables import ABSENT, ALONE, STRICTER, Defeat, Form, Variable, VariableEffect, word

TITLE = "jax"
ORDER = 3
FRACTIONS_ONLY = True

OLD, NEW = "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION"
PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"
COLLECTIVE = "XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB"

_OPTIONS = "jax jaxlib/xla_client.py generate_pjrt_gpu_plugin_options"

VARIABLES = (
    Variable(
        OLD,
        Form.FRACTION,
        VariableEffect.HARD,
        since="jaxlib 0.4.1; of free memory before",
        bad="percent is refused, more than 1 may exceed the card, less than 0 is no limit",
        merge=STRICTER,
        source=_OPTIONS,
    ),
    Variable(
        NEW,
        Form.FRACTION,
        VariableEffect.HARD,
        since="jaxlib 0.4.33; jax refuses to start where both names are set",
        bad="as above",
        merge="of two limits the smaller one stands; where it is absent it is set to nothing, "
        "so that an image cannot set it next to the older name",
        source=_OPTIONS,
    ),
    Variable(
        PREALLOCATE,
        Form.TEXT,
        VariableEffect.GROWTH,
        since="all",
        bad="all but `false`, `False` and `0` is true",
        merge=ABSENT,
        source=_OPTIONS,
        text="false",
        default=True,
    ),
    Variable(
        COLLECTIVE,
        Form.MIB,
        VariableEffect.NONE,
        since="jaxlib 0.4.36 or before; a pool for collectives next to the fraction",
        bad="fails at the start",
        merge=f"{ALONE}, with a warning",
        source=_OPTIONS,
        written=False,
    ),
)

# Variables that take the cap away

_OTHER_ALLOCATOR = "chooses an allocator that keeps no cap"
_OTHER_FRACTION = "sets a fraction that overrides jax's variables"
_HOST_MEMORY = "lets jax take the host's memory as the GPU's"
_FLAGS_FILE = "names a file of flags, which Slicewarden does not read"
_TEMPORARY_BUFFERS = "gives temporary buffers an allocator that keeps no cap"
_COLLECTIVE_POOL = "gives collectives a pool next to the cap"
_PLUGIN = "loads a plugin, whose options Slicewarden does not read"

_KEEPS_CAP = ("", "default", "bfc")
_TEMPORARY_FLAG, _UPDATE_FLAG = "xla_gpu_temp_buffer_use_separate_color", "xla_gpu_command_buffer_update_mode"
_FLAGS = {
    _TEMPORARY_FLAG: (("0", "false"), _TEMPORARY_BUFFERS),
    _UPDATE_FLAG: (("always_update",), _OTHER_ALLOCATOR),
}
"""XLA's flags that can take the cap away, the values that leave it, and the effect of all other values."""


def _create_options(value: str) -> str:
    """Read `key:value` pairs with semicolons between them, as jax does (jax/_src/xla_bridge.py)."""
    for pair in value.split(";"):
        key, _, chosen = pair.partition(":")
        if word(key) == "allocator" and word(chosen) not in _KEEPS_CAP:
            return _OTHER_ALLOCATOR
        if word(key) == "memory_fraction":
            return _OTHER_FRACTION
    return ""


_BLANKS = " \t\r\n"

_FLAG = re.compile(
    r"""[ \t\r\n]*+(?P<name>-[-\w]*+)"""
    r"""(?:="(?P<double>(?:[^"\\]|\\.?)*+)"?|='(?P<single>[^']*+)'?|(?P<plain>[^ \t\r\n]*+))""",
    re.ASCII | re.DOTALL,
)
"""A flag and the blanks before it. It ends where its quoted value ends, even if no blank follows."""

_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def split_flags(flags: str) -> Iterator[str]:
    """Yield flags without quotes, as XLA reads them (xla/parse_flags_from_env.cc, ParseArgvFromString).

    A word without a hyphen ends the flags. A value is quoted only if it begins with a quote. A backslash is literal,
    except between double quotes.
    """
    at = 0
    while flag := _FLAG.match(flags, at):
        if flag["plain"] is not None:
            yield flag["name"] + flag["plain"]
        else:
            quoted = flag["single"] if flag["double"] is None else _ESCAPED.sub(r"\1", flag["double"])
            yield f"{flag['name']}={quoted}"
        at = flag.end()


def _xla_flags(value: str) -> str:
    """Read XLA's flags: with a hyphen first they are flags, else the name of a file (xla/parse_flags_from_env.cc)."""
    if not value.lstrip(_BLANKS).startswith("-"):
        return _FLAGS_FILE if value else ""
    for flag in split_flags(value):
        name, _, chosen = flag.lstrip("-").partition("=")
        harmless, effect = _FLAGS.get(name, ((), ""))
        if effect and word(chosen) not in harmless:
            return effect
    return ""


DEFEATS = (
    Defeat(
        "XLA_PYTHON_CLIENT_ALLOCATOR",
        (("all but nothing, `bfc`, `default`", _OTHER_ALLOCATOR),),
        lambda value: "" if word(value) in _KEEPS_CAP else _OTHER_ALLOCATOR,
        source=_OPTIONS,
    ),
    Defeat(
        "JAX_PJRT_CLIENT_CREATE_OPTIONS",
        (("`allocator:` with all but `bfc`, `default`", _OTHER_ALLOCATOR), ("`memory_fraction:`", _OTHER_FRACTION)),
        _create_options,
        source="jax jax/_src/xla_bridge.py; xla xla/pjrt/c/pjrt_c_api_gpu_internal.cc",
    ),
    Defeat(
        "TF_FORCE_UNIFIED_MEMORY",
        (("all but nothing, `0`, `false`", _HOST_MEMORY),),
        lambda value: "" if word(value) in ("", "0", "false") else _HOST_MEMORY,
        source="xla xla/pjrt/gpu/gpu_helpers.cc",
    ),
    Defeat(
        "XLA_FLAGS",
        (
            (f"`--{_TEMPORARY_FLAG}`, unless it is `=0` or `=false`", _TEMPORARY_BUFFERS),
            (f"`--{_UPDATE_FLAG}`, unless it is `=ALWAYS_UPDATE`", _OTHER_ALLOCATOR),
            ("all that begin with no hyphen", _FLAGS_FILE),
        ),
        _xla_flags,
        source="xla xla/pjrt/gpu/se_gpu_pjrt_client.cc, xla/parse_flags_from_env.cc",
    ),
    Defeat(
        COLLECTIVE,
        (("all but nothing, `0`", _COLLECTIVE_POOL),),
        lambda value: _COLLECTIVE_POOL if value.strip().strip("0") else "",
        source=_OPTIONS,
    ),
    Defeat(
        "PJRT_NAMES_AND_LIBRARY_PATHS",
        (("all but nothing", _PLUGIN),),
        lambda value: _PLUGIN if value else "",
        source="jax jax/_src/xla_bridge.py register_pjrt_plugin_factories_from_env",
    ),
)

BOTH_NAMES = Words(
    f"jax does not start with both {OLD} and {NEW}; remove one", "jax: does not start with both its names set"
)


def merge(env: Environment, cap: Cap) -> Iterator[Step]:
    """Keep a fraction that is no larger than the cap, under the name that the author chose."""
    budget = cap.budget
    old, new = env.get(OLD, ""), env.get(NEW, "")
    if old != "" and new != "":
        if unknown(old) or unknown(new):
            yield not_known("jax", OLD if unknown(old) else NEW)
        else:
            yield Step(StepKind.UNSURE, OLD, BOTH_NAMES)
        return
    if new != "":
        yield from stricter_fraction("jax", NEW, new, budget)
        return
    if OLD in env:
        yield from stricter_fraction("jax", OLD, old, budget)
    else:
        yield Step(StepKind.ADD, OLD, value=budget.fraction)
    if NEW not in env:  # written empty, so that an image cannot set it next to the older name
        yield Step(StepKind.ADD, NEW, value="")
