"""The command, run as people run it."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests import ROOT
from tests.support.policies import OPTIONS
from webhook import rules
from webhook.cli import main as cli
from webhook.cli.commands import serve
from webhook.cli.inputs import load_policy

GOOD = """\
apiVersion: v1
kind: Pod
metadata: {name: good, namespace: vision, annotations: {slicewarden.dev/trust: trusted}}
spec:
  containers:
    - name: c
      resources: {limits: {nvidia.com/gpu: 1}}
"""
BAD = """\
apiVersion: v1
kind: Pod
metadata:
  name: bad
  namespace: vision
  annotations: {slicewarden.dev/trust: trusted}
spec:
  containers:
    - name: c
      resources:
        limits:
          cpu: "1"
          nvidia.com/gpu.shared: 2
"""
NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: plain}\n"
NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: lab, labels: {slicewarden.dev/trust: trusted}}\n"


class Run(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def report(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str | Path, options: Sequence[str] = OPTIONS, stdin: str = "") -> Run:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        status = cli.main(["check", *map(str, arguments), *options])
        captured = capsys.readouterr()
        return Run(status, captured.out, captured.err)

    return call


def test_a_denial_names_file_line_rule_and_place(run: Any, tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(f"{GOOD}---\n{BAD}")
    done = run("pod.yaml", "--format", "json")
    assert done.status == 1
    report = done.report
    assert (report["apiVersion"], report["kind"]) == ("slicewarden.dev/v1alpha1", "CheckReport")
    summary = {"objects": 2, "allowed": 1, "denied": 1, "warned": 0, "repaired": 0, "errors": 0, "unjudged": 0}
    assert report["summary"] == summary
    assert report["policy"] == {"name": "sample", "digest": load_policy(OPTIONS[1]).digest}
    good, bad = report["results"]
    assert (good["allowed"], good["findings"], bool(good["patch"])) == (True, [], True)
    assert {k: bad[k] for k in ("file", "line", "document", "apiVersion", "kind", "namespace", "name", "allowed")} == {
        "file": "pod.yaml",
        "line": 9,
        "document": 1,
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "vision",
        "name": "bad",
        "allowed": False,
    }
    (finding,) = bad["findings"]
    assert finding["message"].startswith("2 slices in one pod")
    assert {k: finding[k] for k in ("rule", "action", "line", "path")} == {
        "rule": "multiple-slices",
        "action": "Deny",
        "line": 21,
        "path": "spec.containers[0].resources.limits[nvidia.com/gpu.shared]",
    }


def test_the_table_says_the_same_to_people(run: Any, tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(BAD)
    done = run("pod.yaml")
    assert done.status == 1
    assert done.out.startswith("denied   pod.yaml:1  Pod vision/bad\n  Deny   line 13   multiple-slices")
    assert done.out.endswith("1 object: 0 allowed, 1 denied, 0 with warnings; 0 errors\n")


def test_only_objects_with_findings_or_patches_are_listed(run: Any, tmp_path: Path) -> None:
    (tmp_path / "pods.yaml").write_text(f"{GOOD}---\n{BAD}---\n{NODE}")
    listed = re.compile(r"^(?:allowed|denied) +\S+  (.+)$", re.MULTILINE)
    summary = "\n\n3 objects: 2 allowed, 1 denied, 0 with warnings; 0 errors\n"
    for options, names in (
        ((), ["Pod vision/bad", "Pod vision/good"]),
        (("--all",), ["Pod vision/bad", "Pod vision/good", "Node plain"]),
        (("--explain",), ["Pod vision/bad", "Pod vision/good"]),
    ):
        text = run("pods.yaml", *options).out
        assert listed.findall(text) == names
        assert text.endswith(summary)
    quiet = run("pods.yaml", "--quiet")
    assert listed.findall(quiet.out) == ["Pod vision/bad"]
    assert not any(word in quiet.out for word in ("objects:", "patch", "lands"))
    assert quiet.status == 1
    assert len(run("pods.yaml", "-o", "json").report["results"]) == 3


def test_a_quiet_run_without_findings_says_nothing(run: Any, tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(GOOD)
    assert "note: " in run("pod.yaml", options=OPTIONS[2:]).err
    assert run("pod.yaml", "-q", options=OPTIONS[2:]) == (0, "", "")
    run("pod.yaml", "-q", "--output", "table.txt")
    assert (tmp_path / "table.txt").read_text() == ""


def test_rule_and_skip_rule_choose_the_findings_that_are_reported(run: Any, tmp_path: Path) -> None:
    bad = BAD.replace("spec:\n", "spec:\n  hostPID: true\n")
    (tmp_path / "pods.yaml").write_text(f"{GOOD}---\n{bad}")

    def found(*options: str) -> tuple[int, set[str], int]:
        done = run("pods.yaml", "--format", "json", *options)
        results = done.report["results"]
        rules = {finding["rule"] for each in results for finding in each["findings"]}
        return done.status, rules, sum(bool(each["patch"]) for each in results)

    assert found() == (1, {"multiple-slices", "host-namespaces"}, 2)
    assert found("--rule", "multiple-slices") == (1, {"multiple-slices"}, 0)
    assert found("--rule", "multiple-slices", "--rule", "host-namespaces")[1] == {"multiple-slices", "host-namespaces"}
    assert found("--skip-rule", "multiple-slices") == (1, {"host-namespaces"}, 2)
    assert found("--rule", "unearned-trust") == (0, set(), 0)
    assert found("--rule", "multiple-slices", "--skip-rule", "multiple-slices") == (0, set(), 0)
    done = run("pods.yaml", "--rule", "multiple-slice")
    assert (done.status, done.err.partition("\n")[0]) == (
        2,
        "error: invalid value for '--rule': no such rule, did you mean multiple-slices?",
    )


def test_statistics_count_by_rule_and_namespace(run: Any, tmp_path: Path) -> None:
    lab = BAD.replace("namespace: vision", "namespace: lab")
    (tmp_path / "pods.yaml").write_text(f"{GOOD}---\n{BAD}---\n{BAD.replace('bad', 'worse')}---\n{lab}")
    done = run("pods.yaml", "--statistics", "--rule", "multiple-slices")
    assert (done.status, done.out) == (
        1,
        "rule             action  findings  objects  namespaces\n"
        "multiple-slices  Deny           2        2           1\n"
        "\n"
        "rule             namespace  action  findings  objects\n"
        "multiple-slices  vision     Deny           2        2\n"
        "\n"
        "4 objects: 2 allowed, 2 denied, 0 with warnings; 0 errors\n",
    )
    report = run("pods.yaml", "--statistics", "--format", "json").report
    assert report["kind"] == "StatisticsReport"
    one = {"rule": "multiple-slices", "action": "Deny", "findings": 2, "objects": 2}
    assert {**one, "namespaces": 1} in report["rules"]
    assert {**one, "namespace": "vision"} in report["namespaces"]
    assert sum(each["findings"] for each in report["rules"]) == sum(each["findings"] for each in report["namespaces"])
    done = run("pods.yaml", "--statistics", "--format", "sarif")
    assert done.err.startswith("error: --statistics has no sarif format; use table or json\n")


def test_a_run_that_finds_no_object_fails(run: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/values.yaml").write_text("a: 1\n")
    done = run("empty")
    assert done.status == 2
    assert done.out.startswith("error    empty: no Kubernetes object in it; --allow-empty accepts that\n")
    assert run("empty", "--allow-empty").status == 0
    (tmp_path / "empty/service.yaml").write_text("apiVersion: v1\nkind: Service\nmetadata: {name: s}\n")
    done = run("empty")
    assert done.status == 2
    assert done.out.startswith("error    empty: no object of a kind that is judged; --allow-empty accepts that\n")
    assert run("empty", "--allow-empty").status == 0


def test_the_variables_of_a_cap_share_a_line(run: Any, tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(GOOD)
    text = run("pod.yaml").out
    (line,) = [line for line in text.splitlines() if ".env" in line]
    closed = 'NVIDIA_NVSWITCH="", NVIDIA_IMEX_CHANNELS=""'
    assert line == f"  patch  + spec.containers[0].env: 7 memory-cap variables (--explain), {closed}"
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" in run("pod.yaml", "--explain").out


@pytest.mark.parametrize(
    ("environment", "options", "coloured"),
    [
        ({}, (), False),
        ({"FORCE_COLOR": "1"}, (), True),
        ({"FORCE_COLOR": ""}, (), False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, (), False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, (), True),
        ({"FORCE_COLOR": "1"}, ("--color", "never"), False),
        ({"NO_COLOR": "1"}, ("--color", "always"), True),
        ({"FORCE_COLOR": "1"}, ("--color", "auto"), True),
    ],
)
def test_colour_is_chosen_by_the_option_then_by_the_environment(
    run: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    options: tuple[str, ...],
    coloured: bool,
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "pod.yaml").write_text(BAD)
    assert ("\033[1;31mdenied \033[0m" in run("pod.yaml", *options).out) is coloured
    run("pod.yaml", *options, "--output", "file")
    assert "\033" not in (tmp_path / "file").read_text()


def test_folders_are_walked_and_other_files_passed_over(run: Any, tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/pod.yml").write_text(GOOD)
    (tmp_path / "a/pod.json").write_text('{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}}')
    (tmp_path / "a/values.yaml").write_text("replicas: 3\n")
    (tmp_path / "a/patch.yaml").write_text("- op: remove\n  path: /spec\n")
    (tmp_path / "a/service.yaml").write_text("apiVersion: v1\nkind: Service\nmetadata: {name: s}\n")
    (tmp_path / "a/README.md").write_text("# not a manifest: [")
    done = run("a", "--format", "json")
    assert done.status == 0
    assert [r["file"] for r in done.report["results"]] == ["a/b/pod.yml", "a/pod.json"]


def test_a_mounted_config_map_is_read_once(run: Any, tmp_path: Path) -> None:
    mounted = tmp_path / "mounted"
    (mounted / "..2026_01_01").mkdir(parents=True)
    (mounted / "..2026_01_01/pod.yaml").write_text(BAD)
    (mounted / "..data").symlink_to("..2026_01_01")
    (mounted / "pod.yaml").symlink_to("..data/pod.yaml")
    assert [r["file"] for r in run("mounted", "--format", "json").report["results"]] == ["mounted/pod.yaml"]


def test_live_without_a_cluster_ends_with_a_one_line_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tls = ["--tls-cert", "none", "--tls-key", "none"]
    assert cli.main(["serve", *OPTIONS[:2], "--live", "--kubeconfig", str(tmp_path / "none"), *tls]) == 2
    captured = capsys.readouterr().err
    assert captured.startswith(f"error: {tmp_path}/none: ")
    assert captured.count("\n") == 1


def test_standard_input_is_read(run: Any) -> None:
    done = run("-", "--format", "json", stdin=BAD)
    assert done.status == 1
    assert done.report["results"][0]["file"] == "-"


def test_standard_input_without_an_object_is_an_error_but_an_empty_list_is_not(run: Any) -> None:
    done = run("-", stdin='Error: chart "x" not found\n')
    assert (done.status, done.out.splitlines()[0]) == (2, "error    -: no Kubernetes object on standard input")
    assert run("-", stdin="apiVersion: v1\nkind: List\nitems: []\n").status == 0


def test_a_pod_too_large_for_every_pool_is_denied_with_the_largest_request_allowed(run: Any, tmp_path: Path) -> None:
    pools = """\
    - {name: small, sharing: none, trust: [untrusted], resources: [nvidia.com/gpu], maxRequest: 2,
       nodes: {matchLabels: {gpus: small}}}
    - {name: big, sharing: none, trust: [untrusted], resources: [nvidia.com/gpu], maxRequest: 8,
       nodes: {matchLabels: {gpus: big}}}
