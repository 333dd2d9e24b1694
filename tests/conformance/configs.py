"""Make the configurations that the device plugin is asked about: as people write them, bent in every way of YAML."""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import yaml
from hypothesis import strategies as st

from tests import ROOT


def words(row: str) -> list[str]:
    """Split at blanks."""
    return row.split(" ")


FIXTURES = ROOT / "tests/fixtures"


class Node(NamedTuple):
    """A piece of YAML: `parts` are pairs of a map, nodes of a list, or a scalar's text; `props` stand before it."""

    kind: str
    parts: Any
    props: str = ""
    flow: bool = False


def scalar(text: str) -> Node:
    return Node("scalar", text)


def render(node: Node, indent: int = 0, flow: bool = False) -> str:
    """Write a node as it stands after a colon or a dash, without what separates it from them."""
    props = f"{node.props} " if node.props else ""
    if node.kind == "scalar":
        return props + str(node.parts).replace("\n", "\n" + " " * (indent + 2))
    flow = flow or node.flow or not node.parts
    if flow and node.kind == "list":
        return f"{props}[{', '.join(render(each, indent, flow=True) for each in node.parts)}]"
    if flow:
        return f"{props}{{{', '.join(f'{key}: {render(value, indent, flow=True)}' for key, value in node.parts)}}}"
    margin = "\n" + " " * indent
    if node.kind == "list":
        rows = [f"- {render(each, indent + 2).lstrip(chr(10) + ' ')}" for each in node.parts]
    else:
        rows = [f"{key}:{_after_colon(value, indent)}" for key, value in node.parts]
    return props + margin + margin.join(rows)


def _after_colon(node: Node, indent: int) -> str:
    text = render(node, indent + 2)
    return text if text.startswith("\n") else f" {text}"


# Words, the honest ones first. Those without a blank stand in rows.

NAMES = ("nvidia.com/gpu", "gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared")
ODD_NAMES = (
    *words("nvidia.com/GPU NVIDIA.com/gpu amd.com/gpu nvidia.com/ nvidia.com/nvidia.com/gpu mig-1g.5gb+me"),
    *words("nvidia.com/gpu/x nvidia/gpu a..b -a a- a_b a.-b 1 1.5 '1.5' y 'y' 0x10 2001-01-01 1e400 << = \u0261pu"),
    *("g" * 52, "g" * 53, "nvidia.com/" + "g" * 52, "nvidia.com/" + "g" * 53, '"gpu\\n"', '"gpu\\x41"', "gpu ", "g u"),
    *(
        "|\n gpu",
        "|-\n gpu",
        ">-\n gpu",
        "!!str gpu",
        "!!str 1",
        "!!binary Z3B1",
        "!!binary Z3B1/w==",
        "! gpu",
        "! 1",
        "!x 1",
    ),
)
COUNTS = ("2", "4", "10", "16")
NUMBERS = (
    *words(
        "0 1 -1 -2 +4 4.0 4. 4.5 .5 1e1 2e0 20e-1 1e9 1e20 1e21 1E3 4e+0 1e308 1e309 1e400 -1e400 .5e400 1e-400 2.e0"
    ),
    *words("0x10 0X10 -0x1 010 0o10 0O10 0o8 08 0b100 0B11 0b 0b+11 0b-11 -0b11 -0b-1 0b102 0x1p4 .0x1 0xg 0x"),
    *words("1_0 1__0_ _1 0x_4 0_7 0_8 1_0.0 1_0e1 .1_0 .2_e1 -0 -0.0 00 0. 00.5 0e0 0.0e0 1.5.2 1e 1e+ 4, 4# $4"),
    *words("2147483648 9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809"),
    *words("18446744073709551615 18446744073709551616 +18446744073709551615 9.223372036854775e18 9.3e18"),
    *("9" * 70, "0" * 70 + "4", "4." + "0" * 70, "4 ", "4 4", "4 # four", "&n 4", "4\u00a0", "\u0664", "4:30", "1:1"),
    *words(".inf -.INF +.Inf .nan .NaN +.nan . + - .. +. -. +.5 -.5e1 infinity nan '4' \"4\" four 4,000 2001-01-01"),
    *("!!int 4", "!!int '4'", "!!int 4.0", "!!int", "!!int ''", "!!int y", "!!float 4", "!!float '4'", "!!float 1e1"),
    *(
        "!!float 18446744073709551615",
        "!!str 4",
        "! 4",
        "! '4'",
        "!x 4",
        "!!binary NA==",
        "!!null 4",
        "|\n 4",
        ">-\n 4",
    ),
    *(
        "!!timestamp 2001-01-01",
        "!!timestamp 4",
        "!!timestamp 2001-02-30",
        "2001-1-1 1:1:1",
        "!!timestamp 2001-1-1 1:1:1",
    ),
    *("!<tag:yaml.org,2002:int> 4", "!<!int> 4", "!!timestamp 2001-01-01T00:00:00Z", "!!timestamp 2001-01-01 24:00:00"),
)
TRUTHS = ("true", "false", "yes", "no", "on", "off", "y", "N")
ODD_TRUTHS = (
    *words("True TRUE tRUE Y YES yEs On OFF oFF 'true' \"false\" 1 0 enabled t f !!bool"),
    *(
        "!!bool yes",
        "!!bool 'no'",
        "!!bool maybe",
        "!!str true",
        "! 'true'",
        "! true",
        "|\n true",
        "!!int 1",
        "true # ok",
    ),
)
NOTHINGS = (
    "",
    "~",
    "null",
    "Null",
    "NULL",
    "nULL",
    "!!null ''",
    "!!null",
    "!!str",
    "''",
    '""',
    "!!null x",
    "! ''",
    "!",
)
SHAPES = (
    "[]",
    "{}",
    "[[]]",
    "[{}]",
    "{a: b}",
    "[a]",
    "[~]",
    "{~: 1}",
    "[.inf]",
    "{.nan: 1}",
    "{? [a] : b}",
    "!!map {}",
)

