"""How each framework in each container is capped, as `explain caps`, `check --explain` and the HTML page say it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.policies import FACTS, POLICY, facts_of, policy_of
from tests.support.reviews import reviews
from tests.support.strategies import request_for
from webhook.cli import main as cli
from webhook.memory import explain
from webhook.memory.coverage import ALL, PER_SESSION, By, Capped, lines
from webhook.memory.driver.nodes import SELECTED
from webhook.memory.frameworks import walk
from webhook.policy.model import Policy

SAMPLE, CLUSTER = policy_of(POLICY), facts_of(FACTS)
INJECT = replace(SAMPLE, shim=True)
DRIVER = replace(SAMPLE, pools=(replace(SAMPLE.pools[0], driver_limits=True), *SAMPLE.pools[1:]))
PYTHON = {"name": "PYTHONPATH", "value": ""}
LINE = 'slicewarden.dev/python-path: "PATH"'


def pod(container: Mapping[str, Any], annotations: Mapping[str, str]) -> dict[str, Any]:
    asks = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": "vision",
            "annotations": {"slicewarden.dev/trust": "trusted", **annotations},
        },
        "spec": {"containers": [{"name": "c", "image": "torch:2.4", **asks, **container}]},
    }


def rows(container: Mapping[str, Any], policy: Policy = INJECT, **annotations: str) -> dict[str, tuple[By, str, str]]:
    said = {f"slicewarden.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    (landing,) = explain.landings(reviews(request_for(pod(container, said)), policy, CLUSTER), capped=True)
    return {one.framework: one[2:] for one in landing.capped}


OLD = "pytorch before 2.10"
NOT_KNOWN = "no shim: its image's PYTHONPATH is not known"
VARIABLE = (By.VARIABLE, "", "")
SHIM = (By.SHIM, "", "")
NO_CACHE = {"name": "PYTORCH_NO_CUDA_MEMORY_CACHING", "value": "1"}
SECRET = {"name": "XLA_PYTHON_CLIENT_ALLOCATOR", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}


def test_variables_and_the_shim_are_told_apart() -> None:
    names = ["pytorch 2.10 and newer", "jax", "cupy", "paddlepaddle", OLD, "tensorflow"]
    listed = list(rows({}))
    assert [name for name in listed if name in names] == names
    assert listed[-2:] == ["onnxruntime", "other CUDA programs"]
    assert {*listed[:-2]} - {*names} <= {framework.capped for framework in walk()}
    assert rows({})["jax"] == VARIABLE
    assert {rows({})[name] for name in (OLD, "tensorflow", "onnxruntime")} == {(By.NONE, NOT_KNOWN, LINE)}
    given = rows({"env": [PYTHON]})
    assert [given[name] for name in (OLD, "tensorflow", PER_SESSION)] == [SHIM] * 3
    assert rows({}, python_path="") == given


@pytest.mark.parametrize(
    ("policy", "annotations", "why"),
    [
        (SAMPLE, {}, (By.NONE, "no shim: the policy has none", "memory.shim: Inject")),
        (
            INJECT,
            {"memory_shim": "off", "python_path": ""},
            (By.NONE, "no shim: the pod does without", "remove slicewarden.dev/memory-shim"),
        ),
    ],
)
def test_a_pod_without_the_shim_says_why(policy: Policy, annotations: dict[str, str], why: tuple[By, str, str]) -> None:
    assert rows({}, policy, **annotations)[OLD] == why


def test_a_pod_that_says_its_torch_has_no_row_for_others() -> None:
    assert OLD not in rows({}, torch_version="2.11")
    assert OLD in rows({}, torch_version="2.4")


def test_a_variable_that_takes_the_cap_away_leaves_that_framework_alone_without() -> None:
    got = rows({"env": [NO_CACHE, SECRET]})
    assert got["pytorch 2.10 and newer"][0] is By.NONE
    assert "PYTORCH_NO_CUDA_MEMORY_CACHING=1" in got["pytorch 2.10 and newer"][1]
    assert got["jax"][0] is By.NONE
    assert got["cupy"] == VARIABLE


def test_a_framework_that_the_policy_leaves_out_is_named() -> None:
    got = rows({}, replace(INJECT, frameworks=("pytorch",)))
    assert got["jax"] == (By.NONE, "the policy leaves it out", "memory.frameworks: [..., jax]")
    assert "tensorflow" not in got


def test_an_argument_caps_a_server() -> None:
    serve = {"image": "vllm/vllm-openai", "command": ["vllm", "serve", "m"]}
    assert rows(serve)["vLLM"] == (
        By.NONE,
        "started without --gpu-memory-utilization",
        "args: [--gpu-memory-utilization=0.211]",
    )
    assert rows({**serve, "args": ["--gpu-memory-utilization=0.2"]})["vLLM"] == (By.ARGUMENT, "", "")
    assert rows(serve, replace(INJECT, append_arguments=True))["vLLM"] == (By.ARGUMENT, "", "")
    ollama = rows({"image": "ollama/ollama"})["Ollama"]
    assert ollama[:2] == (By.NONE, "has no limit to set")


def test_the_driver_caps_all_frameworks_and_an_argument_is_still_named() -> None:
    late = f"the agent limits it after its start: pool shared does not select its nodes by {SELECTED}"
    assert rows({}, DRIVER) == {ALL: (By.DRIVER, late, "")}
    assert set(rows({"image": "vllm/vllm-openai"}, DRIVER)) == {ALL, "vLLM"}


def test_a_framework_of_one_image_has_a_row_there_alone() -> None:
    assert rows({"image": "ghcr.io/huggingface/text-generation-inference:3.0"})["tgi"] == VARIABLE


def test_a_line_is_written_for_all_frameworks_with_the_same_cap() -> None:
    some = [Capped("c", "a", By.VARIABLE), Capped("c", "b", By.VARIABLE), Capped("c", "d", By.NONE, "why", "way")]
    assert list(lines(some)) == ["c: a, b: by variable", "c: d: not capped: why; way"]
    assert list(lines([Capped("c", ALL, By.HAMI, "it requests x")])) == [
        "c: all frameworks: by HAMi-core (it requests x)"
    ]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert cli.main([*words, "--policy", str(POLICY), "--facts", str(FACTS)]) == 0
    return capsys.readouterr().out


def test_the_commands_and_the_page_show_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(pod({}, {})))
    table = run(capsys, "explain", "caps", str(file)).splitlines()
    assert table[0].split("  ")[0] == "object"
    assert next(line for line in table if "tensorflow" in line).endswith("memory.shim: Inject")
    said = (
        "c: pytorch before 2.10, tensorflow, onnxruntime: not capped: no shim: the policy has none; memory.shim: Inject"
    )
    assert said in run(capsys, "check", str(file), "--explain")
    assert said in run(capsys, "check", str(file), "--format", "html")
    (result,) = json.loads(run(capsys, "check", str(file), "--explain", "--format", "json"))["results"]
    (frameworks,) = [each["frameworks"] for each in result["placements"]]
    assert {"container": "c", "framework": "jax", "by": "variable", "why": "", "way": ""} in frameworks
    plain = json.loads(run(capsys, "check", str(file), "--format", "json"))["results"][0]["placements"][0]
    assert "frameworks" not in plain


def test_files_without_a_shared_gpu_are_told_and_a_pool_with_files_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(pod({"resources": {}}, {})))
    assert run(capsys, "explain", "caps", str(file)) == "no pod with caps\n"
    assert cli.main(["explain", "caps", str(file), "--pool", "shared"]) == 2
