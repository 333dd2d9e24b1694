"""Files as people and strangers write them, and what kubectl's own reader makes of them beside `slicewarden check`."""

import base64
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import yaml

from tests.oracles.programs import Oracle
from webhook.model import Object
from webhook.policy.resources import GPUResources
from webhook.scan import batches

# What is said

KINDS = ("Pod", "Pod", "ConfigMap", "Service", "CustomResourceDefinition", "List", "PodList", "ServiceList", "Thing")
VERSIONS = ("v1", "v1", "v1", "apiextensions.k8s.io/v1", "x.example/v1")
SCALARS = (
    "a",
    "1",
    "yes",
    "0x10",
    "1e3",
    "1.0",
    "-0",
    "~",
    "",
    "18446744073709551616",
    "{{ x }}",
    "%{ x }",
    "a\n${x}\nb",
    "a # b",
    "---",
    "a: b",
    "é",
)
MARKERS = (
    *("---\n",) * 120,
    *("--- \n", "---\t# c\n", "---#c\n", "--- # c\n", "---\r\n", "---\x0b\n", "---\x0c#\n"),
    *("---\xa0\n", "---\x85\n", "---\u2003#x\n", "---\u2028\n", "---\ufeff\n", "--- a\n", "---a: b\n", "---- \n"),
    *(
        "--- {}\n",
        " ---\n",
        "...\n",
        "...\n---\n",
        "---\n---\n",
        "---\n---#x\n",
        "---\n\n---#x\n",
        "\r---\r",
        "\n---",
        "\x0b---\n",
    ),
    *(
        "%YAML 1.1\n---\n",
        "%YAML 1.1\r---\r",
        "# c\n---\n",
        "\ufeff---\n",
        "--- |\n",
        "--- !!map\n",
        "---\0\n",
        "---\x1c\n",
    ),
)
GAPS = (
    *("\n",) * 12,
    "",
    "",
    " ",
    "\t",
    "\r\n",
    "\n---\n",
    "---\n",
    "\n ---\n",
    "\n\n---#x\n",
    ",",
    "\ufeff",
    "\xa0",
    "#c\n",
    " \n--- {}\n",
)
BEFORE = ("",) * 12 + (
    "\ufeff",
    "\ufeff\ufeff",
    "# c\n",
    "\n",
    " \n",
    "\xa0",
    "\x0b",
    "\t",
    "\r\n",
    "# {{ x }}\n",
    " " * 4100,
    "\n" * 4096,
)
PIECES = (
    *(
        "\n",
        "\n",
        " ",
        "  ",
        "\t",
        "\r",
        "\r\n",
        "\0",
        "\x0b",
        "\x0c",
        "\x1b",
        "\x7f",
        "\x85",
        "\xa0",
        "\u2028",
        "\ufeff",
        "\ufffe",
    ),
    *(
        "---",
        "---#",
        "...",
        "- ",
        "-",
        ":",
        ": ",
        "? ",
        "#",
        " #",
        "{",
        "}",
        "[",
        "]",
        ",",
        "&a ",
        "*a",
        "!!str ",
        "! ",
        "<<: *a\n",
    ),
    *(
        "'",
        '"',
        *("\\'",) * 3,
        "\\",
        "\\u006b",
        "\\x6b",
        "|\n",
        ">\n",
        "%",
        "@",
        "kind",
        "items",
        "items:\n",
        "items :\n",
        '"items":\n',
        "items: []\n",
    ),
    *(
        "kind: Pod\n",
        "apiVersion: v1\n",
        '"k\\u0069nd": Pod\n',
        "!!binary a2luZA==",
        "{{ x }}",
        "# {{ x }}\n",
        "{% x %}",
        "%{ x }",
        "# %{ x }\n",
        "\n${x}\n",
        "...\n%{ x }\n",
        "items: null\n",
    ),
    *(
        "\nkind: Pod\n",
        "\n- kind: Pod\n",
        "\n-kind: Pod\n",
        "\nitems:\n- {kind: Pod, apiVersion: v1}\n",
        "1_0",
        "~",
        "=",
        "é",
        "\U0001f600",
    ),
)
HINTS = ("",) * 4 + ("\n---\nhint: '%{ x }'\n", "\n---\nhint: '{{ x }}'\n", ",%{ x }\n---\n")
"""The ends of files that look like templates."""
BYTES = (b"\xff", b"\xc3", b"\xe2\x80", b"\0", b"\xff\xfe", b"\xed\xa0\x80")


def _name(random: Random) -> str:
    return f"n{random.randrange(1000)}"


def tree(random: Random, depth: int = 0) -> Any:
    """An object, often one with items, or what is none."""
    if depth and random.random() < 0.04:
        return random.choice((None, [], "text", 1, [{"kind": "Pod"}], {}))
    made: dict[str, Any] = {"apiVersion": random.choice(VERSIONS), "kind": random.choice(KINDS)}
    for key in ("apiVersion", "kind"):
        chance = random.random()
        if chance < 0.02:
            del made[key]
        elif chance < 0.03:
            made[key] = random.choice(("", None, 1, True, []))
    if random.random() < 0.9:
        made["metadata"] = {"name": _name(random)}
        if random.random() < 0.3:
            made["metadata"]["namespace"] = random.choice(("vision", "a"))
    if random.random() < 0.5:
        made["data"] = {random.choice(SCALARS): random.choice(SCALARS) for _ in range(random.randrange(3))}
    if random.random() < 0.3:
        made["spec"] = {"n": random.choice((1, 1.5, 2**63, 2**64, 1e21, True, None)), "t": "a\n---\nb\n"}
    if random.random() < (0.5 if depth == 0 else 0.15):
        made["items"] = [tree(random, depth + 1) for _ in range(random.randrange(3))] if depth < 4 else []
        if random.random() < 0.1:
            made["items"] = random.choice((None, {}, "text", 1, [None], [[]], [{}]))
    keys = [*made]
    random.shuffle(keys)
    return {key: made[key] for key in keys}


