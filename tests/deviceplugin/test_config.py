"""Compare what the device plugin holds once it has read a configuration, with the place of each value in the text."""

from typing import Any

import pytest

from webhook.api.fields import folded
from webhook.deviceplugin.config import Plugin, decode
from webhook.deviceplugin.decoders import Decoded, qualified
from webhook.documents.goyaml import parse


def read(text: str) -> Plugin:
    plugin, refused = decode(parse(text, last_key_wins=True)[0])
    assert refused == []
    return plugin


def refusals(text: str) -> list[tuple[Any, ...]]:
    return [refused.path for refused in decode(parse(text, last_key_wins=True)[0])[1]]


ENTRY = "{name: gpu, replicas: 4}"


def test_an_entry_has_its_places() -> None:
    plugin = read(
        "SHARING:\n  timeslicing:\n    renameByDefault: yes\n    failRequestsGreaterThanOne: no\n    resources:\n"
        "      - {name: gpu, replicas: 0x10, rename: x, devices: [0]}\n"
    )
    path = ("SHARING", "timeslicing")
    section = plugin.time_slicing
    assert section is not None
    assert (section.path, plugin.mps) == (path, None)
    assert section.rename_by_default == Decoded(True, (*path, "renameByDefault"))
    assert section.fail_requests == Decoded(False, (*path, "failRequestsGreaterThanOne"))
    (entry,) = section.entries
    at = (*path, "resources", 0)
    assert entry == (
        at,
        Decoded("nvidia.com/gpu", (*at, "name")),
        Decoded(16, (*at, "replicas")),
        Decoded("nvidia.com/x", (*at, "rename")),
        Decoded([0], (*at, "devices")),
    )


STRATEGIES = [
    ("", "none"),
    ("version: v1", "none"),
    (f"sharing: {{timeSlicing: {{resources: [{ENTRY}]}}}}", "time-slicing"),
    (f"sharing: {{mps: {{resources: [{ENTRY}]}}}}", "mps"),
    (f"sharing: {{mps: {{resources: [{ENTRY}]}}, timeSlicing: {{resources: [{ENTRY}]}}}}", "mps"),
    (f"sharing: {{mps: ~, timeSlicing: {{resources: [{ENTRY}]}}}}", "time-slicing"),
    (f"sharing: {{MPS: {{resources: [{ENTRY}]}}, mps: ~}}", "none"),
    (f"timeSlicing: {{resources: [{ENTRY}]}}", "none"),
]


@pytest.mark.parametrize(("text", "strategy"), STRATEGIES)
def test_mps_goes_before_time_slicing(text: str, strategy: str) -> None:
    plugin = read(text)
    assert plugin.strategy == strategy
    assert (plugin.section is None) == (strategy == "none")
    if strategy != "none":
        assert plugin.section is (plugin.mps if strategy == "mps" else plugin.time_slicing)


def test_flags_have_their_places_and_defaults() -> None:
    plugin = read("flags: {MigStrategy: single, plugin: {deviceListStrategy: [envvar, cdi-cri]}, gfd: {oneshot: yes}}")
    assert plugin.mig_strategy == Decoded("single", ("flags", "MigStrategy"))
    strategies = plugin.flag("plugin.deviceListStrategy", ())
    assert strategies == Decoded(("envvar", "cdi-cri"), ("flags", "plugin", "deviceListStrategy"))
    assert plugin.flag("gfd.oneshot", False).value is True
    assert read("").mig_strategy == Decoded("none", ("flags", "migStrategy"))


def test_null_clears_a_value_that_another_spelling_set() -> None:
    assert read("flags: {MIGSTRATEGY: single, migStrategy: ~}").mig_strategy.value == "none"
    assert read("FLAGS: {migStrategy: single}\nflags: ~").mig_strategy.value == "single"
    plugin = read("flags: {PLUGIN: {deviceIDStrategy: index}, plugin: ~}")
    assert plugin.given == {}


