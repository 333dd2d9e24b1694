"""Every annotation that CRI-O's and gVisor's sources name has been reviewed: a new one of CRI-O's fails here first."""

import json
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.support.cri_o import RECORDED, names_in
from webhook.catalog.device_annotations import RUNTIME_ANNOTATIONS, adds_devices

NAMES: list[str] = json.loads(RECORDED.read_text("utf-8"))["names"]
REVIEWED: dict[str, Any] = yaml.safe_load((ROOT / "tests/runtimes/cri-o.yaml").read_text("utf-8"))


def refused(name: str) -> bool:
    """Whether the tables have a name; after a prefix such as `run.oci.` any name."""
    return bool(adds_devices(name)) or (f"{name}x" if name.endswith(".") else name) in RUNTIME_ANNOTATIONS


def test_every_name_was_reviewed_once() -> None:
    assert sorted([*REVIEWED["way"], *REVIEWED["harmless"]]) == NAMES


@pytest.mark.parametrize("name", REVIEWED["way"])
def test_every_way_is_in_the_tables(name: str) -> None:
    assert refused(name)


@pytest.mark.parametrize("name", REVIEWED["harmless"])
def test_no_harmless_name_is_in_the_tables(name: str) -> None:
    assert not any(map(refused, (name, f"{name}/main", f"{name}.main")))


def test_a_new_note_of_cri_o_is_refused_before_it_is_known() -> None:
    assert refused("io.kubernetes.cri-o.AnotherPath")
    assert not refused("io.kubernetes.cri-o")


def test_the_names_in_a_source_are_its_constants_and_the_items_of_its_lists() -> None:
    source = """
const (
	// ShmPath is "the.path".
	ShmPath = "io.kubernetes.cri-o.ShmPath"
	Sandbox = "sandbox"
)
var All = []string{
	"bundle",
	ShmPath,
}
"""
    assert names_in(source) == {"io.kubernetes.cri-o.ShmPath", "bundle"}


GVISOR = {
    "way": [
        *("bundle.x", "container-name-remap.x", "flag.debug-log", "flag.host-uds", "spec.cgroup-parent"),
        *("internal.checkpoint.compression", "internal.checkpoint.enable", "internal.checkpoint.path"),
        *("internal.checkpoint.resume", "internal.fscheckpoint.enable", "internal.fscheckpoint.path"),
        *("internal.fscheckpoint.paths", "internal.fscheckpoint.resume", "internal.restore.host-image-path"),
        *("spec.rootfs.source", "tar.rootfs.upper", "tar.rootfs.upper.main", "anything-new"),
    ],
    "harmless": [
        *("empty-dir.data", "flag.qdisc", "flag.qdisc-tbf-rate", "internal.cpufeatures", "internal.nvproxy"),
        *("internal.seccomp.main", "internal.tpuproxy", "spec.mount.data.share", "spec.mount.data.source"),
        *("spec.mount.data.type", "spec.rootfs.overlay", "spec.rootfs.type"),
    ],
}
"""The names after `dev.gvisor.` in runsc's source at 3c5eee17d, with examples for those that are prefixes."""


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in GVISOR.items() for name in names])
def test_the_names_of_gvisor_that_name_no_file_pass(kind: str, name: str) -> None:
    assert refused(f"dev.gvisor.{name}") is (kind == "way")
