"""Lists of images: what registries' tools print, the ConfigMap, and what is known of a pod's image by it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.facts.images import LIST, ImageSetting, Unclear, config_map, find, printed, reference
from webhook.facts.kinds import kept
from webhook.facts.snapshot import Facts

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
    assert dict(printed(value, named)) == known


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
        config_map([("a:1", "/x"), ("a:1", "/y")], "n")
    with pytest.raises(Unclear, match="more images than one ConfigMap holds"):
        config_map([(f"docker.io/library/a:{index}", "/x" * 1000) for index in range(600)], "n")


NAMES = st.from_regex(r"[a-z]{1,8}(/[a-z0-9]{1,8})?:[a-z0-9]{1,8}", fullmatch=True).map(reference)
PATHS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=2000)


@given(st.dictionaries(NAMES, PATHS, max_size=60))
def test_what_is_written_is_what_is_found(known: dict[str, str]) -> None:
    part = kept(config_map(known.items(), "gpu-operator"))
    assert part is not None
    snapshot = Facts.of([part])
    assert all(find(snapshot, ["gpu-operator"], image) == ImageSetting(path) for image, path in known.items())
    assert find(snapshot, ["gpu-operator"], "unknown/image") == ImageSetting(None)
