"""Lists of images: what registries' tools print, the ConfigMap, and what is known of a pod's image by it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.catalog.device_variables import DRIVER_LIMITS
from webhook.facts.images import (
    LIST,
    ImageSetting,
    ImageVariables,
    Unclear,
    config_map,
    find,
    printed,
    record_limits,
    reference,
)
from webhook.facts.kinds import kept
from webhook.facts.snapshot import Facts

LIMIT = "NVIDIA_GPU_MEMORY_LIMIT"
DIGEST = "sha256:" + "1" * 64
HUB = "docker.io/pytorch/pytorch"


@pytest.mark.parametrize(
    ("written", "full"),
    [
        ("python", "docker.io/library/python:latest"),
        ("pytorch/pytorch:2.4.1-cuda12.1", f"{HUB}:2.4.1-cuda12.1"),
        (f"index.docker.io/pytorch/pytorch@{DIGEST}", f"{HUB}@{DIGEST}"),
        (f"pytorch/pytorch:2.4@{DIGEST}", f"{HUB}@{DIGEST}"),
        ("localhost/a/b", "localhost/a/b:latest"),
        ("registry.example.com:5000/a__b/c-d:V1", "registry.example.com:5000/a__b/c-d:V1"),
        ("Registry/a", "Registry/a:latest"),
        ("[::1]:5000/a", "[::1]:5000/a:latest"),
        ("nvcr.io/nvidia/pytorch:24.07-py3", "nvcr.io/nvidia/pytorch:24.07-py3"),
        ("", ""),
        ("A", ""),
        ("a b", ""),
        ("a:", ""),
        ("a@sha256:12", ""),
        ("a/" * 600, ""),
        ("-a", ""),
    ],
)
def test_a_reference_is_read_as_registries_know_it(written: str, full: str) -> None:
    assert reference(written) == full
    assert reference(full) == full


SKOPEO = {
    "Name": HUB,
    "Digest": DIGEST,
    "RepoTags": ["2.4", "2.9"],
    "Architecture": "amd64",
    "Env": ["PYTHONPATH=/app"],
}
DOCKER = {
    "Id": "sha256:2",
    "RepoTags": ["pytorch/pytorch:2.4"],
    "RepoDigests": [f"pytorch/pytorch@{DIGEST}"],
    "Config": {"Env": ["PATH=/bin", "PYTHONPATH=/app:/src"]},
}
CONFIG: dict[str, Any] = {"architecture": "amd64", "os": "linux", "rootfs": {}, "config": {"Env": ["A=b"]}}


@pytest.mark.parametrize(
    ("value", "named", "known"),
    [
        (SKOPEO, "", {f"{HUB}@{DIGEST}": "/app"}),
        (SKOPEO, "pytorch/pytorch:2.4", {f"{HUB}:2.4": "/app", f"{HUB}@{DIGEST}": "/app"}),
        ({**SKOPEO, "Env": None}, "", {f"{HUB}@{DIGEST}": ""}),
        ([DOCKER], "", {f"{HUB}:2.4": "/app:/src", f"{HUB}@{DIGEST}": "/app:/src"}),
        ([SKOPEO, {**DOCKER, "RepoDigests": []}], "", {f"{HUB}@{DIGEST}": "/app", f"{HUB}:2.4": "/app:/src"}),
        (CONFIG, "a:1", {"docker.io/library/a:1": ""}),
        ({**CONFIG, "config": None}, "a:1", {"docker.io/library/a:1": ""}),
    ],
)
def test_what_each_tool_prints_is_read(value: Any, named: str, known: dict[str, str]) -> None:
    assert dict(printed(value, named)) == {image: ImageVariables(path, ()) for image, path in known.items()}


@pytest.mark.parametrize(
    ("value", "named", "why"),
    [
        (CONFIG, "", "does not name its image"),
        ({**SKOPEO, "Digest": ""}, "", "no Name and Digest"),
        ([DOCKER, DOCKER], "a", "remove the reference, which can name only one"),
        ({"Name": HUB, "Digest": DIGEST}, "", "is not what"),
        ("text", "", "is not what"),
        ({**SKOPEO, "Env": "PYTHONPATH=/app"}, "", "no list of texts"),
        ({**SKOPEO, "Env": ["PYTHONPATH=/a", "PYTHONPATH=/b"]}, "", "twice"),
        ({**SKOPEO, "Env": ["PYTHONPATH=/a\n/b"]}, "", "cannot be read"),
        ({**SKOPEO, "Env": ["NVIDIA_GPU_MEMORY_LIMIT=1", "NVIDIA_GPU_MEMORY_LIMIT=2"]}, "", "LIMIT twice"),
        ({**SKOPEO, "Env": ["NVIDIA_GPU_MEMORY_LIMITS=1\n2"]}, "", "LIMITS that cannot be read"),
    ],
)
def test_what_does_not_say_it_is_refused(value: Any, named: str, why: str) -> None:
    with pytest.raises(Unclear, match=why):
        list(printed(value, named))


def facts(*texts: str | None, namespace: str = "gpu-operator") -> Facts:
    data = {str(index): text for index, text in enumerate(texts)}
    item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": LIST, "namespace": namespace}, "data": data}
    part = kept(item)
    assert part is not None
    return Facts.of([part])


LISTED = json.dumps({f"{HUB}:2.4": "/app", f"{HUB}@{DIGEST}": "/src"})
ELSEWHERE = f"registry.example.com/mirror/pytorch@{DIGEST}"
UNREADABLE = "ConfigMap gpu-operator/slicewarden-images cannot be read as a list of images"
DISAGREE = "the lists of images give it more than one PYTHONPATH"


@pytest.mark.parametrize(
    ("texts", "image", "found"),
    [
        ([LISTED], "pytorch/pytorch:2.4", ImageSetting("/app")),
        ([LISTED], f"pytorch/pytorch:2.4@{DIGEST}", ImageSetting("/src")),
        ([LISTED], ELSEWHERE, ImageSetting("/src")),
        ([LISTED], "pytorch/pytorch:2.5", ImageSetting(None)),
        ([LISTED], "pytorch/pytorch:2.4@sha256:" + "2" * 64, ImageSetting(None)),
        ([LISTED], "mirror.example.com/pytorch/pytorch:2.4", ImageSetting(None)),
        ([LISTED], "No Reference", ImageSetting(None)),
        (["{", LISTED], "pytorch/pytorch:2.4", ImageSetting("/app")),
        (["{", LISTED], "pytorch/pytorch:2.5", ImageSetting(None, UNREADABLE)),
        ([None], "a", ImageSetting(None, UNREADABLE)),
        (["x" * 70000], "a", ImageSetting(None, UNREADABLE)),
        (["[" * 50000], "a", ImageSetting(None, UNREADABLE)),
        (['{"a": 1}'], "a", ImageSetting(None, UNREADABLE)),
        (['{"a": {"b": "c"}}'], "a", ImageSetting(None, UNREADABLE)),
        (['{"A": ""}'], "a", ImageSetting(None, UNREADABLE)),
        (['["a"]'], "a", ImageSetting(None, UNREADABLE)),
        (['{"a": "/x", "a:latest": "/y"}'], "a", ImageSetting(None, UNREADABLE)),
        (['{"a": "/x"}', '{"a": "/y"}'], "a", ImageSetting(None, DISAGREE)),
        (['{"a": "/x"}', '{"a": "/x"}'], "a", ImageSetting("/x")),
    ],
)
def test_an_image_is_known_by_its_tag_or_by_its_digest_alone(texts: list[str], image: str, found: ImageSetting) -> None:
    assert find(facts(*texts), ["gpu-operator"], image) == found


def test_a_list_counts_only_in_the_namespaces_that_the_policy_names() -> None:
    assert find(facts(LISTED, namespace="vision"), ["gpu-operator"], "pytorch/pytorch:2.4") == ImageSetting(None)


def test_a_list_that_does_not_fit_or_disagrees_is_refused() -> None:
    with pytest.raises(Unclear, match="one PYTHONPATH in one file"):
        config_map([("a:1", ImageVariables("/x")), ("a:1", ImageVariables("/y"))], "n")
    with pytest.raises(Unclear, match=f"one {LIMIT} in one file"):
        config_map([("a:1", ImageVariables("", ())), ("a:1", ImageVariables("", ((LIMIT, "1"),)))], "n")
    with pytest.raises(Unclear, match="more images than one ConfigMap holds"):
        config_map([(f"docker.io/library/a:{index}", ImageVariables("/x" * 1000)) for index in range(600)], "n")


NAMES = st.from_regex(r"[a-z]{1,8}(/[a-z0-9]{1,8})?:[a-z0-9]{1,8}", fullmatch=True).map(reference)
PATHS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=2000)


LIMITS = st.fixed_dictionaries({}, optional=dict.fromkeys(DRIVER_LIMITS, PATHS)).map(
    lambda own: tuple((name, own[name]) for name in DRIVER_LIMITS if name in own)
)
VARIABLES = st.builds(ImageVariables, PATHS, st.none() | LIMITS)


@given(st.dictionaries(NAMES, VARIABLES, max_size=60))
def test_what_is_written_is_what_is_found(known: dict[str, ImageVariables]) -> None:
    part = kept(config_map(known.items(), "gpu-operator"))
    assert part is not None
    snapshot = Facts.of([part])
    for image, own in known.items():
        assert find(snapshot, ["gpu-operator"], image) == ImageSetting(own.path, "", own.limits)
    assert find(snapshot, ["gpu-operator"], "unknown/image") == ImageSetting(None)
    assert record_limits(snapshot, ["gpu-operator"]) == any(own.limits is not None for own in known.values())


def test_the_driver_s_limits_of_an_image_are_read_and_an_entry_without_a_value_is_an_empty_one() -> None:
    env = ["A=b", f"{LIMIT}=40000", f"{LIMIT}S", "NVIDIA_GPU_MEMORY_REQUEST=40000=", "XNVIDIA_GPU_MEMORY_REQUESTS=1"]
    limits = ((LIMIT, "40000"), ("NVIDIA_GPU_MEMORY_REQUEST", "40000="), (f"{LIMIT}S", ""))
    assert dict(printed({**SKOPEO, "Env": env})) == {f"{HUB}@{DIGEST}": ImageVariables("", limits)}


def entry(**own: Any) -> str:
    return json.dumps({"a": {"PYTHONPATH": "/x", **own}})


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ([entry()], ImageSetting("/x", "", ())),
        ([entry(**{LIMIT: "1"})], ImageSetting("/x", "", ((LIMIT, "1"),))),
        ([entry(), '{"a": "/x"}'], ImageSetting("/x", "", ())),
        ([entry(), entry(**{LIMIT: "1"})], ImageSetting("/x", f"the lists of images give it more than one {LIMIT}")),
        ([entry(), '{"a": "/y"}'], ImageSetting(None, DISAGREE, ())),
        (['{"a": "/x"}'], ImageSetting("/x")),
        ([entry(**{LIMIT: 1})], ImageSetting(None, UNREADABLE)),
        ([entry(**{LIMIT: None})], ImageSetting(None, UNREADABLE)),
        ([entry(**{LIMIT: "1\n"})], ImageSetting(None, UNREADABLE)),
        ([entry(OTHER="1")], ImageSetting(None, UNREADABLE)),
        ([json.dumps({"a": {LIMIT: "1"}})], ImageSetting(None, UNREADABLE)),
        (['{"a": {}}'], ImageSetting(None, UNREADABLE)),
        (['{"a": []}'], ImageSetting(None, UNREADABLE)),
        (['{"a": [["PYTHONPATH", "/x"]]}'], ImageSetting(None, UNREADABLE)),
        (['{"a": {"PYTHONPATH": "/x", "PYTHONPATH": "/x"}}'], ImageSetting(None, UNREADABLE)),
        (['{"a": {"PYTHONPATH": {"PYTHONPATH": "/x"}}}'], ImageSetting(None, UNREADABLE)),
    ],
)
def test_an_entry_has_all_variables_or_the_path_alone(texts: list[str], found: ImageSetting) -> None:
    assert find(facts(*texts), ["gpu-operator"], "a") == found