_UUID = "b1028956-cfa2-0990-bf4a-5da9abb51763"
_IN_LISTS = (
    *words(
        "0 0:1 1:x -1 -0 -0.0 0.0 1.5 00 0: :0 0:1:2 +1 1_0 '' '0' '+1' '1_0' '0:1' 1e3 1e19 1e21 true all null \u0664"
    ),
    *words("18446744073709551615 18446744073709551616 '18446744073709551615' '18446744073709551616'"),
    *("'0018446744073709551615'", "'" + "0" * 30 + "1'", "[0]", "{}", "GPU-x", f"GPU-{_UUID}", f"gpu-{_UUID}", _UUID),
    *(
        f"GPU-{_UUID}".upper(),
        f"GPU-{_UUID}".replace("-", "")[3:],
        f"GPU-{_UUID.replace('-', '')}",
        f"GPU-{_UUID[:-1]}g",
    ),
    *(
        f"'GPU-{{{_UUID}}}'",
        f"'GPU-({_UUID})'",
        f"'GPU-\u00e9{_UUID}'",
        f"GPU-urn:uuid:{_UUID}",
        f"GPU-URN:UUID:{_UUID}",
    ),
    *(f"MIG-{_UUID}", f"MIG-GPU-{_UUID}/3/0", f"MIG-GPU-{_UUID}/3", f"MIG-GPU-{_UUID}/3/-1", f"MIG-{_UUID}/3/0"),
    *(f"MIG-GPU-{_UUID}/3/0/1", f"GPU-urn:uuid_{_UUID}", f"GPU-{_UUID[:8]}_{_UUID[9:]}", f"GPU-\u017fd{_UUID[2:]}"),
)
DEVICES = (
    *words("all All 'all' ALL 2 0 -1 '2' 2.5 2.0 1e1 1e21"),
    *(f"[{each}]" for each in _IN_LISTS),
    "[0, 1]",
    "[0, x]",
)
DURATIONS = (
    *words(
        "60s 1h30m infinite 60 0 -1 1.5 '60' '' 1d Infinite 1.5h .5s 5.s .s +5s -5s --5s +0 '0' '+0' '-0' '00' '+' '.'"
    ),
    *words("1\u00b5s 1\u03bcs 1us 1ns 1ms2us 1S 1e3s 1m1m true [1] 1e400 1e30 s 1.2.3s 1_0s \u0661s"),
    *words("9223372036854775807ns 9223372036854775808ns -9223372036854775808ns -9223372036854775809ns"),
    *words("2562047h47m16.854775807s 2562047h47m16.854775808s 99999999999999999999h 9999999999999999999ns"),
    *words("0.00000000000000000000001h 1.99999999999999999999999999h 0.9223372036854775807h 0.99999999999999999999h"),
    *words("9223372036854775.807999us 9223372036854775.808us 9223372036854775807.9ns -9223372036854775807.9ns"),
    *("60 s", "1h 30m", " 60s", "60s ", "|-\n 60s", "|\n 60s"),
)
VERSIONS = (
    *words("v1 'v1' V1 v2 v1beta1 1 1.0 true [v1] .inf \"v1\\n\""),
    "!!str v1",
    "v1 ",
    "{v1: 1}",
    "9" * 30,
    "! v1",
)
STRATEGIES = (
    *words("envvar volume-mounts cdi-annotations cdi-cri [envvar] 'envvar,cdi-cri' [] [~] Envvar [0] ['']"),
    "[envvar, cdi-cri]",
)
CHANNELS = (
    *words("[] [0] [1] 0 ['0'] [0.0] [-0.0] [null] [1e0] [0.5] {} [true] [9223372036854775808] [.0] [0x0]"),
    "[0, 0]",
    "[~, ~]",
    "[5, 0]",
)


