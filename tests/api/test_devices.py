"""A pod's entry for a claim: which object it names, and when that cannot be told."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.api.devices import DeviceRequest, device_requests, source
from webhook.api.fields import MAX_NAME
from webhook.model import Malformed

KNOWN = {"resourceClaimName": "ResourceClaim", "resourceClaimTemplateName": "ResourceClaimTemplate"}
VALUES = st.one_of(st.text(), st.integers(), st.booleans(), st.lists(st.text()), st.dictionaries(st.text(), st.text()))


@pytest.mark.parametrize(("field", "kind"), KNOWN.items())
def test_an_entry_names_one_object(field: str, kind: str) -> None:
    assert source({"name": "g", field: "one"}) == (kind, "one")
    assert source({"name": "g", field: "one", "another": None}) == (kind, "one")


@given(
    field=st.sampled_from([*KNOWN]),
    more=st.dictionaries(st.text().filter(lambda key: key != "name"), VALUES, min_size=1, max_size=3),
)
def test_an_entry_that_names_anything_else_is_of_no_known_source(field: str, more: dict[str, Any]) -> None:
    entry = {**more, "name": "g", field: "one"}
    if entry.keys() - {"name", field}:
        assert source(entry) is None


@pytest.mark.parametrize("value", [1, True, [], {}])
def test_a_name_that_is_no_text_names_nothing(value: Any) -> None:
    assert source({"name": "g", "resourceClaimName": value}) is None


@pytest.mark.parametrize("others", [{}, {"a.example.com/memory": "1Gi"}, {"z/memory": "0", "memories": "1Gi"}])
def test_no_memory_of_another_domain_hides_that_of_the_card(others: dict[str, str]) -> None:
    for capacity in ({**others, "memory": "80Gi"}, {"memory": "80Gi", **others}):
        assert DeviceRequest((), "c", False, False, (), capacity=capacity).memory == ("memory", "80Gi")
    alone = DeviceRequest((), "c", False, False, (), capacity=others).memory
    assert alone == next((one for one in others.items() if one[0].endswith("/memory")), None)


def test_the_name_of_a_request_is_as_long_as_a_name_may_be() -> None:
    """Each alternative has it in its own name: 400 of a name of 3 MB took 1.2 GB."""

    def names(name: str) -> list[str]:
        asked = {"name": name, "firstAvailable": [{"name": "one"}, {"name": "other"}]}
        return [each.name for each in device_requests({"requests": [asked]}, ("spec",))]

    longest = "a" * MAX_NAME
    assert names(longest)[-2:] == [f"{longest}/one", f"{longest}/other"]
    with pytest.raises(Malformed, match="at most 253 characters"):
        names(f"{longest}a")
