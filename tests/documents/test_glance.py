"""A look at the margin says what a parse says, or nothing."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from webhook.api.objects import judged_kinds
from webhook.catalog import passive
from webhook.documents import glance
from webhook.documents.documents import Document, read, stream
from webhook.documents.goyaml import parse
from webhook.documents.marks import Unreadable
from webhook.facts.kinds import KINDS

CRD = """\
---
# generated
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition # a kind
metadata:
  name: x
spec:
  names: {kind: Pod}
status:
- kind: Pod
"""


def test_the_kind_of_a_document_in_block_style_is_seen() -> None:
    assert glance.kind(CRD) == ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    assert glance.kind("apiVersion: v1\nkind: Pod") == ("v1", "Pod")


UNSURE = [
    "{apiVersion: v1, kind: Pod}",
    "apiVersion: v1\nkind: Service\nkind: Pod\n",
    'apiVersion: v1\nkind: Service\n"kind": Pod\n',
    'apiVersion: v1\nkind: Service\n"k\\x69nd": Pod\n',
    "apiVersion: v1\nkind: Service\n? kind\n: Pod\n",
    "apiVersion: v1\nkind: Service\nkind : Pod\n",
    "apiVersion: v1\nkind: Service\n&a kind: Pod\n",
    "apiVersion: v1\nkind: Service\n!!str kind: Pod\n",
    "apiVersion: v1\nkind: Service\n<<: {kind: Pod}\n",
    "apiVersion: v1\nkind:\n  Pod\n",
    "apiVersion: v1\nkind: Service\n  Pod\n",
    "apiVersion: v1\nkind: Service\n\n  Pod\n",
    "apiVersion: v1\nkind: |-\n  Pod\n",
    "apiVersion: v1\nkind: yes\n",
    "apiVersion: v1\rkind: Service\rkind: Pod\r",
    "apiVersion: v1\nkind: Service\na: b\x85kind: Pod\n",
    "apiVersion: v1\nkind: Service\na: b\u2028kind: Pod\n",
    '  kind: Pod\n  a: "\nkind: Service\napiVersion: v1\nb: c"\n',
    'a: "\nkind: Service\nb: c"\napiVersion: v1\nkind: Pod\n',
    "a: {b: c,\nkind: Service\n}\napiVersion: v1\nkind: Pod\n",
    "apiVersion: v1\nkind: Service\n...\nkind: Pod\n",
    "--- !!map\napiVersion: v1\nkind: Service\n",
    "--- |\n apiVersion: v1\nkind: Service\n",
    "%YAML 1.1\n---\napiVersion: v1\nkind: Service\n",
    "\ufeffapiVersion: v1\nkind: Service\n",
    "apiVersion: v1\nkind: Service\nitems:\n- kind: Pod\n",
    "items :\n- kind: Pod\napiVersion: v1\nkind: Service\n",
    "apiVersion: v1\nkind: Service\n---#c\napiVersion: v1\nkind: Pod\n",
    "apiVersion: v1\nkind: Service\n---\x0b\nkind: Pod\n",
    "",
]


@pytest.mark.parametrize("text", UNSURE)
def test_what_may_hide_a_kind_is_left_to_the_parse(text: str) -> None:
    assert glance.kind(text) is None


PIECES = [
    *(
        "kind",
        "apiVersion",
        "a",
        "Pod",
        "Service",
        "v1",
        "x/v1",
        "yes",
        "null",
        '"',
        "'",
        "{",
        "}",
        "[",
        "]",
        ",",
        "&a ",
    ),
    *("*a", "!!str ", "? ", ": ", ":", " ", "  ", "\n", "\n", "\n- ", "\n  ", "#", " #", "|", ">", "---\n", "...\n"),
    *("kind: Pod\n", "kind: Service\n", "apiVersion: v1\n", "<<: ", "\t", "\r", "\x85", "\u2028", "\\", "%", "@", "é"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@example("a: {b: 1,\nkind: Pod\n}\nkind: Service\n")
def test_a_look_and_a_parse_agree(text: str) -> None:
    """Where a document has a kind, no other is seen. One without is nobody's object, whatever is seen in it."""
    seen = glance.kind(text)
    try:
        value: Any = parse(text, alone=True, repeats=[])[0]
    except Unreadable:
        return
    if seen and isinstance(value, dict) and {"apiVersion", "kind"} <= value.keys():
        assert seen == (value["apiVersion"], value["kind"])


def test_only_what_is_skipped_is_not_read() -> None:
    documents = list(stream(f"{CRD}---\napiVersion: v1\nkind: Pod\n", "f.yaml", lambda _, kind, __: kind != "Pod"))
    assert [(each.glanced, each.index, each.first_line) for each in documents if isinstance(each, Document)] == [
        (True, 0, 1),
        (False, 1, 12),
    ]
    assert read(CRD, "f.yaml")[0][0].value["metadata"] == {"name": "x"}


def test_nothing_that_is_judged_or_a_fact_is_passive() -> None:
    assert passive.KINDS.isdisjoint(judged_kinds())
    assert passive.KINDS.isdisjoint(KINDS)