def seldom(draw: st.DrawFn, times: int) -> bool:
    """Once in so many times; the ends of a range are tried more often than that."""
    return draw(st.integers(0, times - 1)) == times // 2


@st.composite
def rather(draw: st.DrawFn, wanted: st.SearchStrategy[Node], other: st.SearchStrategy[Node], times: int) -> Node:
    """Draw the wanted one, and once in so many times the other."""
    return draw(other) if seldom(draw, times) else draw(wanted)


def mostly(honest: Sequence[str], *odd: Sequence[str], times: int = 12) -> st.SearchStrategy[Node]:
    """Most often one of the honest words; else one of the others, or nothing, or another shape."""
    others = [each for group in odd for each in group] + list(NOTHINGS) + list(SHAPES)
    return rather(st.sampled_from(honest).map(scalar), st.sampled_from(others).map(scalar), times)


NAME = mostly(NAMES, ODD_NAMES)
COUNT = mostly(COUNTS, NUMBERS, times=6)
TRUTH = mostly(TRUTHS, ODD_TRUTHS)
TEXT = mostly(("x", "/run/nvidia"), ODD_NAMES, NUMBERS, TRUTHS)
DEVICE = mostly(("all", "[0]", "2"), DEVICES, NUMBERS, times=3)
DURATION = mostly(("60s", "infinite"), DURATIONS, NUMBERS, times=3)
VERSION = mostly(("v1",), VERSIONS, NUMBERS)


def choice(*honest: str) -> st.SearchStrategy[Node]:
    return mostly(honest, tuple(each.upper() for each in honest), NUMBERS[:4], ("x", "vfio", "[none]"), times=8)


def _kelvin(key: str) -> str:
    return key.replace("k", "\u212a").replace("K", "\u212a")


def _long_s(key: str) -> str:
    return key.replace("s", "\u017f").replace("S", "\u017f")


def _dotless(key: str) -> str:
    return key.replace("i", "\u0131").replace("I", "\u0130")


def _sharp(key: str) -> str:
    return key.replace("ss", "\u00df").replace("fl", "\ufb02")


def _kebab(key: str) -> str:
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in key)


def _quoted(key: str) -> str:
    return f'"{key}"'


def _asked(key: str) -> str:
    return f"? {key}\n"


KEYS: tuple[Callable[[str], str], ...] = (
    *[str] * 90,
    *(str.upper, str.lower, str.swapcase, str.title),
    *(_kelvin, _long_s, _dotless, _sharp, _kebab, _quoted),
    *(
        lambda key: f"!!str {key}",
        lambda key: f"!x {key}",
        lambda key: f"&k{key} {key}",
        lambda key: key + "s",
        lambda key: f"{key} ",
    ),
)


