"""A text on one line of YAML is read as the same text, whichever version of YAML its reader knows."""

import re

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from webhook.documents.goyaml import parse
from webhook.documents.goyaml_writer import flow


class Core(yaml.SafeLoader):
    """A reader of YAML 1.2's core schema (yaml.org/spec/1.2.2, 10.3.2)."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - as PyYAML declares it


for tag, pattern in {
    "null": r"null|Null|NULL|~|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
}.items():
    Core.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), None)

SCALARS = (
    *("null", "Null", "~", "", "y", "No", "on", "true", "TRUE", "False", "=", "<<", ".inf", "-.INF", ".nan"),
    *("123", "1_000", "0b1", "0b+1", "0o7", "017", "0x1F", "-1", "+1", "1e3", "1e999", "1.", ".5", "12:30:45"),
    *("9" * 30, "0o" + "7" * 80, "2026-11-24", "2026-1-1", "2001-12-14t21:59:43.10-05:00", "2001-12-14 21:59:43"),
    *("- a", "a: b", "a #b", "a ", " a", "a,b", "[a", "{a", "&a", "*a", "!a", "|", ">", "%a", "@a", "`a", "'", '"'),
    *("\\", "---", "...", "a\nb", "a\rb", "a\tb", "\0", "\x7f", "\x85", "\u2028", "\ufeff", "é", "😀"),
    "a\n  leaveAlone: [evil]",
)
NUMBERS = st.from_regex(r"[-+]?(0[xob]?)?[0-9a-f_]{0,4}[.:eE-]?[-+]?[0-9]{0,3}", fullmatch=True)
TEXTS = st.text(max_size=20) | NUMBERS | st.text("0123456789_.:-+eExobTZ nulyf", max_size=12)


def check(text: str) -> None:
    written = flow(text)
    assert written.isascii()
    assert written.isprintable()
    document = f"{written}: {{k: {written}}}\nlist: {flow([text, text])}\nitems:\n  - {written}\n"
    value = {text: {"k": text}} | {"list": [text, text], "items": [text]}
    assert yaml.load(document, yaml.SafeLoader) == value
    assert yaml.load(document, Core) == value  # noqa: S506 - a safe one
    assert parse(document)[0] == value


@pytest.mark.parametrize("text", SCALARS)
def test_a_text_that_looks_like_another_value_stays_a_text(text: str) -> None:
    check(text)


@given(TEXTS.filter(lambda text: text not in ("list", "items")))
@example("list ")
def test_every_text_stays_a_text(text: str) -> None:
    check(text)


@pytest.mark.parametrize("text", ["a", "team-a", "nvidia.com/gpu", "Tesla-T4-SHARED", "1g.5gb", "a b", "v1alpha1"])
def test_a_name_has_no_quotes(text: str) -> None:
    assert flow(text) == text
    assert flow((text, "a,b")) == f'[{text}, "a,b"]'