"""
    head = "apiVersion: slicewarden.dev/v1alpha1\nkind: GPUSharingPolicy\nmetadata: {name: a}\nspec:\n  pools:\n"
    (tmp_path / "policy.yaml").write_text(head + pools)
    pod = BAD.replace("  annotations: {slicewarden.dev/trust: trusted}\n", "").replace("gpu.shared: 2", "gpu: 9")
    done = run("-", "--policy", "policy.yaml", options=(), stdin=pod)
    assert "more than pool big gives to one pod; request at most 8" in " ".join(done.out.split())


def test_lists_are_opened_and_each_item_knows_its_line(run: Any, tmp_path: Path) -> None:
    indented = "".join(f"    {line}\n" for line in BAD.splitlines())
    (tmp_path / "list.yaml").write_text(f"apiVersion: v1\nkind: List\nitems:\n  -\n{indented}  -\n{indented}")
    done = run("list.yaml", "--format", "json")
    assert [(r["line"], r["document"], r["findings"][0]["line"]) for r in done.report["results"]] == [
        (5, 0, 17),
        (19, 0, 31),
    ]


def test_items_of_a_typed_list_have_the_kind_it_implies(run: Any, tmp_path: Path) -> None:
    pod = {"metadata": {"name": "x"}, "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 9}}}]}}
    (tmp_path / "pods.json").write_text(json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [pod]}, indent=1))
    done = run("pods.json", "--format", "json")
    assert done.status == 1
    (result,) = done.report["results"]
    assert (result["kind"], result["namespace"], result["name"]) == ("Pod", "default", "x")
    assert result["findings"][0]["line"] == 14


def test_unreadable_input_is_an_error_with_its_line_and_the_rest_is_judged(run: Any, tmp_path: Path) -> None:
    (tmp_path / "mixed.yaml").write_text(f"{GOOD}---\na: [\n---\n{BAD}")
    (tmp_path / "broken.json").write_text('{"a": 1,\n  "b": }')
    (tmp_path / "binary.yaml").write_bytes(b"kind: Pod\n\xff\xfe\x00")
    (tmp_path / "wrong.yaml").write_text("apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    name: c\n")
    done = run("mixed.yaml", "broken.json", "binary.yaml", "wrong.yaml", "missing.yaml", "--format", "json")
    assert done.status == 2
    assert [(e["file"], e["line"]) for e in done.report["errors"]] == [
        ("binary.yaml", 2),
        ("broken.json", 2),
        ("missing.yaml", 0),
        ("mixed.yaml", 10),
        ("wrong.yaml", 4),
    ]
    assert [r["name"] for r in done.report["results"]] == ["good", "bad"]
    assert done.report["errors"][4]["message"] == "spec.containers: must be a list, not a map"


def test_the_objects_of_a_run_are_facts_for_each_other(run: Any, tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(GOOD.replace("namespace: vision", "namespace: lab"))
    options = OPTIONS[:2]
    assert run("pod.yaml", options=options).status == 1
    (tmp_path / "namespace.yaml").write_text(NAMESPACE)
    assert run("pod.yaml", "namespace.yaml", options=options).status == 0


def test_facts_come_from_the_facts_file_and_from_the_objects_of_the_run(run: Any, tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(GOOD + "---\n" + GOOD.replace("vision", "lab") + "---\n" + NAMESPACE)
    assert run("pod.yaml").status == 0


CLUSTER = """\
apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata: {name: cluster-policy}
spec: {devicePlugin: {config: {name: plugin-config, default: any}}}
---
apiVersion: v1
kind: Node
metadata:
  name: t4-a
  labels: {nvidia.com/gpu.present: "true", nvidia.com/gpu.product: Tesla-T4, nvidia.com/device-plugin.config: t4}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: plugin-config, namespace: gpu-operator}
