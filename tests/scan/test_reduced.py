"""A file of facts: it says all that is read of a cluster, nothing secret, and the same bytes for the same cluster."""

import json
import random
from dataclasses import fields, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import ROOT
from tests.support.clusters import SECRET, agent, large, pod
from tests.support.fixtures import FILES, FIXTURES, RULES, fixture, settings
from tests.support.policies import FACTS, POLICY, policy_of
from webhook import lints
from webhook.api import admission
from webhook.cli import inputs
from webhook.cli import main as cli
from webhook.engine.engine import Engine
from webhook.facts import templates
from webhook.facts.snapshot import Facts
from webhook.model import Action
from webhook.scan import reduced

SAMPLE = policy_of(POLICY)
CLUSTER = list(large(pods=500))
SMALL = reduced.reduced(CLUSTER, SAMPLE)


def known(facts: Facts) -> dict[str, Any]:
    """Everything in facts but texts and labels that nothing reads, as values that compare."""
    unread = ("feature.node.kubernetes.io/cpu-cpuid.", "nvidia.com/gfd.timestamp")
    nodes = [replace(n, labels={k: v for k, v in n.labels.items() if not k.startswith(unread)}) for n in facts.nodes]
    installations = [{field.name: getattr(each, field.name) for field in fields(each)} for each in facts.installations]
    return {
        "namespaces": dict(facts.namespaces),
        "nodes": sorted(nodes, key=lambda node: node.name),
        "installations": sorted(installations, key=lambda each: (each["kind"], each["namespace"], each["name"])),
        "holders": sorted(facts.holders),
    }


# What is in it


def test_reduced_facts_are_small_enough_for_git() -> None:
    cluster = list(large())
    text, whole = reduced.json_text(reduced.reduced(cluster, SAMPLE)), json.dumps(cluster)
    assert len(whole) > 4_000_000
    assert len(text) < 250_000


@pytest.mark.parametrize("form", reduced.FORMS)
def test_reduced_facts_hold_no_secret(form: str) -> None:
    text = reduced.FORMS[form](SMALL)
    assert SECRET in json.dumps(CLUSTER)
    for word in (SECRET, "last-applied", "managedFields", "registry.example.com", "uid", "resourceVersion"):
        assert word not in text


@pytest.mark.parametrize("form", reduced.FORMS)
def test_the_same_cluster_gives_the_same_bytes(form: str) -> None:
    shuffled = list(CLUSTER)
    random.Random(7).shuffle(shuffled)  # noqa: S311 - an order, no secret
    assert reduced.FORMS[form](reduced.reduced(shuffled, SAMPLE)) == reduced.FORMS[form](SMALL)


def test_reducing_facts_again_changes_nothing() -> None:
    assert reduced.reduced(SMALL, SAMPLE) == SMALL


def test_reduced_facts_have_one_object_per_line() -> None:
    lines = reduced.json_text(SMALL).splitlines()
    assert [json.loads(line.rstrip(",")) for line in lines[1:-1]] == SMALL


def test_pods_that_are_alike_and_hold_nothing_are_kept_once() -> None:
    pods = [pod(f"p-{index}", "team", "cpu", "") for index in range(5)]
    for each in pods:
        each["spec"]["hostPID"] = True
    assert [each["metadata"]["name"] for each in reduced.reduced(pods, SAMPLE)] == ["p-0"]