@st.composite
def maps(draw: st.DrawFn, fields: dict[str, st.SearchStrategy[Node]], always: Sequence[str] = ()) -> Node:
    """A map of some of these keys, spelt in some way, now and then twice or with others beside them."""
    names = [name for name in fields if name in always and not seldom(draw, 60)]
    rest = [name for name in fields if name not in always]
    names += draw(st.lists(st.sampled_from(rest), max_size=3)) if rest else []
    if seldom(draw, 12):
        names.append(draw(st.sampled_from(names)) if names else "x")
    names = draw(st.permutations(names)) if seldom(draw, 8) else names
    pairs = [(draw(st.sampled_from(KEYS))(name), draw(fields.get(name, TEXT))) for name in names]
    if seldom(draw, 90):
        pairs.insert(draw(st.integers(0, len(pairs))), draw(st.sampled_from(EXTRA)))
    return Node("map", pairs, draw(PROPS), draw(FLOW))


PROPS = st.sampled_from([""] * 150 + ["&a", "&b", "!!map", "!x", "!!str", "&a !!map", "!!null"])
FLOW = st.sampled_from([False] * 6 + [True])
EXTRA = tuple(
    (key, scalar(value))
    for key, value in (
        ("<<", "*a"),
        ("<<", "[*a, *b]"),
        ("<<", "{replicas: 4, name: gpu}"),
        ("<<", "{resources: [{name: gpu, replicas: 4}]}"),
        ("'<<'", "{replicas: 4}"),
        ("!!merge <<", "{replicas: 4}"),
        ("! '<<'", "{replicas: 4}"),
        ("<<", "1"),
        ("<<", "~"),
        ("<<", "[{name: gpu}, {replicas: 3, name: x}]"),
        ("x", "*a"),
        ("*a ", "x"),
        ("~", "1"),
        ("y", "1"),
        ("1", "2"),
        ("1.5", "2"),
        (".inf", "2"),
        ("x", ".inf"),
        ("x", "[.nan]"),
        ("18446744073709551615", "2"),
        ("9223372036854775808", "2"),
        ("1e400", "2"),
        ("!!binary /w==", "2"),
        ("[a]", "2"),
        ("{a: b}", "2"),
        ("x", "!!int y"),
        ("x", "!!float y"),
        ("x", "!!binary '*'"),
        ("x", "!!timestamp y"),
        ("x", "&a [*a]"),
        ("x", "&a {y: &a 1, z: *a}"),
        ("x", "&a 1"),
        ("x", "@y"),
        ("x", "%y"),
        ("x", '"\\q"'),
        ("x", '"\\ud800"'),
        ("x", "'a''b'"),
        ("x", "a: b"),
        ("x", "a\n b"),
        ("x", "a\n\n b"),
        ("x", "# c"),
        ("x", "[a, b"),
        ("x", "{a, b}"),
        ("x", "{a: , b: }"),
        ("x", "[a: b, c]"),
        ("x", "[? a : b]"),
        ("x", "{a:1}"),
        ("x", "{'a':1}"),
        ("x", "[a,]"),
        ("x", "[,]"),
        ("x", "http://a:8080/#b"),
        ("x", "a#b"),
        ("x", "- a"),
        ("x", "\n- a\n- b"),
        ("x", "|2\n  a\n b"),
        ("x", "|+\n a\n\n"),
        ("x", ">\n a\n\n  b"),
        ("x", "|0\n a"),
        ("x", "!"),
        ("x y", "z"),
        ("x:y", "z"),
        ("-x", "z"),
        ("?x", "z"),
        ("'x':", "z"),
        ("", "z"),
    )
)


@st.composite
def lists(draw: st.DrawFn, entries: st.SearchStrategy[Node]) -> Node:
    many = draw(st.sampled_from([1, 1, 1, 1, 2, 2, 3, 0]))
    return Node("list", [draw(entries) for _ in range(many)], draw(PROPS), draw(FLOW))