data:
  any: "version: v1"
  t4: |
    sharing:
      timeSlicing:
        failRequestsGreaterThanOne: true
        resources: [{name: nvidia.com/gpu, replicas: 4}]
"""


def test_a_configuration_and_what_names_and_uses_it_are_judged_together(run: Any, tmp_path: Path) -> None:
    def findings(text: str) -> list[tuple[str, str, str]]:
        (tmp_path / "cluster.yaml").write_text(text)
        report = run("cluster.yaml", "--format", "json", options=OPTIONS[:2]).report
        return [(each["kind"], f["rule"], f["message"]) for each in report["results"] for f in each["findings"]]

    assert findings(CLUSTER) == []
    ((kind, rule, message),) = findings(CLUSTER.replace("default: any", "default: all"))
    assert (kind, rule) == ("ClusterPolicy", "missing-sharing-config")
    assert "use one of any, t4, or add the key" in message
    ((kind, rule, message),) = findings(CLUSTER.replace("config: t4", "config: t5"))
    assert (kind, rule) == ("Node", "missing-sharing-config")
    ((kind, rule, message),) = findings(CLUSTER.replace("name: nvidia.com/gpu,", "name: nvidia.com/mig-1g.5gb,"))
    assert (kind, rule) == ("ConfigMap", "ignored-sharing-key")
    assert "1 node (t4-a)" in message


ON_A_NODE = """\
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: vision}
spec: {nodeName: t4-shared, containers: [{name: c, image: i}]}
"""


@pytest.mark.parametrize("name", ["t4-shared", "other"])
def test_a_node_in_a_judged_file_is_no_node_of_the_cluster(run: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / "pod.yaml").write_text(ON_A_NODE.replace("nodeName: t4-shared", f"nodeName: {name}"))
    (tmp_path / "node.yaml").write_text(f"apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n")
    assert run(".").status == 1
    assert run(".", "--facts", "node.yaml", options=OPTIONS[:2]).status == 0


def test_the_default_policy_is_the_folder_policies_or_else_the_sample(run: Any, tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(GOOD)
    facts = OPTIONS[2:]
    told = "note: no policies/ here: judged by the sample policy; --policy names yours\n"
    assert run("pod.yaml", options=facts)[0::2] == (0, told)
    (tmp_path / "policies").mkdir()
    sample = (ROOT / "policies/sample.yaml").read_text()
    (tmp_path / "policies/p.yaml").write_text(sample.replace("slicewarden.dev/trust: trusted}", "other: label}"))
    assert run("pod.yaml", options=facts)[0::2] == (1, "")


@pytest.mark.parametrize(
    ("files", "missing"),
    [
        ({}, "no nodes and no namespaces"),
        ({"namespace.yaml": NAMESPACE}, "no nodes"),
        ({"node.yaml": NODE}, "no namespaces"),
        ({"namespace.yaml": NAMESPACE, "node.yaml": NODE}, None),
    ],
)
def test_missing_facts_are_noted_once(run: Any, tmp_path: Path, files: dict[str, str], missing: str | None) -> None:
    for name, text in {"pod.yaml": GOOD, "pod2.yaml": BAD, **files}.items():
        (tmp_path / name).write_text(text)
    said = run(".", options=OPTIONS[:2]).err.splitlines()
    way = "`slicewarden facts --live > cluster.json` writes them to a file for --facts, --live asks"
    only = "note: nodes are known only from the files that are judged; --facts FILE names the cluster's own"
    expected = [f"note: {missing} are known: {way} the cluster"] if missing else []
    assert said == [*expected, *([only] if "node.yaml" in files else [])]
    assert run(".").err == ""


# What is not judged


def manifests(*kinds: str) -> str:
    """Objects of kinds, each written as apiVersion and kind."""
    each = (kind.split() for kind in kinds)
    return "---\n".join(f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\n" for version, kind in each)


def test_kinds_that_are_not_judged_are_counted_in_one_line(run: Any, tmp_path: Path) -> None:
    kinds = (
        "v1 Service",
        "apps/v1 Deploymnet",
        "extensions/v1beta1 Deployment",
        "example.com/v1 Trainer",
        "v1 Service",
    )
    review = {"uid": "a", "kind": {"group": "", "version": "v1", "kind": "Secret"}, "operation": "CREATE"}
    review |= {"object": {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}, "namespace": "vision"}
    saved = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": review}
    (tmp_path / "a.yaml").write_text(f"{GOOD}---\n{manifests(*kinds)}---\n{json.dumps(saved)}\n")
    said = (
        "6 objects are of kinds that are not judged: Deployment.extensions (did you mean Deployment.apps?), "
        "Deploymnet.apps (did you mean Deployment?), Service, Secret, Trainer.example.com"
    )
    done = run("a.yaml")
    assert (done.status, done.err) == (0, "")
    assert done.out.endswith(f"1 object: 1 allowed, 0 denied, 0 with warnings; 0 errors\n{said}\n")
    assert f"\n{said}\n" in run("a.yaml", "--format", "markdown").out
    assert run("a.yaml", "--format", "sarif").err == f"note: {said}\n"
    report = run("a.yaml", "--format", "json").report
    assert (report["summary"]["objects"], report["summary"]["unjudged"]) == (1, 6)
    assert report["unjudged"] == [
        {"group": "extensions", "kind": "Deployment", "objects": 1, "meant": "Deployment.apps"},
        {"group": "apps", "kind": "Deploymnet", "objects": 1, "meant": "Deployment"},
        {"group": "", "kind": "Service", "objects": 2},
        {"group": "", "kind": "Secret", "objects": 1},
        {"group": "example.com", "kind": "Trainer", "objects": 1},
    ]
    (tmp_path / "one.yaml").write_text(manifests("v1 Secret"))
    assert run("one.yaml").out.endswith("\n1 object is of a kind that is not judged: Secret\n")


@pytest.mark.parametrize(
    ("kind", "meant"),
    [
        ("apps/v1 deployment", "Deployment"),
        ("apps/v1 DeamonSet", "DaemonSet"),
        ("v1 Deployment", "Deployment.apps"),
        ("batch/v1 CronJobs", "CronJob"),
        ("kubeflow.org/v1 PytorchJob", "PyTorchJob"),
        ("apps/v1 Pod", "Pod"),
        *(
            (kind, None)
            for kind in (
                "v1 Service",
                "v1 ResourceQuota",
                "rbac.authorization.k8s.io/v1 RoleBinding",
                "resource.k8s.io/v1 ResourceSlice",
                "policy/v1 PodDisruptionBudget",
                "longhorn.io/v1beta2 Node",
                "serving.kserve.io/v1alpha1 InferenceGraph",
            )
        ),
    ],
)
def test_a_misspelt_kind_is_an_error_and_a_kind_that_only_looks_alike_is_not(
    run: Any, tmp_path: Path, kind: str, meant: str | None
) -> None:
    (tmp_path / "a.yaml").write_text(manifests(kind))
    (told,) = run("a.yaml", "--format", "json").report["unjudged"]
    assert told.get("meant") == meant


SERVE = ("serve", "--facts", OPTIONS[3], "--tls-cert", "none.crt", "--tls-key", "none.key")


@pytest.mark.parametrize("command", [("explain", "caps"), ("registration",), SERVE])
def test_every_command_says_when_it_uses_the_sample_policy(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(serve, "log_line", lambda entry: print(entry, file=sys.stderr))
    monkeypatch.chdir(tmp_path)

    def said() -> bool:
        cli.main(command)
        return "no policies/ here: judged by the sample policy; --policy names yours" in capsys.readouterr().err

    assert said()
    (tmp_path / "policies").mkdir()
    shutil.copy(ROOT / "policies/sample.yaml", tmp_path / "policies")
    assert not said()


def test_a_bad_policy_is_status_2_with_file_and_line(run: Any, tmp_path: Path) -> None:
    bad = tmp_path / "policy.yaml"
    bad.write_text((ROOT / "policies/sample.yaml").read_text().replace('"*": Deny', "multiple-slice: Deny"))
    done = run(".", options=["--policy", str(bad)])
    line = next(i for i, row in enumerate(bad.read_text().splitlines(), 1) if "multiple-slice:" in row)
    assert done.status == 2
    assert done.err == f"error: {bad}:{line}: spec.rules.multiple-slice: unknown rule, did you mean multiple-slices?\n"
    assert done.out == ""


@pytest.mark.parametrize("arguments", [["--format", "xml"], ["--colour"], ["--facts"]])
def test_wrong_usage_is_status_2(run: Any, arguments: list[str]) -> None:
    assert run(*arguments).status == 2


def test_facts_that_hold_none_are_refused(run: Any, tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(GOOD)
    (tmp_path / "service.yaml").write_text("apiVersion: v1\nkind: Service\nmetadata: {name: s}\n")
    done = run("pod.yaml", options=[*OPTIONS[:2], "--facts", "service.yaml"])
    assert done.status == 2
    assert done.err.startswith(
        "error: service.yaml: no facts in it: none of ClusterPolicy, ConfigMap, DaemonSet, DeviceClass, "
    )


def test_output_goes_to_a_file(run: Any, tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(GOOD)
    done = run("pod.yaml", "--format", "json", "--output", "report.json")
    assert (done.status, done.out) == (0, "")
    assert json.loads((tmp_path / "report.json").read_text())["summary"]["allowed"] == 1
    assert run("pod.yaml", "--output", "no/such/folder").status == 2


def test_one_run_can_write_several_reports(run: Any, tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(BAD)
    done = run("pod.yaml", "--format", "json", "--output", "a.json", "--format", "table")
    assert done.status == 1
    assert done.out.startswith("denied")
    assert json.loads((tmp_path / "a.json").read_text())["summary"]["denied"] == 1
    run("pod.yaml", "--output", "b.json", "--format", "json")
    assert (tmp_path / "b.json").read_text() == (tmp_path / "a.json").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--format", "json", "--format", "table"), "json and table would both go to standard output"),
        (("--format", "json", "--output", "a", "--format", "table", "--output", "a"), "two reports would go to a"),
        (("--format", "json", "--output", "a", "--output", "b"), "name its --format before it"),
    ],
)
def test_reports_that_would_overwrite_each_other_are_wrong_usage(
    run: Any, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "pod.yaml").write_text(GOOD)
    done = run("pod.yaml", *arguments)
    assert done.status == 2
    assert said in done.err


@pytest.mark.parametrize(
    ("action", "fail_on", "status"),
    [("Warn", (), 0), ("Warn", ("warn",), 4), ("Warn", ("never",), 0), ("Deny", ("warn",), 1), ("Deny", ("never",), 0)],
)
def test_fail_on_chooses_which_results_fail_a_run(
    run: Any, tmp_path: Path, action: str, fail_on: tuple[str, ...], status: int
) -> None:
    (tmp_path / "pod.yaml").write_text(BAD)
    sample = (ROOT / "policies/sample.yaml").read_text()
    (tmp_path / "policy.yaml").write_text(sample.replace('"*": Deny', f"multiple-slices: {action}"))
    options = ["--policy", "policy.yaml", *OPTIONS[2:], *(("--fail-on", *fail_on) if fail_on else ())]
    assert run("pod.yaml", options=options).status == status
    (tmp_path / "broken.yaml").write_text("a: [")
    assert run("pod.yaml", "broken.yaml", options=options).status == 2


def test_a_rule_that_breaks_is_status_3_and_says_which(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("oh")

    walked = [replace(r, check=broken) if r.id == "multiple-slices" else r for r in rules.walk()]
    monkeypatch.setattr(rules, "walk", lambda: walked)
    (tmp_path / "pod.yaml").write_text(GOOD)
    done = run("pod.yaml")
    assert done.status == 3
    assert done.err.endswith("internal error: pod.yaml:1: rule multiple-slices broke\n")


def test_schema_and_rules_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    names = schema["$defs"]["rule"]["enum"]
    assert cli.main(["rules"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == names
    assert cli.main(["rules", "multiple-slices"]) == 0
    assert "Way out:" in capsys.readouterr().out
    assert cli.main(["rules", "nothing"]) == 2


def test_certs_issue_writes_a_certificate(tmp_path: Path) -> None:
    assert cli.main(["certs", "issue", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "tls.crt").read_text().startswith("-----BEGIN CERTIFICATE-----")


def test_a_closed_pipe_ends_a_command_as_sigpipe_does(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(BAD)
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "webhook", "check", str(tmp_path), *OPTIONS]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False, cwd=ROOT)
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


TRAINER = """\
apiVersion: example.com/v1
kind: Trainer
metadata: {name: t, namespace: lab}
spec:
  workers:
    main: {limits: {nvidia.com/gpu: 2}}