def test_a_pod_like_its_daemon_sets_template_is_left_out() -> None:
    one = pod("agent-x", "team", "cpu", "")
    one["spec"]["hostPID"] = True
    one["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "agent"}]
    daemon_set = agent("agent", "team", privileged=True)
    assert [each["kind"] for each in reduced.reduced([one, daemon_set], SAMPLE)] == ["DaemonSet"]


def test_a_text_of_a_config_map_is_kept_where_it_shares_gpus_and_only_there() -> None:
    sharing = "version: v1\nsharing:\n  timeSlicing:\n    resources: [{name: nvidia.com/gpu, replicas: 4}]\n"
    data = {"any": sharing, "other": SECRET}
    here = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own", "namespace": "team"}, "data": data}
    apart = {**here, "metadata": {"name": "apart", "namespace": "team"}, "data": {"other": SECRET}}
    beside = {**apart, "metadata": {"name": "beside", "namespace": "gpu-operator"}}
    found = {each["metadata"]["name"]: each["data"] for each in reduced.reduced([here, apart, beside], SAMPLE)}
    assert found == {"beside": {"other": None}, "own": {"any": sharing, "other": None}}


def test_a_label_by_which_the_policy_selects_is_kept() -> None:
    label = "feature.node.kubernetes.io/cpu-cpuid.AMXTILE"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {label: "true"}}}
    text = POLICY.read_text("utf-8").replace(
        "{key: nvidia.com/gpu.product, operator: Exists}", f"{{key: {label}, operator: Exists}}"
    )
    (kept,) = reduced.reduced([node], policy_of(text))
    assert kept["metadata"]["labels"] == {label: "true"}
    (kept,) = reduced.reduced([node], SAMPLE)
    assert "labels" not in kept["metadata"]


# What is judged by it


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_says_the_same_by_reduced_facts(rule: str) -> None:
    policy, facts = (FIXTURES / rule / name for name in ("policy.yaml", "facts.yaml"))
    chosen = policy_of(policy) if policy.exists() else SAMPLE
    raw = [item.value for item in inputs.load_objects(str(facts if facts.exists() else FACTS))]
    engine = Engine(chosen, [RULES[rule]])
    whole, small = Facts.of(raw), Facts.of(reduced.reduced(raw, chosen))
    for file in FILES:
        if file.parent.name == rule:
            request = fixture(file)[2]
            assert repr(engine.judge(request, small)) == repr(engine.judge(request, whole)), file.name


PODS = [
    file
    for file in FILES
    if file.parent.name in ("device-path", "device-annotation")
    and (fixture(file)[2].kind, fixture(file)[2].operation) == ("Pod", "CREATE")
    and "nodeName" not in (fixture(file)[2].object or {})["spec"]
]