def odd(strategy: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    """Mostly what is wanted, now and then anything."""
    return rather(strategy, st.sampled_from(NOTHINGS + SHAPES + ("x", "4", "true")).map(scalar), 25)


ENTRY = maps({"name": NAME, "replicas": COUNT, "rename": NAME, "devices": DEVICE}, ("name", "replicas"))
SECTION = maps(
    {"resources": odd(lists(odd(ENTRY))), "renameByDefault": TRUTH, "failRequestsGreaterThanOne": TRUTH}, ("resources",)
)
PLUGIN_FLAGS: dict[str, st.SearchStrategy[Node]] = {
    "passDeviceSpecs": TRUTH,
    "deviceListStrategy": mostly(STRATEGIES[:6], STRATEGIES),
    "deviceIDStrategy": choice("uuid", "index"),
    "cdiAnnotationPrefix": TEXT,
    "nvidiaCTKPath": TEXT,
    "containerDriverRoot": TEXT,
}
GFD_FLAGS: dict[str, st.SearchStrategy[Node]] = {
    "oneshot": TRUTH,
    "noTimestamp": TRUTH,
    "sleepInterval": DURATION,
    "outputFile": TEXT,
    "machineTypeFile": TEXT,
}
OWN_FLAGS: dict[str, st.SearchStrategy[Node]] = {
    "migStrategy": choice("none", "single", "mixed"),
    "deviceDiscoveryStrategy": choice("auto", "nvml", "tegra"),
    "failOnInitError": TRUTH,
    "mpsRoot": TEXT,
    "nvidiaDriverRoot": TEXT,
    "nvidiaDevRoot": TEXT,
    "gdrcopyEnabled": TRUTH,
    "gdsEnabled": TRUTH,
    "mofedEnabled": TRUTH,
    "useNodeFeatureAPI": TRUTH,
}
WITHIN = maps({**PLUGIN_FLAGS, **OWN_FLAGS, "plugin": maps(PLUGIN_FLAGS), "gfd": maps(GFD_FLAGS)})
FLAGS = maps(
    {
        **OWN_FLAGS,
        "plugin": odd(rather(maps(PLUGIN_FLAGS), WITHIN, 4)),
        "gfd": odd(rather(maps(GFD_FLAGS), WITHIN, 4)),
        "sharing": SECTION,
    }
)
PATTERN = maps({"pattern": TEXT, "name": NAME}, ("pattern", "name"))
RESOURCES = maps({"gpus": odd(lists(PATTERN)), "mig": odd(lists(PATTERN))})
IMEX = maps({"channelIDs": mostly(("[]", "[0]"), CHANNELS, NUMBERS), "required": TRUTH})
SHARING = st.one_of(
    maps({"timeSlicing": odd(SECTION), "mps": odd(SECTION)}, ("timeSlicing",)),
    maps({"timeSlicing": odd(SECTION), "mps": odd(SECTION), "renameByDefault": TRUTH}, ("mps",)),
    maps({"timeSlicing": odd(SECTION), "mps": odd(SECTION), "TIMESLICING": SECTION, "MPS": SECTION}),
)
CONFIG = maps(
    {
        "version": VERSION,
        "sharing": odd(SHARING),
        "SHARING": odd(SHARING),
        "flags": odd(FLAGS),
        "resources": odd(RESOURCES),
        "imex": odd(IMEX),
        "timeSlicing": SECTION,
    },
    ("version", "sharing"),
)

BEFORE = (
    *[""] * 30,
    "---\n",
    "--- ",
    "---\n---\n",
    "%YAML 1.1\n---\n",
    "%YAML 1.2\n---\n",
    "%TAG ! x\n---\n",
    "%X\n--- ",
)
BEFORE = (*BEFORE, "# c\n", "\ufeff", "\n\n", "...\n")
AFTER = (
    *[""] * 30,
    "\n---\nx: [",
    "\n--- \nversion: v2",
    "\n...\n",
    "\n...\nx: 1",
    "\n...\n...\n",
    "\n...\n%YAML 1.2\n---\n",
)
AFTER = (*AFTER, "\n---\n\tx", "\n# c", "\n\t")


@st.composite
def written(draw: st.DrawFn) -> str:
    """A configuration built key by key."""
    body = render(draw(CONFIG))
    if seldom(draw, 4):
        body = f"\nx: &a {{replicas: 4}}\ny: &b {{name: gpu, replicas: 2}}{body}"
    return f"{draw(st.sampled_from(BEFORE))}{body.removeprefix(chr(10))}{draw(st.sampled_from(AFTER))}\n"


def _of_fixtures() -> list[str]:
    texts: list[str] = []
    for file in sorted(FIXTURES.glob("*-sharing-*/*.yaml")):
        for item in yaml.load_all(file.read_text("utf-8"), yaml.CSafeLoader):
            if item["kind"] == "ConfigMap":
                texts += (item.get("data") or {}).values()
    return [text for text in texts if len(text) < 2000]


TEXTS = _of_fixtures()

SCRAPS = (
    *words(
        ": - -- ? # , [ ] { } &a *a ! | > ' \" \\ % @ ` << ~ . _ 0 1 e x y n null true & * !< \\x \\u \\L !!str !!int"
    ),
    *(
        " ",
        "  ",
        "\t",
        "\n",
        "\r",
        "\r\n",
        "\n\n",
        ": ",
        ":\t",
        "- ",
        "? ",
        " #",
        "&a ",
        "*a ",
        "!!str ",
        "!!binary ",
        "!!int ",
    ),
    *(
        "|\n",
        ">-\n",
        "\\\n",
        "\\ ",
        "<<: ",
        "---\n",
        "\n---\n",
        "...\n",
        "\n...",
        "%YAML 1.1\n",
        "\u0085",
        "\u2028",
        "\u2029",
    ),
    *words("\ufeff \u00a0 \x00 \x07 \x7f \u0080 \ud7ff \ue000 \ufffd \ufffe \uffff \U0001f600 \u017f \u212a \u00e9"),
)


WORD = re.compile(r"[\w./-]+")
OTHER_WORDS = (
    *NAMES,
    *ODD_NAMES,
    *COUNTS,
    *NUMBERS,
    *TRUTHS,
    *ODD_TRUTHS,
    *NOTHINGS,
    *SHAPES,
    *DEVICES,
    *DURATIONS,
    *VERSIONS,
)


@st.composite
def bent(draw: st.DrawFn, text: str) -> str:
    """The text with scraps and words put in, taken out, doubled or moved."""
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 2, 3, 5)))):
        at = draw(st.integers(0, len(text)))
        length = draw(st.sampled_from((0, 0, 1, 1, 2, 5)))
        match draw(st.integers(0, 7)):
            case 0 | 1 | 2:
                text = text[:at] + draw(st.sampled_from(SCRAPS)) + text[at + length :]
            case 3:
                text = text[:at] + text[at + length + 1 :]
            case 4:
                text = text[:at] + text[at : at + length + 1].swapcase() + text[at + length + 1 :]
            case 5:
                rows = text.split("\n")
                row = text.count("\n", 0, at)
                rows.insert(draw(st.integers(0, len(rows))), draw(st.sampled_from(("", " ", "  ", "\t"))) + rows[row])
                text = "\n".join(rows)
            case _:
                if word := WORD.search(text, at):
                    text = text[: word.start()] + draw(st.sampled_from(OTHER_WORDS)) + text[word.end() :]
    return text