"""
OLD = """\
apiVersion: extensions/v1beta1
kind: DaemonSet
metadata: {name: old}
spec: {template: {spec: {containers: [{name: a, image: b}]}}}
"""


def test_a_gpu_in_an_object_that_is_not_judged_is_named(run: Any, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"{GOOD}---\n{TRAINER}---\n{OLD}---\n{manifests('v1 Service')}")
    line = f"{GOOD}---\n".count("\n")
    named = (
        f"a.yaml:{line + 6}: Trainer.example.com lab/t requests nvidia.com/gpu at "
        "spec.workers.main.limits[nvidia.com/gpu]; not judged: its pods are judged when they are created",
        f"a.yaml:{line + 11}: DaemonSet.extensions old holds a container at "
        "spec.template.spec.containers[0]; not judged: did you mean DaemonSet.apps?",
    )
    done = run("a.yaml")
    assert (done.status, done.out.splitlines()[-2:]) == (0, [*named])
    assert run("a.yaml", "--format", "sarif").err.splitlines()[-2:] == [f"note: {each}" for each in named]
    old, trainer, service = sorted(
        run("a.yaml", "--format", "json").report["unjudged"], key=lambda each: str(each["kind"] == "Service")
    )
    assert (old["gpus"], trainer["gpus"], "places" in service) == ([], ["nvidia.com/gpu"], False)
    place = {"file": "a.yaml", "line": line + 6, "name": "lab/t", "path": "spec.workers.main.limits[nvidia.com/gpu]"}
    assert trainer["places"] == [{**place, "resource": "nvidia.com/gpu"}]
    assert [run("a.yaml", "--fail-on", each).status for each in ("unjudged", "warn", "never")] == [1, 0, 0]
    (tmp_path / "b.yaml").write_text(f"{GOOD}---\n{manifests('v1 Service')}")
    assert run("b.yaml", "--fail-on", "unjudged").status == 0


def test_a_kind_that_is_not_judged_has_one_line(run: Any, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("---\n".join([GOOD, *[TRAINER] * 23]))
    done = run("a.yaml")
    assert done.out.count("requests nvidia.com/gpu") == 1
    assert "22 more objects of its kind use GPUs too (lab/t, lab/t, lab/t and 19 more)" in done.out
    kinds = [TRAINER.replace("Trainer", f"Trainer{letter}") for letter in "ABCDEFGHIJKLMNOPQRSTUVW"]
    (tmp_path / "b.yaml").write_text("---\n".join([GOOD, *kinds]))
    done = run("b.yaml")
    assert done.out.count("requests nvidia.com/gpu") == 20
    assert done.out.endswith(
        "\nnot judged, but with containers, GPUs or objects that they make: 3 more kinds; --format json names them\n"
    )
    (unjudged,) = run("a.yaml", "--format", "json").report["unjudged"]
    assert len(unjudged["places"]) == 23


AGENT = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: nvdp, namespace: hw-nvidia}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      serviceAccountName: nvdp-account
      tolerations: [{operator: Exists}]
      containers: [{name: plugin, image: nvcr.io/nvidia/k8s-device-plugin:v0.17.0, securityContext: {privileged: true}}]
      volumes: [{name: sockets, hostPath: {path: /var/lib/kubelet/device-plugins}}]
"""


