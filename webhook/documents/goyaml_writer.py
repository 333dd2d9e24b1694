"""Writes JSON values as YAML that go-yaml v2 reads as the same values."""

from typing import Any

import yaml

from webhook.documents.goyaml_scalars import plain


def write(value: Any) -> str:
    """Write a JSON value as YAML. Keys keep their order, and texts of several lines become block scalars."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=1000)


class _Dumper(yaml.SafeDumper):
    """A dumper without anchors: a repeated value is written twice, since the object has no aliases."""

    def ignore_aliases(self, _: Any) -> bool:
        return True


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Quote texts that go-yaml would not read as strings. PyYAML misses some: `y`, `1e3`."""
    style = "|" if "\n" in text else None if isinstance(plain(text), str) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _write_text)
