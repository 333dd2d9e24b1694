"""Every annotation that the sources of container runtimes name has been reviewed: a new one fails here first."""

import json
from typing import Any

import pytest
import yaml

from tests.support.runtimes import RECORDED, SOURCES, names_in
from webhook.catalog.device_annotations import RUNTIME_ANNOTATIONS, adds_devices

NAMES = {runtime: json.loads((RECORDED / f"{runtime}.json").read_text("utf-8"))["names"] for runtime in SOURCES}
REVIEWED: dict[str, Any] = {
    runtime: yaml.safe_load((RECORDED / f"{runtime}.yaml").read_text("utf-8")) for runtime in SOURCES
}


def refused(name: str) -> bool:
    """Whether the tables have a name. After a prefix such as `run.oci.` comes any name, and before `.nri.io` too."""
    name = f"a{name}" if name.startswith(".") else name
    name = f"{name}x" if name.endswith((".", "/")) else name
    return bool(adds_devices(name)) or name in RUNTIME_ANNOTATIONS


def reviewed(verdict: str) -> list[str]:
    return sorted({name for each in REVIEWED.values() for name in each[verdict]})


@pytest.mark.parametrize("runtime", SOURCES)
def test_every_name_was_reviewed_once(runtime: str) -> None:
    assert sorted([*REVIEWED[runtime]["way"], *REVIEWED[runtime]["harmless"]]) == NAMES[runtime]


@pytest.mark.parametrize("name", reviewed("way"))
def test_every_way_is_in_the_tables(name: str) -> None:
    assert refused(name)


@pytest.mark.parametrize("name", reviewed("harmless"))
def test_no_harmless_name_is_in_the_tables(name: str) -> None:
    assert not refused(name)


@pytest.mark.parametrize("name", REVIEWED["cri-o"]["harmless"])
def test_cri_o_takes_a_harmless_name_for_one_container_too(name: str) -> None:
    assert not any(map(refused, (f"{name}/main", f"{name}.main")))


@pytest.mark.parametrize(
    "prefix",
    [
        "dev.gvisor.internal",
        "io.katacontainers",
        "io.katacontainers.config.hypervisor",
        "io.kubernetes.cri",
        "io.kubernetes.cri-o",
    ],
)
def test_a_new_name_of_a_runtime_is_refused_before_it_is_known(prefix: str) -> None:
    assert refused(f"{prefix}.AnotherPath")


def test_the_name_of_a_runtime_is_no_annotation_of_it() -> None:
    assert not any(map(refused, ("dev.gvisor", "io.katacontainers", "io.kubernetes.cri", "io.kubernetes.cri-o")))


def test_the_names_in_a_source_are_its_constants_and_the_items_of_its_lists() -> None:
    source = """
const (
	// ShmPath is "a.comment".
	ShmPath = "io.kubernetes.cri-o.ShmPath"
	Sandbox = "sandbox"
	prefix  = "io.kubernetes.cri-o."
	Labels  = prefix + "Labels"
)
var All = []string{
	"bundle",
	ShmPath,
}
func of(name string) string { return prefix + "annotations." + name }
"""
    found = {f"io.kubernetes.cri-o.{name}" for name in ("", "Labels", "ShmPath", "annotations.")}
    assert names_in([source], SOURCES["cri-o"].names) == {*found, "bundle"}


def test_a_constant_of_another_file_counts_and_the_tests_of_rust_do_not() -> None:
    one = 'pub const PREFIX: &str = "io.katacontainers.config.";'
    other = 'fn a() -> String { PREFIX + "agent" }\n#[cfg(test)]\nmod tests { const A: &str = "io.katacontainers.a"; }'
    found = names_in([one, other], SOURCES["kata-containers"].names)
    assert found == {"io.katacontainers.config.", "io.katacontainers.config.agent"}