def test_two_spellings_of_a_key_are_merged_as_go_merges_them() -> None:
    plugin = read(
        "sharing:\n"
        "  TIMESLICING:\n    failRequestsGreaterThanOne: true\n"
        "    resources: [{name: a, replicas: 4, rename: x}, {name: b, replicas: 2}]\n"
        "  timeSlicing: {resources: [{name: c, replicas: ~}]}\n"
    )
    section = plugin.time_slicing
    assert section is not None
    assert section.path == ("sharing", "timeSlicing")
    assert section.fail_requests == Decoded(True, ("sharing", "TIMESLICING", "failRequestsGreaterThanOne"))
    (entry,) = section.entries
    assert entry.name == Decoded("nvidia.com/c", ("sharing", "timeSlicing", "resources", 0, "name"))
    assert entry.replicas == Decoded(4, ("sharing", "TIMESLICING", "resources", 0, "replicas"))
    assert entry.rename == Decoded("nvidia.com/x", ("sharing", "TIMESLICING", "resources", 0, "rename"))


def test_all_faults_of_a_configuration_are_reported_at_once() -> None:
    text = (
        "version: v2\n"
        "sharing: {timeSlicing: {renameByDefault: 1, resources: [{name: GPU, replicas: 1, devices: 0}, x]}, mps: 4}\n"
        "flags: {migStrategy: x, plugin: {sharedDevicesAllocationPolicy: x}}\nimex: {channelIDs: [1]}\n"
    )
    entry = ("sharing", "timeSlicing", "resources", 0)
    assert set(refusals(text)) == {
        ("version",),
        ("sharing", "timeSlicing", "renameByDefault"),
        *((*entry, key) for key in ("name", "replicas", "devices")),
        ("sharing", "timeSlicing", "resources", 1),
        ("sharing", "mps"),
        ("flags", "migStrategy"),
        ("flags", "plugin", "sharedDevicesAllocationPolicy"),
        ("imex", "channelIDs"),
    }


@pytest.mark.parametrize("policy", ["distributed", "packed", "~"])
def test_an_allocation_policy_is_distributed_or_packed(policy: str) -> None:
    assert refusals(f"flags: {{plugin: {{sharedDevicesAllocationPolicy: {policy}}}}}") == []


@pytest.mark.parametrize("policy", ["''", "Packed", "1", "[packed]", "true"])
def test_another_allocation_policy_is_refused(policy: str) -> None:
    path = ("flags", "plugin", "sharedDevicesAllocationPolicy")
    assert refusals(f"flags: {{plugin: {{sharedDevicesAllocationPolicy: {policy}}}}}") == [path]
    assert refusals("flags: {plugin: {plugin: {sharedDevicesAllocationPolicy: packed}}}") == [
        ("flags", "plugin", "plugin", "sharedDevicesAllocationPolicy")
    ]


def test_a_key_folds_as_go_folds_it() -> None:
    assert folded("MIGStrategy") == folded("mig\u017ftrategy") == "migstrategy"
    assert folded("nvidiaCT\u212aPath") == "nvidiactkpath"
    for key in ("\ufb02ags", "fla\u0261s", "pa\u00dfDeviceSpecs", "t\u0131meSlicing", "t\u0130meSlicing"):
        assert not folded(key).isascii()


def test_a_name_has_the_prefix_once() -> None:
    assert qualified("gpu") == qualified("nvidia.com/gpu") == "nvidia.com/gpu"
    assert qualified("amd.com/gpu") == "nvidia.com/amd.com/gpu"


@pytest.mark.parametrize("value", [[], "x", 4, True, 4.5, {"sharing": []}, {"flags": {"gfd": 1}}])
def test_a_value_of_any_shape_is_decoded_or_refused(value: Any) -> None:
    plugin, refused = decode(value)
    assert plugin.strategy == "none"
    assert len(refused) == 1
