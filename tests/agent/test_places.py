"""A process's cgroup file: which pod and container it names, in every form that runtimes write."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.cgroups.places import ContainerCgroup, place

ID = "ab12" * 16
OTHER = "cd34" * 16
UID = "11111111-2222-3333-4444-555555555555"
UNDERSCORED = UID.replace("-", "_")
STATIC = "0a" * 16
SLICE = f"kubepods-burstable-pod{UNDERSCORED}.slice"

SCOPE = f"cri-containerd-{ID}.scope"
KIND = f"/system.slice/docker-{OTHER}.scope/kubelet.slice/kubelet-kubepods.slice"

# Before the container's path, the path, after it, and the pod; without a pod the file names none.
WRITTEN = {
    "systemd, containerd": ("0::", f"/kubepods.slice/{SLICE}/{SCOPE}", "", UID),
    "systemd, guaranteed": ("0::", f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/{SCOPE}", "", UID),
    "cgroupfs, containerd": ("0::", f"/kubepods/besteffort/pod{UID}/{ID}", "", UID),
    "CRI-O": ("0::", f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-{ID}.scope", "", UID),
    "CRI-O with a child": ("0::", f"/kubepods.slice/{SLICE}/crio-{ID}.scope", "/container", UID),
    "cri-dockerd, systemd": ("0::", f"/kubepods.slice/{SLICE}/docker-{ID}.scope", "", UID),
    "cri-dockerd, cgroupfs": ("0::", f"/kubepods/burstable/pod{UID}/{ID}", "\n", UID),
    "systemd within the container": ("0::", f"/kubepods.slice/{SLICE}/{SCOPE}", "/init.scope", UID),
    "another cgroup namespace": ("0::", f"/../../../kubepods-burstable.slice/{SLICE}/{SCOPE}", "", UID),
    "kind": ("0::", f"{KIND}/kubelet-kubepods-besteffort-pod{UNDERSCORED}.slice/{SCOPE}", "", UID),
    "another root": ("0::", f"/my.slice/my-kubepods-pod{UNDERSCORED}.slice/{SCOPE}", "", UID),
    "version 1, cgroupfs": ("11:memory:/x\n4:freezer:", f"/kubepods/burstable/pod{UID}/{ID}", "\n0::/", UID),
    "version 1, systemd": ("5:freezer:", f"/kubepods.slice/{SLICE}/{SCOPE}", "\n0::/system.slice", UID),
    "kubelet systemd, runtime cgroupfs": ("0::", f"/system.slice/{SLICE}:cri-containerd:{ID}", "/x", UID),
    "a static pod": ("0::", f"/kubepods.slice/kubepods-burstable-pod{STATIC}.slice/{SCOPE}", "", STATIC),
    "Docker without Kubernetes": ("0::", f"/system.slice/docker-{ID}.scope", "", ""),
    "a service of the host": ("0::", "/system.slice/nvidia-persistenced.service", "", ""),
    "the root": ("0::", "/", "", ""),
    "a name that is only like a pod's": ("0::", f"/user.slice/pod{UID}x/{ID}", "", ""),
    "a removed cgroup": ("0::", f"/kubepods/pod{UID}/{ID}", " (deleted)", ""),
    "nothing": ("", "", "", ""),
}
FORMS = {
    name: (f"{before}{path}{after}", ContainerCgroup(pod, ID, path, 1 if "freezer" in before else 2) if pod else None)
    for name, (before, path, after, pod) in WRITTEN.items()
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_names_its_pod_and_container_or_none(form: str) -> None:
    text, expected = FORMS[form]
    assert place(text) == expected


def test_all_forms_are_tried() -> None:
    assert len(FORMS) == 21


def test_a_tenant_cannot_name_a_cgroup_within_its_own_so_that_it_counts_as_another_pods() -> None:
    own = f"/kubepods/besteffort/pod{UID}/{ID}"
    forged = f"{own}/kubepods/pod{'99999999' + UID[8:]}/{OTHER}"
    assert place(f"0::{forged}") == ContainerCgroup(UID, ID, own, 2)
    before = f"/kubepods/besteffort/pod{UID}/pod{'99999999' + UID[8:]}/{ID}"
    found = place(f"0::{before}")
    assert found is not None
    assert found.pod == UID
    beside = f"{own}/kubepods-pod{'99999999' + UNDERSCORED[8:]}.slice:cri-containerd:{OTHER}"
    assert place(f"0::{beside}") == ContainerCgroup(UID, ID, own, 2)


def test_a_tenant_cannot_name_a_cgroup_as_the_kernel_names_a_removed_one_to_hide_its_process() -> None:
    own = f"/kubepods/besteffort/pod{UID}/{ID}"
    assert place(f"0::{own}/x (deleted)") == ContainerCgroup(UID, ID, own, 2)
    assert place(f"4:freezer:{own}/x (deleted)\n0::/") == ContainerCgroup(UID, ID, own, 1)


def test_a_tenant_cannot_pass_for_another_container_in_a_hierarchy_that_the_runtime_does_not_manage() -> None:
    own = f"/kubepods/besteffort/pod{UID}/{ID}"
    forged = f"/system.slice/containerd.service/kubepods/pod{'99999999' + UID[8:]}/{OTHER}"
    assert place(f"4:freezer:{own}\n0::{forged}") is None
    assert place(f"4:freezer:{forged}\n0::{own}") is None
    assert place(f"4:freezer:{own}\n0::{own}") == ContainerCgroup(UID, ID, own, 2)


def test_a_path_of_another_cgroup_namespace_has_ids_and_cannot_be_used() -> None:
    found = place(FORMS["another cgroup namespace"][0])
    assert found is not None
    assert not found.reachable
    plain = place(FORMS["systemd, containerd"][0])
    assert plain is not None
    assert plain.reachable


def test_a_file_that_is_cut_off_anywhere_or_has_other_bytes_is_read_or_names_nothing() -> None:
    rng = random.Random(19)  # noqa: S311 - a fuzz that is the same each time
    texts = [text for text, _ in FORMS.values()]
    for number in range(20_000):
        text = rng.choice(texts)
        kind = number % 3
        if kind == 0:
            text = text[: rng.randrange(len(text) + 1)]
        elif kind == 1 and text:
            at = rng.randrange(len(text))
            text = text[:at] + chr(rng.randrange(0x250)) + text[at + 1 :]
        else:
            text = rng.randbytes(rng.randrange(200)).decode("utf-8", "replace")
        found = place(text)
        assert found is None or (found.container in found.path and len(found.container) == 64)


def test_a_file_of_a_mebibyte_is_read_to_its_first_part() -> None:
    assert place("0::" + "/a" * 2**19) is None
    assert place("4:freezer:/\n" * 2**17) is None


@given(st.text(max_size=300))
def test_no_text_raises(text: str) -> None:
    place(text)
    place(f"0::/kubepods/pod{UID}/{text}")