def _written(random: Random, value: Any) -> str:
    style = random.random()
    if style < 0.3:
        return json.dumps(value, indent=random.choice((None, 1, "\t")), ensure_ascii=random.random() < 0.5)
    flow = random.choice((False, False, False, None, True))
    quotes = random.choice((None, None, None, '"', "'", "|"))
    text: str = yaml.dump(value, Dumper=_Dumper, default_flow_style=flow, default_style=quotes, sort_keys=False)
    return text.replace("kind:", random.choice(ODD_KINDS), 1) if random.random() < 0.1 else text


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, _: Any) -> bool:
        return True


ODD_KINDS = (
    '"k\\u0069nd":',
    "kind :",
    "? kind\n:",
    "&a kind:",
    "'kind':",
    "!!str kind:",
    "!!binary a2luZA==:",
    "Kind:",
    "kind:\n ",
)


class Files:
    """Makes files: documents in YAML, JSON or both, whole or mutilated."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._yaml = [_written(random, tree(random)) for _ in range(600)]
        self._json = [json.dumps(tree(random), indent=random.choice((None, 2))) for _ in range(300)]

    def one(self) -> bytes:
        """Make a file."""
        random = self._random
        if random.random() < 0.25:
            parts = random.choices(self._json, k=random.choice((1, 2, 2, 3)))
            text = "".join(part + random.choice(GAPS) for part in parts)
        else:
            parts = random.choices(self._yaml, k=random.choice((1, 1, 2, 3)))
            text = "".join(random.choice(MARKERS) + part for part in parts)
            text = text.removeprefix("---\n") if random.random() < 0.7 else text
        text = random.choice(BEFORE) + text + random.choice(HINTS)
        text = text.removesuffix("\n") if random.random() < 0.1 else text
        for _ in range(random.choice((0, 0, 0, 1, 1, 2))):
            at = random.randrange(len(text) + 1)
            put_in = random.random() < 0.6
            text = text[:at] + (random.choice(PIECES) + text[at:] if put_in else text[at + random.randrange(6) :])
        text = text.replace("\n", "\r\n") if random.random() < 0.1 else text
        data = text.encode("utf-8", "replace")
        if random.random() < 0.02:
            at = random.randrange(len(data) + 1)
            data = data[:at] + random.choice(BYTES) + data[at:]
        return text.encode("utf-16") if random.random() < 0.005 else data


# What is compared


class Case(NamedTuple):
    """What kubectl and `check` make of a file: objects, kinds that were glanced at, and what is wrong."""

    theirs: Sequence[Object]
    said: str
    ours: Sequence[Object]
    glanced: Counter[tuple[str, str]]
    problems: Sequence[str]

    @property
    def lost(self) -> list[Object]:
        """The objects that kubectl would create, and that are neither judged nor a reason to fail the run."""
        if self.problems:
            return []
        return [*self._beyond(self.theirs, self.ours)]

    @property
    def invented(self) -> list[Object]:
        """The objects that are judged, though kubectl reads the whole file and has no such."""
        if self.problems or self.said:
            return []
        return [each for each in _less(self.ours, self.theirs) if not each["apiVersion"].endswith("/")]

    def _beyond(self, theirs: Iterable[Object], ours: Iterable[Object]) -> Iterator[Object]:
        glanced = Counter(self.glanced)
        for each in _less(theirs, ours):
            key = each["apiVersion"].rpartition("/")[0], each["kind"]
            if glanced[key]:
                glanced[key] -= 1
            else:
                yield each


def _less(some: Iterable[Object], others: Iterable[Object]) -> Iterator[Object]:
    left = Counter(map(_text, others))
    for each in some:
        if left[_text(each)]:
            left[_text(each)] -= 1
        else:
            yield each


def _text(value: Object) -> str:
    metadata = value.get("metadata")
    namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
    if isinstance(metadata, dict) and not (namespace and isinstance(namespace, str)):  # kubectl writes its own
        value = {**value, "metadata": {key: each for key, each in metadata.items() if key != "namespace"}}
    return json.dumps(_numbers(value), sort_keys=True)


def _numbers(value: Any) -> Any:
    """A value whose numbers are those of Kubernetes: integers of 64 bits, and floats."""
    if isinstance(value, dict):
        return {key: _numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_numbers(each) for each in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        whole = math.isfinite(value) and value == int(value)
        return int(value) if whole and -(2**63) <= value < 2**63 else float(value)
    return value


def compared(kubectl: Oracle, files: Sequence[bytes], folder: Path, gpus: GPUResources) -> Iterator[Case]:
    """Have both read some files, as they read those of a folder."""
    answers = kubectl.ask([base64.b64encode(data).decode("ascii") for data in files])
    name = folder / "f.yaml"
    for data, answer in zip(files, answers, strict=True):
        name.write_bytes(data)
        read = batches.read([str(name)], gpus=gpus, skip_others=True)
        ours = [item.value for item in read.each(lambda item: item)]
        glanced = Counter((kind.group, kind.kind) for kind in read.kinds)
        yield Case(answer["objects"], answer["error"], ours, glanced, [str(each) for each in read.problems])