def an_agent(kind: str, name: str, **container: Any) -> Any:
    """A DaemonSet of an agent of the nodes, or one of its pods."""
    spec = {"hostPID": True, "tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", **container}]}
    metadata: Any = {"name": name, "namespace": "vision"}
    if kind == "DaemonSet":
        return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {"template": {"spec": spec}}}
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": True}
    return {"apiVersion": "v1", "kind": kind, "metadata": {**metadata, "ownerReferences": [owner]}, "spec": spec}


def test_pods_are_shown_with_their_workload_unless_they_have_other_findings(run: Any, tmp_path: Path) -> None:
    other = an_agent("Pod", "agent-2", securityContext={"privileged": True})
    dump = [an_agent("Pod", "agent-1"), an_agent("DaemonSet", "agent"), other]
    (tmp_path / "dump.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": dump}))
    listed = re.compile(r"^denied +\S+  (.+)$", re.MULTILINE)
    done = run("dump.json")
    assert listed.findall(done.out) == ["DaemonSet vision/agent", "Pod vision/agent-2"]
    assert "  pods   1 pod of it with no other findings\n" in done.out
    assert "3 objects: 0 allowed, 3 denied" in done.out
    assert len(listed.findall(run("dump.json", "--all").out)) == 3


def test_a_pod_that_names_an_owner_hides_nothing(run: Any, tmp_path: Path) -> None:
    """Whoever creates a pod writes its owner: another workload, another pod, or itself."""
    volumes: Any = [{"name": "v", "hostPath": {"path": "/dev/nvidia0"}}]
    honest, owned = an_agent("DaemonSet", "agent"), an_agent("Pod", "owned")
    honest["spec"]["template"]["spec"]["volumes"] = volumes
    owned["spec"]["volumes"] = [{"name": "v", "hostPath": {"path": "/"}}]
    loops = [an_agent("Pod", name) for name in ("itself", "one", "other")]
    for pod, owner in zip(loops, ("itself", "other", "one"), strict=True):
        pod["metadata"]["ownerReferences"][0].update(apiVersion="v1", kind="Pod", name=owner)
    dump = {"apiVersion": "v1", "kind": "List", "items": [honest, owned, *loops]}
    (tmp_path / "dump.json").write_text(json.dumps(dump))
    done = run("dump.json")
    assert len(re.findall(r"^denied ", done.out, re.MULTILINE)) == len(dump["items"])
    assert "hostPath / gives control of the node" in done.out