SMALL = st.text(st.sampled_from("ab:-?[]{},&*!|>'\"%#\n\n  \t.\r~<=1\u0085\u2028"), max_size=14)
"""Short texts of nothing but YAML's own characters."""

BYTES = (b"", b"\xff", b"\xfe", b"\x80", b"\xc3", b"\xe2\x82", b"\xd8", b"\xdc", b"\x00", b"a", b"\n")
ENCODINGS = (("utf-8", b""), ("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff"))


@st.composite
def raw(draw: st.DrawFn, text: str) -> bytes:
    """The text as `binaryData` may hold it: in UTF-8 or UTF-16, and not always right."""
    encoding, mark = draw(st.sampled_from(ENCODINGS))
    found = mark + text.encode(encoding, "replace")
    for _ in range(draw(st.sampled_from((0, 0, 1, 1, 2)))):
        at = draw(st.integers(0, len(found)))
        found = found[:at] + draw(st.sampled_from(BYTES)) + found[at + draw(st.integers(0, 2)) :]
    return found


FAMILY = 5


@st.composite
def families(draw: st.DrawFn) -> list[str | bytes]:
    """A configuration and others made of it, as many as FAMILY says."""
    if seldom(draw, 10):
        before = draw(st.sampled_from(("", "a: ", "a:\n  ", "- ", "a: [", "x: |\n  ")))
        return [f"{before}{draw(SMALL)}\n" for _ in range(FAMILY)]
    text = draw(st.sampled_from(TEXTS)) if seldom(draw, 6) else draw(written())
    return [text, *(draw(bent(text)) for _ in range(FAMILY - 2)), draw(raw(draw(bent(text))))]
