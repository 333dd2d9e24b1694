"""Look at what the command says of caps: for a cluster, for one object, and for frameworks."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given

from tests import ROOT
from tests.support.policies import OPTIONS
from tests.support.reviews import reviews
from tests.support.strategies import TRUST, gpu_pods, request_for
from webhook.api.jsonpatch import apply
from webhook.api.selectors import Selector
from webhook.cli import main as cli
from webhook.engine.engine import Engine
from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.memory import explain, frameworks, page
from webhook.memory.command_line import PROGRAMS
from webhook.model import Requester
from webhook.policy.model import Policy
from webhook.policy.scopes import Grant, Requesters, Scope
from webhook.rules import walk


def node(name: str, **labels: str) -> Node:
    own = {f"nvidia.com/gpu.{key}": value for key, value in labels.items()}
    return Node(name, {"nvidia.com/gpu.sharing-strategy": "time-slicing", **own})


def test_caps_of_a_cluster(sample_policy: Policy) -> None:
    facts = Facts(
        nodes=(
            node("a", product="Tesla-T4-SHARED", memory="15360", replicas="4"),
            node("b", product="Tesla-T4-SHARED", memory="15360", replicas="4"),
            node("c", product="NVIDIA-A100-SXM4-80GB-SHARED", memory="81920", replicas="10"),
            node("d", product="NVIDIA-A10", memory="23028", replicas="1"),
        )
    )
    assert explain.caps(sample_policy, facts, sample_policy.pools).splitlines() == [
        "pool       card                          nodes  memory  replicas  reserve  context   cap  fraction",
        "shared     NVIDIA-A100-SXM4-80GB-SHARED      1   81920        10     1639      768  7260    0.088*",
        "shared     Tesla-T4-SHARED                   2   15360         4      308      512  3251     0.211",
        "shared     no usable labels: d               1",
        "mig        no caps: mig",
        "exclusive  no caps: none",
        "",
        "* the least fraction of the pool, which caps all its pods that choose no card",
    ]


def test_caps_of_a_pool_without_nodes_are_those_of_the_card_it_assumes(sample_policy: Policy) -> None:
    shared = sample_policy.pools[0]
    assert "assumed" in explain.caps(sample_policy, Facts(), [shared])
    assert "no card is known" in explain.caps(sample_policy, Facts(), [replace(shared, assume=None)])


def test_the_hosts_memory_has_no_fraction(sample_policy: Policy) -> None:
    facts = Facts(nodes=(node("a", product="NVIDIA-GB10", memory="122880", replicas="4"),))
    assert "none: the host's memory" in explain.caps(sample_policy, facts, sample_policy.pools[:1])


def test_explain_caps_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "caps", "--pool", "shared", *OPTIONS]) == 0
    out = capsys.readouterr().out
    assert "3251" in out
    assert "exclusive" not in out
    assert cli.main(["explain", "caps", "--pool", "other", *OPTIONS]) == 2
    assert capsys.readouterr().err == "error: other: no such pool; known are shared, mig, exclusive\n"
    assert cli.main(["explain", "caps", "--pool", "share", *OPTIONS]) == 2
    assert capsys.readouterr().err == "error: share: no such pool, did you mean shared?\n"


POD = """\
apiVersion: v1
kind: {kind}
metadata:
  name: a
  namespace: vision
  annotations: {{slicewarden.dev/trust: {trust}, {more}}}
spec:
  nodeSelector: {{nvidia.com/gpu.product: {product}}}
  containers:
    - name: c
      resources: {{limits: {{{resource}: 1}}}}