def test_objects_with_exempted_findings_only_are_counted(run: Any, tmp_path: Path) -> None:
    (tmp_path / "agent.json").write_text(json.dumps(an_agent("DaemonSet", "agent")))
    assert "DaemonSet vision/agent" in run("agent.json").out
    policy = yaml.safe_load(Path(OPTIONS[1]).read_text("utf-8"))
    exemption = {"name": "agent", "reason": "an agent", "until": "2999-01-01", "namespaces": ["vision"]}
    policy["spec"]["exemptions"].append(exemption)
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(policy))
    options = ("--policy", "own.yaml", *OPTIONS[2:])
    text = run("agent.json", options=options).out
    assert "DaemonSet" not in text
    assert "1 object with exempted findings only; --all lists them" in text
    assert "DaemonSet vision/agent" in run("agent.json", "--all", options=options).out


def test_a_device_plugin_is_told_the_exemption_that_it_needs(run: Any, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(AGENT)
    done = run("a.yaml")
    assert done.status == 1
    assert "an agent of the nodes needs an exemption for its account hw-nvidia/nvdp-account" in done.out
    (note,) = [line for line in done.out.splitlines() if line.startswith("DaemonSet hw-nvidia/nvdp: if it is an agent")]
    policy = yaml.safe_load((ROOT / "policies/sample.yaml").read_text("utf-8"))
    policy["spec"]["exemptions"] += yaml.safe_load(note.partition("exemptions need ")[2])
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(policy))
    assert cli.main(["check", "a.yaml", "--policy", "policy.yaml"]) == 0


