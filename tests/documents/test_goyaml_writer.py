"""JSON that go-yaml reads too."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from webhook.documents.goyaml import parse
from webhook.documents.goyaml_writer import as_json

TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ["\U0001f600", "\\ud83d\\ude00", "\\\U0001f600"]
)


@given(st.recursive(TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)))
def test_a_value_is_written_as_json_that_yaml_reads_too(value: Any) -> None:
    text = as_json({"value": value}).decode()
    assert json.loads(text) == {"value": value}
    assert parse(text)[0] == {"value": value}