@pytest.mark.parametrize("file", PODS, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_template_is_refused_for_its_volumes_and_annotations_as_it_was(file: Path) -> None:
    policy, facts = settings(file.parent.name)
    request, engine = fixture(file)[2], Engine(policy, [RULES[file.parent.name]])
    item = request.object or {}
    part = templates.slim(item["metadata"], item["spec"], policy, plugin=False)
    assert templates.slim(part.get("metadata", {}), part["spec"], policy, plugin=False) == part
    small = replace(request, object={**item, **part})
    denied = [bool(engine.judge(each, facts).having(Action.DENY)) for each in (request, small)]
    assert denied[0] == denied[1]


@pytest.mark.parametrize("form", reduced.FORMS)
def test_all_rules_say_the_same_of_a_large_cluster(form: str, tmp_path: Path, engine: Engine) -> None:
    file = tmp_path / f"cluster.{form}"
    file.write_text(reduced.FORMS[form](SMALL))
    small, whole = Facts.of(item.value for item in inputs.load_facts([str(file)])), Facts.of(CLUSTER)
    assert known(small) == known(whole)
    for item in [*CLUSTER[::20], *(each for each in CLUSTER if each["kind"] in ("DaemonSet", "ConfigMap"))]:
        created = {**item, "spec": {**item.get("spec", {}), "nodeName": None}} if item["kind"] == "Pod" else item
        request = admission.decode(admission.wrap(created))
        assert engine.judge(request, small) == engine.judge(request, whole)


@pytest.mark.parametrize("name", ["cloud", "inference", "lab", "university"])
def test_lints_say_the_same_by_reduced_facts(name: str) -> None:
    policy, document = inputs.load_policy_with_document(str(ROOT / f"policies/{name}/policy.yaml"))
    for source in (name, "other"):
        own = (item.value for item in inputs.load_objects(str(ROOT / f"policies/{name}/facts.yaml")))
        raw = [*own] if source == name else CLUSTER
        reports = [
            lints.lint(policy, document, Facts.of(objects), date(2026, 1, 1), timedelta(30))
            for objects in (raw, reduced.reduced(raw, policy))
        ]
        assert [*map(vars, reports[0].judged)] == [*map(vars, reports[1].judged)]


WORD = st.sampled_from(("a", "b", "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "", "1", "x" * 65_537))
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 9) | WORD,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORD, inner, max_size=2),
    max_leaves=4,
)
AMOUNTS = st.dictionaries(st.sampled_from(("nvidia.com/gpu", "amd.com/gpu", "cpu")), WORD | st.integers(0, 8))
CONTAINER = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(("main", "nvidia-device-plugin", "config-manager")),
        "image": st.sampled_from(("nvcr.io/nvidia/k8s-device-plugin:v0.19.3", "other")),
        "command": st.lists(st.sampled_from(("nvidia-device-plugin", "--config-file", "/c/a", "--config-file=/c/b"))),
        "env": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(("CONFIG_FILE", "MIG_STRATEGY", "DEFAULT_CONFIG", "FALLBACK_STRATEGIES"))},
                optional={"value": st.sampled_from(("/c/a", "single", "")), "valueFrom": st.just({"fieldRef": {}})},
            ),
            max_size=3,
        ),
        "volumeMounts": st.lists(
            st.fixed_dictionaries({"name": WORD, "mountPath": st.sampled_from(("/c", "/available-configs"))}),
            max_size=2,
        ),
        "resources": st.fixed_dictionaries({}, optional={"limits": AMOUNTS | VALUE, "requests": AMOUNTS}),
        "restartPolicy": st.just("Always"),
        "securityContext": VALUE,
    },
)
SPEC = st.fixed_dictionaries(
    {"containers": st.lists(CONTAINER, max_size=3) | VALUE},
    optional={
        "nodeName": WORD,
        "initContainers": st.lists(CONTAINER, max_size=2),
        "nodeSelector": st.dictionaries(WORD, WORD, max_size=2),
        "volumes": st.lists(st.fixed_dictionaries({"name": WORD, "configMap": VALUE | st.just({"name": "b"})})),
        "tolerations": VALUE,
        "taints": st.lists(st.fixed_dictionaries({"key": WORD, "effect": st.sampled_from(("NoSchedule", "x", ""))})),
        "template": VALUE,
        "devicePlugin": VALUE | st.just({"config": {"name": "b", "default": "a"}}),
    },
)
METADATA = st.fixed_dictionaries(
    {"name": st.sampled_from(("a", "b"))},
    optional={"namespace": st.sampled_from(("a", "gpu-operator", "")), "labels": VALUE, "annotations": VALUE},
)