PATCHED = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: train, namespace: vision}
spec:
  templates: [{name: train, podSpecPatch: '{{inputs.parameters.patch}}', container: {image: a}}]
"""


def test_patches_that_are_parameters_are_counted_once(run: Any, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("---\n".join([PATCHED] * 3))
    done = run("a.yaml")
    assert done.status == 0
    assert "3 workflows patch their pods by a parameter; the pods are judged when they are created" in done.out
    assert "unread-text" not in done.out


def test_a_template_of_terraform_does_not_fail_its_folder(run: Any, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "pod.yaml").write_text(GOOD)
    (tmp_path / "folder" / "kustomization.tftpl.yaml").write_text(
        "kind: Kustomization\nresources:\n%{ for x in y ~}\n- a\n"
    )
    (tmp_path / "folder" / "values.yaml").write_text("kind: A\n${yamlencode(values)}\nb: [\n")
    done = run("folder")
    assert done.status == 0
    assert "2 files look like templates, not rendered" in done.out


@pytest.mark.parametrize("name", ["pod.yaml", "pod.json", "templates/pod.yaml"])
@pytest.mark.parametrize("sign", ["%{ x }", "${x}", "{{ x }}"])
@pytest.mark.parametrize(
    "text", ["POD\n...\nSIGN\n", "POD}\n# a\nSIGN\n", "---\nPOD---\nSIGN\n", 'POD\xa0{"a": "SIGN\n"}', "HALF{}\nSIGN\n"]
)
def test_what_kubectl_creates_is_no_template(run: Any, tmp_path: Path, name: str, sign: str, text: str) -> None:
    """kubectl creates the pod, and passes over what follows it, or complains of that."""
    container = {"name": "c", "image": "i", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    pod = json.dumps(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}
    )
    half = pod.replace('"p"', '"\\ud800"')
    (tmp_path / "folder/templates").mkdir(parents=True)
    (tmp_path / "folder/good.yaml").write_text(GOOD)
    (tmp_path / "folder" / name).write_text(text.replace("POD", pod).replace("HALF", half).replace("SIGN", sign))
    done = run("folder")
    assert done.status in (1, 2)  # it is denied, or an error


IN_A_TEXT = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: checks, namespace: lab}
data:
  job.yaml: |
    apiVersion: kubeflow.org/v2beta1
    kind: MPIJob
    metadata: {name: nccl}
    spec: {mpiReplicaSpecs: {Worker: {template: {spec: {containers: [{resources: {limits: {nvidia.com/gpu: 8}}}]}}}}}
"""


