"""Kustomizations as people and strangers write them, and what kustomize reads in them beside `slicewarden check`."""

import base64
import json
from collections.abc import Callable
from random import Random
from typing import Any

FIELDS: dict[str, tuple[Any, ...]] = {
    "apiVersion": ("kustomize.config.k8s.io/v1beta1",) * 5 + ("v1", "", None),
    "kind": ("Kustomization",) * 5 + ("Component", "Pod"),
    "metadata": ({"name": "a", "labels": {"Name": "b"}},),
    "resources": (["pod.yaml"], ["pod.yaml", "../base"], ["{{ x }}.yaml"], [], None),
    "components": (["../more"],),
    "namespace": ("lab", "yes", None),
    "namePrefix": ("a-", "TEXT"),
    "commonAnnotations": ({"text": "TEXT", "Text": "TEXT"},),
    "labels": ([{"pairs": {"a": "TEXT", "A": "b"}, "includeSelectors": True}],),
    "images": ([{"name": "a", "newTag": "b"}],),
    "imageTags": ([{"name": "a", "newTag": "c"}],),
    "patches": (
        [{"target": {"kind": "Pod", "labelSelector": "a=b"}, "patch": "TEXT"}],
        [{"path": "p.yaml", "options": {"allowKindChange": True}}, {"patch": "spec: {a: TEXT}"}],
    ),
    "patchesStrategicMerge": (["p.yaml", "TEXT"],),
    "replicas": ([{"name": "a", "count": 3}],),
    "configMapGenerator": ([{"name": "a", "literals": ["a=TEXT"], "options": {"labels": {"A": "b", "a": "c"}}}],),
    "replacements": ([{"source": {"kind": "Pod"}, "targets": [{"select": {"kind": "Job"}, "fieldPaths": ["a"]}]}],),
    "helmCharts": ([{"name": "a", "valuesInline": {"a": 1, "A": {"Name": "TEXT"}}}],),
    "sortOptions": ({"order": "fifo"},),
    "buildMetadata": (["originAnnotations"],),
    "unknown": ("a",),
}
"""The fields of kustomizations, each with values. TEXT stands for one of the texts."""

TEXTS = (
    *("a", "a b", "1", "é", "\U0001f600", "\\U0001f600", "{{ x }}", "a # b", "a: b", "---", "imageTags: a"),
    *("a\nb", "a\n---\nb", "a\n---# b\nc", "a\u2028 b", "a\u2029b", "a\x85b", "a\ufeffb", "a\n\ufeffb", "a\tb", "a\rb"),
    *("\0", "\x7f", "\\", '"', "\u017f"),
)

BEFORE = ("",) * 12 + (
    *("\ufeff", "# c\n", "---\n", "--- # c\n", "---# c\n", "---\n---\n", "---\n# c\n---\n", "...\n", "\n", "\t"),
    *("%YAML 1.1\n---\n", "%YAML 1.2\n---\n", "%TAG ! tag:a,2002:\n---\n", "%YAML 1.1\n", "# {{ x }}\n", "--- !!map\n"),
    *("\u2028", "\x85", "\ufeff%YAML 1.1\n---\n", "{}\n---\n"),
)

AFTER = ("",) * 12 + (
    *("...\n", "---\nresources: [other.yaml]\n", "---# c\n", "--- a\n", "... \n%YAML 1.1\n---\na: b\n", "\n{{ x }}\n"),
    *("---\n{{ x }}\n", "---\n\0", "# c\n", "}", "\u2028", "resources: [last.yaml]\n", "<<: {resources: [a]}\n"),
)


class Kustomizations:
    """Makes kustomizations."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def one(self) -> bytes:
        """Return the contents of a file."""
        names = self._random.sample([*FIELDS], self._random.randint(1, 4))
        pairs = [(name, self._filled(self._random.choice(FIELDS[name]))) for name in names]
        if self._seldom():  # twice, or in two spellings
            name = self._random.choice(names)
            pairs.insert(self._random.randint(0, len(pairs)), (name, self._filled(self._random.choice(FIELDS[name]))))
        pairs = [(self._cased(name), self._respelled(value)) for name, value in pairs]
        body = self._random.choice((_as_json, _as_json, self._as_yaml, self._as_yaml, self._as_yaml))(pairs)
        text = self._random.choice(BEFORE) + body + self._random.choice(AFTER)
        if self._seldom() and self._seldom():
            at = self._random.randint(0, len(text))
            text = text[:at] + self._random.choice(TEXTS) + text[at:]
        return text.replace("\n", self._random.choice(("\n",) * 9 + ("\r\n",))).encode("utf-8", "replace")

    def _seldom(self) -> bool:
        return self._random.random() < 0.15

    def _filled(self, value: Any) -> Any:
        if isinstance(value, str):
            return value.replace("TEXT", self._random.choice(TEXTS)) if "TEXT" in value else value
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        return {key: self._filled(each) for key, each in value.items()} if isinstance(value, dict) else value

    def _cased(self, name: str) -> str:
        if not self._seldom():
            return name
        ways: tuple[Callable[[str], str], ...] = (
            str.upper,
            str.lower,
            lambda each: each[0].upper() + each[1:],
            lambda each: each.replace("s", "\u017f").replace("k", "\u212a"),
        )
        return self._random.choice(ways)(name)

    def _respelled(self, value: Any) -> Any:
        """Return a value in which some names have another case, or occur twice."""
        if isinstance(value, list):
            return [self._respelled(each) for each in value]
        if not isinstance(value, dict):
            return value
        found = {self._cased(key): self._respelled(each) for key, each in value.items()}
        if self._seldom() and self._seldom():
            found |= {self._cased(key): each for key, each in value.items()}
        return found

    def _as_yaml(self, pairs: list[tuple[str, Any]]) -> str:
        rows = []
        for name, value in pairs:
            text = value if isinstance(value, str) and "\n" not in value and self._seldom() else self._quoted(value)
            rows.append(f"{self._key(name)}: {text}\n")
            if self._seldom() and self._seldom():
                rows.append(self._random.choice(("<<: {namePrefix: merged-}\n", "? kind\n: Kustomization\n", "# c\n")))
        return "".join(rows)

    def _quoted(self, value: Any) -> str:
        """Write a value as JSON, in which some characters are written as they are."""
        return json.dumps(value, ensure_ascii=self._random.random() < 0.3, indent=self._random.choice((None, 1)))

    def _key(self, name: str) -> str:
        if not self._seldom():
            return name
        encoded = base64.b64encode(name.encode()).decode()
        ways = (f'"{name}"', f"'{name}'", f'"\\x{ord(name[0]) & 255:02x}{name[1:]}"', f"!!binary {encoded}")
        return self._random.choice((*ways, f"!!str {name}", f"&a {name}", f"{name} "))


def _as_json(pairs: list[tuple[str, Any]]) -> str:
    inner = ",\n ".join(f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in pairs)
    return "{\n " + inner + "\n}\n"


def pruned(value: Any) -> Any:
    """Return a value without empty fields, which kustomize leaves out when it writes one."""
    if isinstance(value, list):
        return [pruned(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: made for key, each in value.items() if (made := pruned(each)) or made == [{}]}