def objects(api_version: str, kind: str, spec: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    parts = {"apiVersion": st.just(api_version), "kind": st.just(kind), "metadata": METADATA, "spec": spec}
    more = {"status": st.fixed_dictionaries({}, optional={"allocatable": AMOUNTS | VALUE, "capacity": AMOUNTS})}
    return st.fixed_dictionaries(parts, optional={**more, "data": st.dictionaries(WORD, WORD | VALUE, max_size=2)})


ANY = st.one_of(
    objects("v1", "Namespace", VALUE),
    objects("v1", "Node", SPEC),
    objects("v1", "Pod", SPEC),
    objects("v1", "ConfigMap", VALUE),
    objects("v1", "Secret", VALUE),
    objects("apps/v1", "DaemonSet", SPEC.map(lambda spec: {"template": {"spec": spec}})),
    objects("nvidia.com/v1", "ClusterPolicy", SPEC),
)


def read_of(facts: Facts) -> dict[str, Any]:
    """Return what `known` says, with only the variables of installations that are read."""
    result = known(facts)
    for each in result["installations"]:
        each["env"] = {name: value for name, value in each["env"].items() if name != "OTHER"}
    return result


@given(st.lists(ANY, max_size=6))
def test_reduced_facts_of_any_objects_give_the_same_facts(items: list[Any]) -> None:
    small = reduced.reduced(items, SAMPLE)
    assert read_of(Facts.of(small)) == read_of(Facts.of(items))
    assert reduced.reduced(small, SAMPLE) == small
    assert reduced.reduced(json.loads(reduced.json_text(small))["items"], SAMPLE) == small


# The command


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    status = cli.main([*words])
    output = capsys.readouterr()
    return status, output.out, output.err


def test_the_command_writes_what_every_command_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dump.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": CLUSTER}))
    status, text, _ = run(capsys, "facts", "dump.json")
    assert (status, text) == (0, reduced.json_text(SMALL))
    Path("cluster.json").write_text(text)
    for command in ("policy lint {policy} --facts {file}", "explain caps --policy {policy} --facts {file}"):
        words = [command.format(policy=POLICY, file=file).split() for file in ("dump.json", "cluster.json")]
        assert run(capsys, *words[0]) == run(capsys, *words[1])
    status, text, _ = run(capsys, "facts", "cluster.json", "-o", "yaml")
    Path("cluster.yaml").write_text(text)
    assert run(capsys, "facts", "cluster.yaml")[1] == reduced.json_text(SMALL)


@pytest.mark.parametrize("words", [(), ("--live", "x.json"), ("--kubeconfig", "k", "x.json")])
def test_facts_needs_files_or_live(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    status, out, err = run(capsys, "facts", *words)
    assert (status, out) == (2, "")
    assert "--live" in err


CONFIG = {"architecture": "amd64", "os": "linux", "rootfs": {}, "config": {"Env": ["PYTHONPATH=/app"]}}


def test_a_list_of_images_is_written_and_lets_a_check_deliver_the_shim(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps(CONFIG))
    Path("dump.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": CLUSTER}))
    status, alone, _ = run(capsys, "facts", "--images", "torch:2.4=config.json", "--policy", str(POLICY))
    assert status == 0
    Path("images.json").write_text(alone)
    _, both, _ = run(capsys, "facts", "dump.json", "images.json")
    assert run(capsys, "facts", "dump.json", "--images", "torch:2.4=config.json") == (0, both, "")
    (listed,) = json.loads(alone)["items"]
    assert listed in json.loads(both)["items"]
    Path("policy.yaml").write_text(POLICY.read_text("utf-8").replace("    # shim: Inject", "    shim: Inject"))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "vision", "annotations": {"slicewarden.dev/trust": "trusted"}},
        "spec": {"containers": [{"name": "c", "image": "torch:2.4", "resources": {"limits": {"nvidia.com/gpu": 1}}}]},
    }
    Path("pod.json").write_text(json.dumps(pod))
    words = ("check", "pod.json", "--policy", "policy.yaml", "--facts", str(FACTS), "--patched", "-")
    assert '"/slicewarden:/app"' not in run(capsys, *words)[1]
    assert '"/slicewarden:/app"' in run(capsys, *words, "--facts", "images.json")[1]


@pytest.mark.parametrize(
    ("named", "text", "error"),
    [
        ("file.json", json.dumps(CONFIG), "file.json:1: does not name its image; name it, as in --images"),
        ("A=file.json", json.dumps(CONFIG), '"A" is not an image reference'),
        ("a=file.json", json.dumps(CONFIG) * 2, "file.json: has several images"),
        ("a=file.json", "{", "file.json:1"),
        ("a=file.json", "", "file.json: is empty"),
        ("a=none.json", "", "none.json: No such file"),
    ],
)
def test_image_metadata_without_a_name_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    named: str,
    text: str,
    error: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file.json").write_text(text)
    status, out, err = run(capsys, "facts", "--images", named)
    assert (status, out) == (2, "")
    assert error in err


def test_an_object_of_the_whole_cluster_gets_no_namespace() -> None:
    item = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7}
    (part,) = reduced.reduced([item], SAMPLE)
    assert part["metadata"] == {"name": "high"}