def test_an_object_in_a_text_of_a_config_map_has_a_line(run: Any, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"{IN_A_TEXT}---\n{IN_A_TEXT}")
    done = run("a.yaml")
    assert done.status == 0
    assert done.out.splitlines()[-1] == (
        "a.yaml:9: ConfigMap lab/checks holds MPIJob nccl, which requests nvidia.com/gpu at data[job.yaml]; 1 more "
        "such text; not judged: its pods are judged when they are created"
    )


def test_files_of_values_that_use_a_gpu_are_counted(run: Any, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "pod.yaml").write_text(GOOD)
    (tmp_path / "folder" / "values.yaml").write_text("jupyterhub: {extra_resource_limits: {nvidia.com/gpu: 1}}\n")
    (tmp_path / "folder" / "other.yaml").write_text("replicas: 1\n")
    out = run("folder").out
    assert "1 file uses a GPU and has no Kubernetes object: folder/values.yaml; values of a chart are judged by" in out
    assert "1 file without a Kubernetes object: folder/other.yaml" in out


def test_a_folder_of_charts_says_how_they_are_judged(run: Any, tmp_path: Path) -> None:
    for chart in ("a", "b"):
        (tmp_path / "charts-of-ours" / chart / "templates").mkdir(parents=True)
        (tmp_path / "charts-of-ours" / chart / "Chart.yaml").write_text("name: x\nversion: 1.0.0\n")
        (tmp_path / "charts-of-ours" / chart / "templates" / "pod.yaml").write_text("a: {{ .Values.a }}\n")
    done = run("charts-of-ours")
    assert done.status == 2
    assert (
        "error    charts-of-ours: nothing but 2 charts that helm has not rendered; --allow-empty accepts that\n"
        in done.out
    )


BINDING = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: slicewarden-trusted, namespace: vision}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: slicewarden-trusted}
subjects: [{kind: ServiceAccount, name: default, namespace: vision}]
"""
BY_RBAC = re.sub(
    r"- namespaceSelector:\n +matchLabels: .*", "- rbac: true", (ROOT / OPTIONS[1]).read_text("utf-8"), count=1
)


def test_facts_say_that_roles_and_bindings_are_left_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "facts.yaml").write_text(f"{NODE}---\n{BINDING}")
    (tmp_path / "policy.yaml").write_text(BY_RBAC)
    facts = ["facts", str(tmp_path / "facts.yaml")]
    assert cli.main([*facts, *OPTIONS[:2]]) == 0
    done = capsys.readouterr()
    assert "RoleBinding" not in done.out
    assert done.err == (
        "note: 1 object of RBAC left out: no grant of policy sample has rbac: true; --policy names another\n"
    )
    assert cli.main([*facts, "--policy", str(tmp_path / "policy.yaml")]) == 0
    done = capsys.readouterr()
    assert "RoleBinding" in done.out
    assert done.err == ""


@pytest.mark.parametrize("command", [("explain", "caps"), ("explain", "turns"), ("diff", OPTIONS[1], OPTIONS[1])])
def test_a_path_without_an_object_is_an_error_for_every_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: Sequence[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.yaml").write_text("a: 1\n")
    for name, wrong in (
        ("empty", "no Kubernetes object in it"),
        ("file.yaml", "no Kubernetes object in it"),
        ("x", ""),
    ):
        path = tmp_path / name
        assert cli.main([*command, str(path), *OPTIONS[2 if "diff" in command else 0 :]]) == 2
        done = capsys.readouterr()
        (line,) = (line for line in (done.out + done.err).splitlines() if str(path) in line)
        assert line.startswith("error")
        assert wrong in line
        assert not line.endswith("files"), "--skip-others is an option of check alone"
        assert "no pod" not in done.out


def test_check_names_the_option_that_passes_over_a_file_without_an_object(run: Any, tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text("a: 1\n")
    assert "no Kubernetes object in it; --skip-others passes over such files" in run("file.yaml").out
    assert run("file.yaml", "--skip-others", "--allow-empty").status == 0


def test_the_binding_of_the_message_is_enough(run: Any, tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(BAD.replace("shared: 2", "shared: 1"))
    (tmp_path / "binding.yaml").write_text(BINDING)
    (tmp_path / "policy.yaml").write_text(BY_RBAC)
    options = ["--policy", "policy.yaml", *OPTIONS[2:]]
    alone = run("pod.yaml", options=options)
    assert alone.status == 1
    assert "unearned-trust" in alone.out
    assert run("pod.yaml", "binding.yaml", options=options).status == 0
