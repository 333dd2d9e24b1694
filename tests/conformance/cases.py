"""Configurations by what they are about, to be asked about once and remembered (`python -m tests.conformance.record`).

Each group holds what the device plugin refuses and what it takes beside that; the last one what it was found out on.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from tests.conformance import configs

HERE = Path(__file__).resolve().parent


def entry(**parts: str) -> str:
    """A configuration with one entry: of `name` and `replicas`, unless they are given otherwise."""
    rows = {"name": "gpu", "replicas": "4"} | parts
    body = "".join(f"    - {key}: {value}\n".replace("\n ", "\n       ") for key, value in rows.items())
    return "sharing:\n  timeSlicing:\n    resources:\n" + body.replace("\n    - ", "\n      ")


def section(text: str, name: str = "timeSlicing") -> str:
    """A configuration with this in its section, or beside the entries."""
    return f"sharing: {{{name}: {text}}}\n"


GOOD = "[{name: gpu, replicas: 4}]"
MPS = f"sharing: {{mps: {{resources: {GOOD}}}}}"
BOTH = f"sharing: {{timeSlicing: {{resources: {GOOD}}}, mps: {{resources: {GOOD}}}}}"
FLAGS = ("migStrategy", "deviceDiscoveryStrategy", "failOnInitError", "mpsRoot", "nvidiaDriverRoot", "gdsEnabled")
PLUGIN = ("passDeviceSpecs", "deviceIDStrategy", "deviceListStrategy", "cdiAnnotationPrefix", "nvidiaCTKPath")
TYPES = (
    "x",
    "''",
    "~",
    "4",
    "true",
    "'true'",
    "yes",
    "[]",
    "{}",
    "none",
    "uuid",
    "None",
    "auto",
    "vfio",
    "tegra",
    "index",
)

GROUPS: dict[str, tuple[str, ...]] = {
    "version": tuple(f"version: {each}" for each in configs.VERSIONS + configs.NOTHINGS),
    "one document, and a map": (
        *(
            "",
            " ",
            "\n",
            "# c",
            "---",
            "---\n---\nx: [",
            "~",
            "null",
            "{}",
            "[]",
            "x",
            "4",
            "true",
            "''",
            "- version: v1",
        ),
        *(f"{before}version: v1\n{after}" for before in configs.BEFORE for after in ("", "---\nversion: v2\n---\n[")),
        *(f"version: v1\n{after.strip()}\n" for after in configs.AFTER),
    ),
    "a section has resources": tuple(
        section(text, name)
        for name in ("timeSlicing", "mps")
        for text in (
            *configs.NOTHINGS,
            "[]",
            "{}",
            "x",
            "4",
            "{replicas: 4}",
            "{resources: }",
            "{resources: []}",
            "{resources: {}}",
            "{resources: x}",
            "{resources: [~]}",
            "{resources: [x]}",
            "{resources: [{}]}",
            "{Resources: []}",
            f"{{resources: {GOOD}}}",
            f"{{RESOURCES: {GOOD}}}",
            f"{{resources: {GOOD}, resources: []}}",
        )
    ),
    "an entry has a name and replicas": tuple(
        section(f"{{resources: [{{{text}}}]}}")
        for text in (
            "name: gpu",
            "replicas: 4",
            "Name: gpu, replicas: 4",
            "name: gpu, Replicas: 4",
            "name: gpu, replicas: 4, x: y",
        )
    ),
    "name": tuple(entry(name=each) for each in configs.NAMES + configs.ODD_NAMES + configs.NOTHINGS + configs.SHAPES),
    "replicas": tuple(
        entry(replicas=each) for each in configs.COUNTS + configs.NUMBERS + configs.NOTHINGS + configs.SHAPES
    ),
    "rename": tuple(
        entry(rename=each)
        for each in ("gpu.shared", "nvidia.com/gpu.shared", "x", "''", "~", "4", "GPU", "amd.com/gpu", "g" * 53)
    ),
    "devices": tuple(entry(devices=each) for each in configs.DEVICES + configs.NOTHINGS + configs.SHAPES),
    "switches": tuple(
        section(f"{{{key}: {each}, resources: {GOOD}}}")
        for key in ("renameByDefault", "failRequestsGreaterThanOne")
        for each in ("true", "no", "Y", "oN", "'true'", "1", "0", "~", "", "[]", "enabled", "!!bool yes", "! true")
    ),
    "the section that is not in force": (
        BOTH,
        BOTH.replace("timeSlicing: {resources", "timeSlicing: {x"),
        BOTH.replace("mps: {resources", "mps: {x"),
        f"sharing: {{timeSlicing: {{resources: {GOOD}}}, mps: ~}}",
        f"sharing: {{timeSlicing: ~, mps: {{resources: {GOOD}}}}}",
    ),
    "flags": (
        *(
            f"flags: {each}"
            for each in ("~", "{}", "[]", "x", "4", "{x: y}", "{plugin: ~}", "{plugin: []}", "{gfd: x}")
        ),
        *(f"flags: {{{key}: {each}}}" for key in FLAGS for each in TYPES),
        *(f"flags: {{plugin: {{{key}: {each}}}}}" for key in PLUGIN for each in TYPES),
        *(f"flags: {{plugin: {{deviceListStrategy: {each}}}}}" for each in configs.STRATEGIES),
        *(f"flags: {{migStrategy: {each}}}" for each in ("single", "mixed", "Mixed", "[mixed]")),
        *(f"{MPS}\nflags: {{migStrategy: {each}}}" for each in ("none", "single", "mixed", "~")),
        f"{MPS}\nflags: {{mpsRoot: ''}}",
        f"{BOTH}\nflags: {{migStrategy: mixed}}",
    ),
    "flags within the wrong map": (
        *(
            f"flags: {{{where}: {{{key}: x}}}}"
            for where in ("plugin", "gfd")
            for key in ("migStrategy", "mpsRoot", "gdsEnabled")
        ),
        *(f"flags: {{{where}: {{deviceDiscoveryStrategy: ~}}}}" for where in ("plugin", "GFD")),
        *(
            f"flags: {{{where}: {{plugin: {{deviceIDStrategy: uuid}}}}}}"
            for where in ("plugin", "gfd", "migStrategy", "x")
        ),
        "flags: {plugin: {migStrategy: x}, migStrategy: mixed}",
        "flags: {plugin: {migStrategy: x}, migStrategy: ~}",
        "flags: {PLUGIN: {plugin: {deviceIDStrategy: x}}, plugin: ~}",
        "flags: {plugin: {plugin: {deviceListStrategy: x}}}",
        "flags: {migStrategy: {migStrategy: x}}",
    ),
    "durations": tuple(f"flags: {{gfd: {{sleepInterval: {each}}}}}" for each in configs.DURATIONS if "\n" not in each),
    "imex": (
        *(f"imex: {{channelIDs: {each}}}" for each in configs.CHANNELS),
        *(f"imex: {{required: {each}}}" for each in ("true", "~", "'true'", "1")),
        "imex: []",
        "imex: ~",
    ),
    "resources": (
        *(f"resources: {each}" for each in ("~", "{}", "[]", "x")),
        *(
            f"resources: {{{key}: [{{{each}}}]}}"
            for key in ("gpus", "mig", "MIG", "migs")
            for each in (
                "pattern: '*', name: gpu",
                "pattern: x",
                "name: gpu",
                "pattern: 4, name: gpu",
                "pattern: ~, name: gpu",
                "pattern: x, name: GPU",
                "pattern: x, name: ~",
                "Pattern: x, Name: gpu",
                "",
            )
        ),
        "resources: {gpus: ~, mig: []}",
        "resources: {gpus: [~]}",
        "resources: {gpus: {}}",
    ),
    "keys in another case": (
        *(
            f"{key}: {{timeSlicing: ~}}"
            for key in ("sharing", "SHARING", "\u017fharing", "Sharing ", "sharings", "share", "sh\u0251ring")
        ),
        *(
            f"sharing: {{{key}: ~}}"
            for key in (
                "TIMESLICING",
                "timeslicing",
                "time\u017flicing",
                "timeSl\u0131cing",
                "time-slicing",
                "timeSlice",
            )
        ),
        *(f"flags: {{{key}: x}}" for key in ("MIGSTRATEGY", "mig\u017ftrategy", "mig-strategy", "mig_strategy")),
        *(f"{key}: {{plugin: {{deviceIDStrategy: x}}}}" for key in ("FLAGS", "\ufb02ags", "fla\u0262s")),
        *(f"flags: {{plugin: {{{key}: x}}}}" for key in ("passDeviceSpecs", "pa\u00dfDeviceSpecs", "PASSDEVICESPECS")),
        *(
            f"flags: {{plugin: {{{key}: x}}}}"
            for key in ("deviceIDStrategy", "deviceIdStrategy", "nvidiaCTKPath", "nvidiaCT\u212aPath")
        ),
        "flags: {plugin: {nvidiaCT\u212aPath: 4}}",
        "imex: {channelIds: [1]}",
    ),
    "keys in several spellings": (
        f"sharing: {{timeSlicing: {{resources: {GOOD}}}, timeslicing: {{resources: []}}}}",
        f"sharing: {{TIMESLICING: {{resources: {GOOD}}}, timeSlicing: {{resources: [{{name: x, replicas: ~}}]}}}}",
        f"sharing: {{timeSlicing: {{resources: {GOOD}}}, TIMESLICING: {{resources: [{{name: x, replicas: ~}}]}}}}",
        f"sharing: {{MPS: {{resources: {GOOD}}}, mps: ~}}\nflags: {{migStrategy: mixed}}",
        f"sharing: {{mps: {{resources: {GOOD}}}, MPS: ~}}\nflags: {{migStrategy: mixed}}",
        "VERSION: v2\nversion: v1",
        "VERSION: v2\nversion: ~",
        "VERSION: 4\nversion: v1",
        "VERSION: []\nversion: v1",
        "FLAGS: {migStrategy: x}\nflags: {migStrategy: none}",
        "FLAGS: {migStrategy: x}\nflags: ~",
        "imex: {CHANNELIDS: [5], channelIDs: [~]}",
        "imex: {CHANNELIDS: [0], channelIDs: [~]}",
        "imex: {CHANNELIDS: [0, 1], ChannelIDs: [0], channelIDs: [0, ~]}",
        "imex: {CHANNELIDS: [0, 5], ChannelIDs: [], channelIDs: [~]}",
        "version: v2\nversion: v1",
        "version: v1\nversion: v2",
    ),
    "read otherwise than meant, or not at all": (
        *(
            "timeSlice: 4",
            "strategy: x",
            "interval: 4",
            "data: {any: 'version: v2'}",
            "any: {version: v2}",
            "timeSlicing: 4",
        ),
        *("sharing: {renameByDefault: x}", "sharing: {time-slicing: 4}", "flags: {failRequestsGreaterThanOne: x}"),
        section(f"{{failRequestGreaterThanOne: x, RenameByDefault: 4, resources: {GOOD}}}"),
        section("{resources: [{name: gpu, replicas: 4, failRequestsGreaterThanOne: x}]}"),
        section("{resources: [{name: nvidia.com/gpus, replicas: 4}, {name: mig-9g.1gb, replicas: 4}]}"),
        section("{resources: [{name: gpu, replicas: 4}, {name: nvidia.com/gpu, replicas: 8}]}"),
        section("{renameByDefault: true, resources: [{name: gpu, replicas: 4, rename: x, devices: [0]}]}"),
        section(f"{{renameByDefault: true, resources: [{{name: {'g' * 52}, replicas: 4}}]}}"),
        section("{resources: [{name: gpu, replicas: 1000000000}]}"),
        f"flags: {{migStrategy: none}}\n{section(f'{{resources: {GOOD}}}')}",
    ),
    "YAML": (
        *(f"{key}: {value.parts}\n" for key, value in configs.EXTRA),
        *(f"a: &a {{b: 1}}\n{key}: {value.parts}\nversion: v1\n" for key, value in configs.EXTRA),
        *("version: v1\n\tx: y", "x:\ty", "x: y\t", "x: {\ty: z}", "\tversion: v2", "version:\n\t- v1"),
        *("x: \x07", "x: '\x7f'", "# \x00", "x: \ue000", "x: \ufffe", "version: v1\n---\n" + "x" * 600 + "\x07"),
        *("x: *y", "x: &y [*y]", "x: &y {z: &y 1, a: *y}", "x: &y\ny: *y", "&x version: v1\n*x : v2"),
        *(
            "&a a: &b version\n*b : v2",
            "x: &a {version: v2}\n<<: *a",
            "version: v1\n<<: {version: v2}",
            "<<: {version: v2}\nversion: v1",
        ),
        *("x: &a [{version: v2}]\n<<: *a", "<<: [{version: v1}, {version: v2}]", "<<: [{version: v2}, {version: v1}]"),
        *("x: .inf\nx: 1", "~: 1", "x: {~: 1}\nx: 1", ".inf: 1", "18446744073709551615: 1", "1e19: 1"),
        *("{} a: b", "{}: b", "&a {}: b", "? {}\n: b", "[]: b", "{a: b}: c", "{}\na: b", "{}]"),
        *(
            "version: &a v1 # c\nx: '*a'",
            'version: "v\\x31"',
            'version: "\\ud800"',
            "version: |\n  v1",
            "version: |-\n  v1",
        ),
        "a: &a [" + "x, " * 10 + "]\nb: [" + "*a, " * 120 + "]",
        "a: &a [" + "x, " * 100 + "]\nb: [" + "*a, " * 9 + "]",
    ),
}


def cases() -> Iterator[tuple[str, str]]:
    """Every group's name with each of its configurations, once; the findings of earlier runs among them."""
    seen = set()
    found = json.loads((HERE / "found.json").read_text("utf-8"))
    for group, texts in {**GROUPS, "found by trying": tuple(found)}.items():
        for text in texts:
            if text not in seen:
                seen.add(text)
                yield group, text
