"""The report of a probe is read strictly: whatever the text, it is a report in full or none."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.proving.sighting import LARGEST, LONGEST, MOST, SeenCards, SeenFiles, Sighting, TakenMemory, sighting

BLIND: dict[str, Any] = {
    "probe": 1,
    "files": {"count": 0, "usable": 0, "unclear": 0, "names": []},
    "nvml": {"count": 0, "mig": 0, "devices": [], "why": "libnvidia-ml.so.1 is not there"},
    "cuda": {"count": 0, "uuids": [], "context": None, "why": "libcuda.so.1 is not there"},
    "memory": None,
    "frameworks": {},
    "cut": False,
}
SEEING: dict[str, Any] = {
    **BLIND,
    "files": {"count": 2, "usable": 1, "unclear": 1, "names": ["/dev/nvidia0", "/dev/nvidiactl"]},
    "nvml": {"count": 1, "mig": 0, "devices": [{"uuid": "GPU-1", "name": "NVIDIA H100", "mib": 81559}], "why": ""},
    "cuda": {"count": 1, "uuids": ["1"], "context": "made", "why": ""},
    "memory": {"asked": 4096, "got": 2048, "stopped": "error 2"},
    "frameworks": {"pytorch": {"version": "2.15.0", "got": 16, "stopped": "OutOfMemoryError"}},
}


def read(report: object) -> Sighting:
    seen = sighting(json.dumps(report))
    assert seen is not None
    return seen


def changed(path: tuple[Any, ...], value: object) -> Any:
    """Return SEEING with another value in a place."""
    report = copy.deepcopy(SEEING)
    at: Any = report
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return report


def test_a_report_is_read() -> None:
    seen = read(SEEING)
    assert seen.files == SeenFiles(2, 1, 1, ("/dev/nvidia0", "/dev/nvidiactl"))
    assert isinstance(seen.nvml, SeenCards)
    assert [*seen.nvml.devices] == [("GPU-1", "NVIDIA H100", 81559)]
    assert seen.memory == TakenMemory(4096, 2048, "error 2")
    assert seen.frameworks == {"pytorch": TakenMemory(4096, 16, "OutOfMemoryError", "2.15.0")}
    assert (seen.sees, seen.blind) == (True, False)


def test_no_gpu_was_seen_only_if_every_look_was_made() -> None:
    assert (read(BLIND).sees, read(BLIND).blind) == (False, True)
    for look in ("files", "nvml", "cuda"):
        seen = read({**BLIND, look: {"error": "no answer in 20 s"}})
        assert (seen.sees, seen.blind) == (False, False), look
    unclear = read({**BLIND, "files": {"count": 1, "usable": 0, "unclear": 1, "names": ["/dev/nvidia0"]}})
    assert (unclear.sees, unclear.blind) == (False, False)
    refused = read({**BLIND, "files": {"count": 1, "usable": 0, "unclear": 0, "names": ["/dev/nvidia0"]}})
    assert (refused.sees, refused.blind) == (False, True)


@pytest.mark.parametrize("look", ["files", "nvml", "cuda"])
def test_each_look_alone_shows_a_gpu(look: str) -> None:
    assert read({**BLIND, look: SEEING[look]}).sees


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("probe",), 2),
        (("probe",), True),
        (("probe",), "1"),
        (("files",), []),
        (("files",), None),
        (("files", "count"), -1),
        (("files", "count"), 1.0),
        (("files", "count"), True),
        (("files", "count"), LARGEST + 1),
        (("files", "usable"), 3),
        (("files", "names"), {}),
        (("files", "names"), ["a", "b", "c"]),
        (("files", "names", 0), 7),
        (("nvml", "mig"), 2),
        (("nvml", "devices"), [{}]),
        (("nvml", "devices", 0), []),
        (("nvml", "devices", 0, "mib"), None),
        (("nvml",), {"error": 1}),
        (("cuda", "uuids"), ["1"] * (MOST + 1)),
        (("cuda", "context"), 0),
        (("memory",), {}),
        (("memory", "got"), 4097),
        (("frameworks",), None),
        (("frameworks", "pytorch", "got"), 4097),
        (("frameworks",), {"../etc": SEEING["frameworks"]["pytorch"]}),
        (("cut",), 0),
    ],
)
def test_anything_else_is_no_report(path: tuple[Any, ...], value: object) -> None:
    assert sighting(json.dumps(changed(path, value))) is None


@pytest.mark.parametrize("key", [*SEEING])
def test_a_report_lacks_nothing(key: str) -> None:
    assert sighting(json.dumps({name: value for name, value in SEEING.items() if name != key})) is None


@pytest.mark.parametrize("text", ["", "null", "[]", "1" * LONGEST, "[" * LONGEST, '{"probe":1', '{"probe":NaN}'])
def test_other_texts_are_no_reports(text: str) -> None:
    assert sighting(text) is None


def test_a_report_that_says_a_thing_twice_is_none() -> None:
    text = json.dumps(BLIND)
    assert sighting(text) is not None
    assert sighting(text.replace('"cut"', '"cut": false, "cut"')) is None


def test_a_report_may_have_as_many_bytes_as_a_termination_message() -> None:
    text = json.dumps(BLIND)
    assert sighting(text + " " * (LONGEST - len(text))) is not None
    assert sighting(text + " " * (LONGEST - len(text) + 1)) is None
    wide = json.dumps({**BLIND, "cuda": {"error": "é" * (LONGEST - len(text))}}, ensure_ascii=False)
    assert len(wide) <= LONGEST < len(wide.encode())
    assert sighting(wide) is None


@given(st.text())
def test_texts_are_cleaned(text: str) -> None:
    seen = sighting(json.dumps(changed(("nvml", "devices", 0, "name"), text)))
    assert seen is None or isinstance(seen.nvml, SeenCards)
    if seen is not None and isinstance(seen.nvml, SeenCards):
        (device,) = seen.nvml.devices
        assert device.name.isascii()
        assert device.name.isprintable()
        assert len(device.name) <= 100


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
PLACES: list[tuple[Any, ...]] = [
    *((key,) for key in SEEING),
    *((key, inner) for key, value in SEEING.items() if isinstance(value, dict) for inner in value),
    *(("nvml", "devices", 0, key) for key in ("uuid", "name", "mib")),
    *(("frameworks", "pytorch", key) for key in ("version", "got", "stopped")),
]


@given(
    st.text()
    | JSON.map(json.dumps)
    | st.builds(lambda at, to: json.dumps(changed(at, to)), st.sampled_from(PLACES), JSON)
)
def test_no_text_raises(text: str) -> None:
    seen = sighting(text)
    assert seen is None or not (seen.sees and seen.blind)