"""


WORDS = {"kind": "Pod", "trust": "trusted", "more": "", "product": "Tesla-T4-SHARED", "resource": "nvidia.com/gpu"}


def explained(tmp_path: Path, capsys: pytest.CaptureFixture[str], **changes: str) -> tuple[list[Any], str]:
    file = tmp_path / "pod.yaml"
    file.write_text(POD.format(**{**WORDS, **changes}))
    cli.main(["check", str(file), "--explain", "--format", "json", *OPTIONS])
    placements = json.loads(capsys.readouterr().out)["results"][0].get("placements", [])
    cli.main(["check", str(file), "--explain", *OPTIONS])
    return placements, capsys.readouterr().out


def test_a_pod_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (value,), text = explained(tmp_path, capsys, more='slicewarden.dev/gpu-processes: "2"')
    assert (value["pool"], value["nodes"]) == ("shared", ["t4-shared"])
    assert value["budget"] == {
        "product": "Tesla-T4-SHARED",
        "memory": 15360,
        "replicas": 4,
        "processes": 2,
        "reserve": 308,
        "context": 512,
        "cap": 1369,
        "fraction": "0.089",
    }
    assert "  lands  pool shared on t4-shared: asks for 1 nvidia.com/gpu; trusted (granted to " in text
    assert "  memory (15360 MiB - 308 reserve) / 4 replicas / 2 processes - 512" in text


@pytest.mark.parametrize(
    ("changes", "pool", "why"),
    [
        ({"trust": "untrusted", "product": "NVIDIA-A100-SXM4-80GB"}, "exclusive", "no caps: none"),
        ({"more": "slicewarden.dev/gpu-memory: much"}, "shared", "slicewarden.dev/gpu-memory: "),
        ({"resource": "nvidia.com/gpu.shared", "trust": "untrusted"}, None, "no pool takes it"),
    ],
)
def test_a_pod_without_a_cap_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, str], pool: str | None, why: str
) -> None:
    (value,), text = explained(tmp_path, capsys, **changes)
    assert value["pool"] == pool
    assert value["why"].startswith(why)
    assert (f"pool {pool} on" if pool else "no pool takes it: ") in text
    assert f"  memory {why}" in text


@pytest.mark.parametrize(
    ("changes", "names", "where"),
    [
        ({}, ["t4-shared"], "pool shared on t4-shared: "),
        (
            {"product": "NVIDIA-A100-SXM4-80GB"},
            [],
            "pool shared, but the pod selects none of its known nodes (t4-shared, t4-shared-renamed): ",
        ),
        (
            {"resource": "nvidia.com/gpu.shared"},
            [],
            "pool shared, but the nodes that the pod selects there (t4-shared) do not have what it asks for: ",
        ),
        (
            {"trust": "untrusted", "product": "NVIDIA-A100-SXM4-80GB", "resource": "nvidia.com/mig-2g.20gb"},
            [],
            "pool mig, but no known node of it (a100-mig) has what the pod asks for: ",
        ),
    ],
)
def test_a_pod_lands_on_nodes_that_it_selects_and_that_offer_what_it_asks_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, str], names: list[str], where: str
) -> None:
    (value,), text = explained(tmp_path, capsys, **changes)
    assert (value["nodes"], value["nodeCount"]) == (names, len(names))
    assert f"  lands  {where}" in text
    assert value["where"] in where
    cli.main(["check", str(tmp_path / "pod.yaml"), "--format", "markdown", *OPTIONS])
    assert f"| {where}" in capsys.readouterr().out


def test_a_pod_that_runs_lands_where_it_is_unless_its_pool_is_another(
    sample_policy: Policy, sample_facts: Facts
) -> None:
    """It is judged as if it were created again."""
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    (own,) = (node for node in sample_facts.nodes if node.name == "a100-exclusive")
    facts = replace(sample_facts, nodes=(*sample_facts.nodes, replace(own, name="second")))
    for chosen, names in (
        ("a100-exclusive", ("a100-exclusive",)),
        ("second", ("second",)),
        ("t4-shared", ("a100-exclusive", "second")),
    ):
        spec = {"nodeName": chosen, "containers": [container]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
        (landing,) = explain.landings(reviews(request_for(pod), sample_policy, facts))
        assert (landing.pool, landing.nodes, landing.where) == ("exclusive", names, f"on {', '.join(names)}")


def test_a_pod_that_a_taint_keeps_off_its_pool_is_told_so(sample_policy: Policy, sample_facts: Facts) -> None:
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [container]}}
    tainted = tuple(
        replace(node, taints={**node.taints, "reserved": frozenset({"NoSchedule"})}) for node in sample_facts.nodes
    )
    (landing,) = explain.landings(reviews(request_for(pod), sample_policy, replace(sample_facts, nodes=tainted)))
    assert landing.pool == "exclusive"
    assert landing.waits
    assert landing.where == "but the pod does not tolerate the taint reserved of its nodes (a100-exclusive)"


def test_a_node_that_says_nothing_of_its_gpus_may_have_what_is_asked_for(sample_policy: Policy) -> None:
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [container]}}
    silent = Node("silent", {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"})
    for nodes, where in (
        ((), "but no node of it is known"),
        ((silent,), "on silent"),
        ((silent, replace(silent, name="small", resources={"nvidia.com/gpu": 4})), "on silent"),
        ((silent, replace(silent, name="large", resources={"nvidia.com/gpu": 8})), "on silent, large"),
    ):
        (landing,) = explain.landings(reviews(request_for(pod), sample_policy, Facts(nodes=nodes)))
        assert landing.where == where


def test_what_asks_for_no_gpu_and_what_is_not_asked_about_has_no_explanation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explained(tmp_path, capsys, resource="cpu")[0] == []
    (tmp_path / "pod.yaml").write_text(POD.format(**WORDS))
    cli.main(["check", str(tmp_path / "pod.yaml"), "--format", "json", *OPTIONS])
    (value,) = json.loads(capsys.readouterr().out)["results"][0]["placements"]
    assert not {"budget", "why"} & value.keys()


# The page on frameworks


def test_the_page_on_frameworks_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", "frameworks"]) == 0
    page = capsys.readouterr().out
    assert page == (ROOT / "docs/frameworks.md").read_text("utf-8"), "write it again: make docs"


def test_the_page_names_all_there_is() -> None:
    text = page.text()
    for framework in frameworks.walk():
        rows = {*(variable.name for variable in framework.variables), *(defeat.name for defeat in framework.defeats)}
        assert all(f"`{name}`" in text for name in (framework.name, *rows))
    assert all(program.name in text for program in PROGRAMS)


def test_every_variable_says_all_of_itself() -> None:
    for framework in frameworks.walk():
        for variable in framework.variables:
            assert all((variable.since, variable.bad, variable.merge, variable.source))
        for defeat in framework.defeats:
            assert all((*defeat.ways, defeat.source))


@given(pod=gpu_pods())
def test_a_pod_lands_where_it_would_have_landed_before_it_was_steered(
    sample_policy: Policy, sample_facts: Facts, pod: dict[str, Any]
) -> None:
    engine = Engine(sample_policy, walk())
    after = apply(pod, engine.mutate(request_for(pod), sample_facts).patch)
    assume(engine.validate(request_for(dict(after)), sample_facts).allowed)
    before = list(explain.landings(reviews(request_for(pod), sample_policy, sample_facts)))
    assert list(explain.landings(reviews(request_for(dict(after)), sample_policy, sample_facts))) == before


@pytest.mark.parametrize(("image", "requester", "lands"), [("1", "eve", True), ("2", "eve", False), ("2", "mia", True)])
def test_an_update_lands_as_it_is_judged(
    sample_policy: Policy, sample_facts: Facts, image: str, requester: str, lands: bool
) -> None:
    """A pod keeps what it runs already, whoever labels it; an allowed pod does not land as ungranted."""
    scope = Scope(frozenset({"vision"}), None, frozenset())
    policy = replace(sample_policy, grants=(Grant(scope, requesters=Requesters(frozenset({"mia"}))),))
    item = yaml.safe_load(POD.format(**WORDS))
    item["spec"]["containers"][0]["image"] = "registry.example.com/a:1"
    creation = replace(request_for(item), requester=Requester("mia", frozenset()))
    judging = Engine(policy, walk())
    created = judging.judge(creation, sample_facts)
    assert created.allowed
    old = apply(item, created.patch)
    new = copy.deepcopy({**old, "metadata": {**old["metadata"], "labels": {"reviewed": "yes"}}})
    new["spec"]["containers"][0]["image"] = f"registry.example.com/a:{image}"
    update = replace(request_for(new, operation="UPDATE", old=dict(old)), requester=Requester(requester, frozenset()))
    (landing,) = explain.landings(reviews(update, policy, sample_facts))
    verdict = judging.judge(update, sample_facts)
    assert verdict.allowed is lands
    assert ("unearned-trust" in {result.rule for result in verdict.results}) is not lands
    assert (landing.pool, landing.trust) == (("shared", "trusted") if lands else ("exclusive", "untrusted"))
    assert ("but its grants are for other users" in landing.reason) is not lands


@pytest.mark.parametrize(
    ("pools", "granted_to"),
    [((), "namespace vision"), (("shared",), "namespace vision"), (("other",), "namespaces with team=vision")],
)
def test_a_landing_names_the_grant_that_reaches_its_pool(
    sample_policy: Policy, sample_facts: Facts, pools: tuple[str, ...], granted_to: str
) -> None:
    named = Grant(Scope(frozenset({"vision"}), None, frozenset()), pools=frozenset(pools))
    selected = Grant(Scope(frozenset(), Selector({"team": "vision"}), frozenset()))
    policy = replace(sample_policy, grants=(named, selected))
    facts = replace(sample_facts, namespaces={"vision": {"team": "vision"}})
    (landing,) = explain.landings(reviews(request_for(yaml.safe_load(POD.format(**WORDS))), policy, facts))
    assert f"(granted to {granted_to})" in landing.reason


@pytest.mark.parametrize(
    ("namespace", "annotations", "trust"),
    [
        ("lab", {}, "untrusted by default"),
        ("lab", {TRUST: "untrusted"}, "untrusted, as it asks"),
        ("lab", {TRUST: "Trusted"}, 'treated as untrusted: "Trusted" is not a trust level'),
        (
            "lab",
            {TRUST: "trusted"},
            'treated as untrusted: it asks to be trusted, but no grant covers its namespace "lab"',
        ),
        (
            "team",
            {TRUST: "trusted"},
            'treated as untrusted: it asks to be trusted, but no grant covers its service account "default"',
        ),
    ],
)
def test_a_landing_says_why_a_pod_is_not_trusted(
    sample_policy: Policy, namespace: str, annotations: dict[str, str], trust: str
) -> None:
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    metadata = {"name": "a", "namespace": namespace, "annotations": annotations}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    grant = Grant(Scope(frozenset({"team"}), None, service_accounts=frozenset({"trainer"})))
    policy = replace(sample_policy, grants=(grant,))
    (landing,) = explain.landings(reviews(request_for(pod), policy, Facts()))
    assert trust in landing.reason.split("; ")
