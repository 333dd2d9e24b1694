"""The most used public images: the table of docs/memory-caps.md says of each what a check of a pod with it says."""

import os
from dataclasses import replace
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.support.policies import FACTS, POLICY, facts_of, policy_of
from tests.support.reviews import reviews
from tests.support.strategies import request_for
from webhook.facts.images import LIST, ImageVariables, config_map, reference
from webhook.facts.snapshot import Facts
from webhook.memory import explain
from webhook.memory.coverage import Capped
from webhook.text import tables

IMAGES: list[dict[str, Any]] = yaml.safe_load((ROOT / "docs/images.yaml").read_text("utf-8"))
PAGE = ROOT / "docs/memory-caps.md"
SAMPLE = policy_of(POLICY)
INJECT = replace(SAMPLE, shim=True)

PATHS = [(reference(i["image"]), ImageVariables(i["path"])) for i in IMAGES if i["path"] is not None]
LISTED = config_map(PATHS, "gpu-operator")
KNOWN = replace(facts_of(FACTS), config_maps={("gpu-operator", LIST): LISTED["data"]})


def checked(image: str, *args: str, facts: Facts = KNOWN) -> dict[str, Capped]:
    asks = {"limits": {"nvidia.com/gpu": 1}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "vision", "annotations": {"slicewarden.dev/trust": "trusted"}},
        "spec": {"containers": [{"name": "c", "image": image, "args": list(args), "resources": asks}]},
    }
    (landing,) = explain.landings(reviews(request_for(pod), INJECT, facts), capped=True)
    return {one.framework: one for one in landing.capped}


@pytest.mark.parametrize("image", IMAGES, ids=[each["image"] for each in IMAGES])
def test_a_check_says_of_an_image_what_the_table_says(image: dict[str, Any]) -> None:
    assert checked(image["image"])[image["holds"]].by == image["capped"]


@pytest.mark.parametrize("name", ["vllm/vllm-openai:v0.9.0", "lmsysorg/sglang:v0.5.5", "tensorflow/serving:2.14.1-gpu"])
def test_the_argument_that_the_table_names_caps_its_program(name: str) -> None:
    (holds,) = [image["holds"] for image in IMAGES if image["image"] == name]
    argument = checked(name)[holds].way.removeprefix("args: [").removesuffix("]")
    assert checked(name, argument)[holds].by == "argument"


@pytest.mark.parametrize("image", [each for each in IMAGES if each["path"] is None], ids=lambda each: each["image"])
def test_a_path_that_is_said_delivers_the_shim_where_the_table_says_so(image: dict[str, Any]) -> None:
    listed = config_map([(reference(image["image"]), ImageVariables(""))], "gpu-operator")
    facts = replace(KNOWN, config_maps={("gpu-operator", LIST): listed["data"]})
    said = checked(image["image"])[image["holds"]]
    after = checked(image["image"], facts=facts)[image["holds"]]
    assert after.by == ("shim" if said.way.startswith("slicewarden.dev/python-path") else said.by)


def rows() -> list[tuple[str, ...]]:
    written: list[tuple[str, ...]] = []
    for image in IMAGES:
        found = checked(image["image"])[image["holds"]]
        path = "not known" if image["path"] is None else f"`{image['path']}`" if image["path"] else "none"
        way = f"`{found.way}`" if ": " in found.way else found.way
        written.append((f"`{image['image']}`", image["holds"], path, image["capped"], way, image["source"]))
    return written


HEAD = ("image", "holds", "`PYTHONPATH`", "capped by", "what turns a cap on, or helps", "source")


def test_the_page_has_the_table() -> None:
    table = "\n".join(tables.markdown(HEAD, (tuple(map(tables.escaped, row)) for row in rows())))
    before, _, rest = PAGE.read_text("utf-8").partition("| image | holds")
    old, _, after = f"| image | holds{rest}".partition("\n\n")
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(f"{before}{table}\n\n{after}", "utf-8")
    else:
        assert old == table, "UPDATE_GOLDEN=1 pytest tests/memory/test_images.py writes it"
