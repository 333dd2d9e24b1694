"""Rules against manifests of every workload kind, and the budget against its table."""

from dataclasses import replace
from typing import Any

import pytest

from tests import ROOT
from tests.support.objects import pod
from webhook.api import admission
from webhook.documents import documents
from webhook.engine.engine import Engine
from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.memory import budget
from webhook.model import Action, Verdict, dotted
from webhook.policy.model import Card, Policy
from webhook.rules import unsteered_pod, walk

KINDS = ROOT / "tests/kinds"

# The first line of each manifest is written by hand: a test that read the engine's own table could not test the table.
MANIFESTS = {file.stem: file.read_text("utf-8") for file in sorted(KINDS.glob("*.yaml"))}
PLACES = {kind: text.partition("\n")[0].removeprefix("# ") for kind, text in MANIFESTS.items()}
"""The path of the container in each manifest of a kind."""

SLICES, DEVICES = "gpu.shared: 2", "value: all"
"""A manifest has two slices, or NVIDIA_VISIBLE_DEVICES if its kind has no place for trust or for resources."""

LIMITS = {"llmaz-open-model": "limits", "soperator-node-set": "resources"}
"""The place of the limits in the container of a kind that has its own."""

each_kind = pytest.mark.parametrize("kind", [kind for kind, text in MANIFESTS.items() if SLICES in text])
each_other_kind = pytest.mark.parametrize("kind", [kind for kind, text in MANIFESTS.items() if SLICES not in text])


def judged(engine: Engine, facts: Facts, kind: str, count: int) -> Verdict:
    return judged_with(engine, facts, kind, SLICES, f"gpu.shared: {count}")


def judged_with(engine: Engine, facts: Facts, kind: str, before: str, after: str) -> Verdict:
    assert MANIFESTS[kind].count(before) == 1
    return judged_text(engine, facts, MANIFESTS[kind].replace(before, after))


def judged_text(engine: Engine, facts: Facts, text: str) -> Verdict:
    (document,), problems = documents.read(text, "manifest.yaml")
    assert not problems
    return engine.judge(admission.decode(admission.wrap(document.value)), facts)


@each_kind
def test_two_slices_are_denied_at_the_path_of_the_quantity(engine: Engine, sample_facts: Facts, kind: str) -> None:
    (denied,) = judged(engine, sample_facts, kind, 2).having(Action.DENY)
    assert denied.rule == "multiple-slices"
    assert (
        dotted(denied.finding.path) == f"{PLACES[kind]}.{LIMITS.get(kind, 'resources.limits')}[nvidia.com/gpu.shared]"
    )


@each_kind
def test_one_slice_is_allowed(engine: Engine, sample_facts: Facts, kind: str) -> None:
    verdict = judged(engine, sample_facts, kind, 1)
    assert verdict.allowed
    # The images of some are programs that only an argument limits, or nothing.
    programs = ("dynamo-graph-deployment", "llm-inference-service", "serving-runtime", "stateful-set")
    assert [(result.rule, result.action) for result in verdict.results] == [("uncapped-memory", Action.WARN)] * (
        kind in programs
    )


@each_other_kind
def test_devices_that_are_not_requested_are_denied_at_their_path(
    engine: Engine, sample_facts: Facts, kind: str
) -> None:
    (denied,) = judged_with(engine, sample_facts, kind, DEVICES, DEVICES).having(Action.DENY)
    assert denied.rule == "visible-devices"
    assert dotted(denied.finding.path) == f"{PLACES[kind]}.env[0]"


@each_other_kind
def test_hidden_devices_are_allowed(engine: Engine, sample_facts: Facts, kind: str) -> None:
    assert judged_with(engine, sample_facts, kind, DEVICES, "value: void") == Verdict()


@each_kind
@pytest.mark.parametrize("count", [1, 2])
def test_only_pods_are_patched(engine: Engine, sample_facts: Facts, kind: str, count: int) -> None:
    assert bool(judged(engine, sample_facts, kind, count).patch) is (kind == "pod")


def test_the_readme_leads_to_a_table_of_every_rule_with_the_first_line_of_its_page() -> None:
    assert "(docs/rules.md)" in (ROOT / "README.md").read_text("utf-8")
    table = (ROOT / "docs" / "rules.md").read_text("utf-8").partition("\n## ")[0].splitlines()
    for rule in walk():
        (row,) = (line for line in table if line.startswith(f"| [`{rule.id}`](#{rule.id}) |"))
        assert f"| {rule.page.partition(chr(10))[0]} |" in row


# The budget

T4, A10, RTX = ("Tesla-T4", 15360), ("NVIDIA-A10", 23028), ("NVIDIA-GeForce-RTX-4090", 24564)
A100, A100_80 = ("NVIDIA-A100-PCIE-40GB", 40960), ("NVIDIA-A100-SXM4-80GB", 81920)
H100 = ("NVIDIA-H100-80GB-HBM3", 81559)

# Card, replicas, MiB for the allocator, fraction of the card.
BUDGETS = [
    (T4, 2, 7014, "0.456"),
    (T4, 4, 3251, "0.211"),
    (T4, 8, 1369, "0.089"),
    (T4, 10, 993, "0.064"),
    (A10, 2, 10643, "0.462"),
    (A10, 4, 5001, "0.217"),
    (A10, 8, 2180, "0.094"),
    (A10, 10, 1616, "0.070"),
    (RTX, 2, 11396, "0.463"),
    (RTX, 4, 5378, "0.218"),
    (RTX, 8, 2369, "0.096"),
    (RTX, 10, 1767, "0.071"),
    (A100, 2, 19302, "0.471"),
    (A100, 4, 9267, "0.226"),
    (A100, 8, 4249, "0.103"),
    (A100, 10, 3246, "0.079"),
    (A100_80, 2, 39372, "0.480"),
    (A100_80, 4, 19302, "0.235"),
    (A100_80, 8, 9267, "0.113"),
    (A100_80, 10, 7260, "0.088"),
    (H100, 2, 39067, "0.479"),
    (H100, 4, 19085, "0.234"),
    (H100, 8, 9094, "0.111"),
    (H100, 10, 7096, "0.087"),
]

RESERVES = [(T4, 308), (A10, 461), (RTX, 492), (A100, 820), (A100_80, 1639), (H100, 1632)]
CONTEXTS = [(T4, 512), (A10, 640), (RTX, 640), (A100, 768), (A100_80, 768), (H100, 896)]


@pytest.mark.parametrize("suffix", ["", "-SHARED"])
@pytest.mark.parametrize(("card", "replicas", "mib", "fraction"), BUDGETS)
def test_budget(
    sample_policy: Policy, card: tuple[str, int], replicas: int, mib: int, fraction: str, suffix: str
) -> None:
    product, memory = card
    found = budget.budget(Card(product + suffix, memory, replicas), sample_policy)
    assert (found.budget, found.fraction) == (mib, fraction)
    assert found.enough
    # All slices together fit, with what is kept back.
    assert replicas * (found.permille * memory // 1000 + found.context) + found.reserve <= memory


@pytest.mark.parametrize(("card", "reserve"), RESERVES)
def test_reserve(sample_policy: Policy, card: tuple[str, int], reserve: int) -> None:
    assert budget.budget(Card(*card, 4), sample_policy).reserve == reserve


@pytest.mark.parametrize(("card", "context"), CONTEXTS)
def test_context(sample_policy: Policy, card: tuple[str, int], context: int) -> None:
    assert budget.budget(Card(*card, 4), sample_policy).context == context


def test_unknown_card_gets_the_default_context(sample_policy: Policy) -> None:
    assert budget.budget(Card("NVIDIA-L40S", 46068, 4), sample_policy).context == 768


# What uncapped-memory says when the nodes leave nothing to divide


def labels(**changes: str) -> dict[str, Any]:
    """The labels of a time-sliced T4, with some of them changed; underscores stand for dots."""
    changed = {f"nvidia.com/{key.replace('_', '.')}": value for key, value in changes.items()}
    return {
        "nvidia.com/gpu.sharing-strategy": "time-slicing",
        "nvidia.com/gpu.product": "Tesla-T4-SHARED",
        "nvidia.com/gpu.memory": "15360",
        "nvidia.com/gpu.replicas": "4",
    } | changed


def facts_with(sample_facts: Facts, *nodes: dict[str, Any]) -> Facts:
    return Facts(sample_facts.namespaces, tuple(Node(f"n{i}", each) for i, each in enumerate(nodes)))


def capped(engine: Engine, facts: Facts) -> str:
    (cap,) = [
        entry["value"]
        for operation in judged(engine, facts, "pod", 1).patch
        if operation["path"].endswith("/env")
        for entry in operation["value"]
        if entry["name"] == "XLA_PYTHON_CLIENT_MEM_FRACTION"
    ]
    return str(cap)


def test_smallest_slice_of_the_pool_counts(engine: Engine, sample_facts: Facts) -> None:
    assert capped(engine, facts_with(sample_facts, labels(), labels(gpu_replicas="8"))) == "0.089"


def test_nodes_of_other_pools_do_not_count(engine: Engine, sample_facts: Facts) -> None:
    other = labels() | {"nvidia.com/gpu.sharing-strategy": "none", "nvidia.com/gpu.replicas": "8"}
    assert capped(engine, facts_with(sample_facts, labels(), other)) == "0.211"


@pytest.mark.parametrize("lagging", [{"gpu_replicas": "1"}, {"gpu_replicas": "four"}, {"gpu_memory": "0"}])
def test_assumed_card_stands_in_for_unusable_labels(
    engine: Engine, sample_facts: Facts, lagging: dict[str, str]
) -> None:
    assert capped(engine, facts_with(sample_facts, labels(**lagging))) == "0.211"


def test_too_small_a_slice_is_denied(engine: Engine, sample_facts: Facts) -> None:
    facts = facts_with(sample_facts, labels(gpu_replicas="16"))
    (denied,) = judged(engine, facts, "pod", 1).having(Action.DENY)
    assert denied.rule == "uncapped-memory"
    assert "(15360 MiB - 308 reserve) / 16 replicas - 512 context = 428 MiB" in denied.finding.message


@pytest.mark.parametrize(
    ("key", "meant"),
    [("slicewarden.dev/trust", "acme.io/trust"), ("slicewarden.dev/gpu-mem", "slicewarden.dev/gpu-memory")],
)
def test_an_annotation_is_unknown_where_the_policy_has_one_of_its_own(
    sample_policy: Policy, sample_facts: Facts, key: str, meant: str
) -> None:
    policy = replace(sample_policy, annotation="acme.io/trust")
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    metadata = {"name": "a", "annotations": {"acme.io/trust": "untrusted", key: "trusted"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    verdict = Engine(policy, walk()).judge(admission.decode(admission.wrap(pod)), sample_facts)
    (result,) = verdict.results
    assert (result.rule, result.action) == ("unknown-annotation", Action.WARN)
    assert result.finding.message == f"Slicewarden does not read this annotation; did you mean {meant}?"


@pytest.mark.parametrize(
    ("own", "covered"),
    [
        ({"key": "a", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "b", "operator": "Exists"}, False),
        ({"key": "a", "operator": "Equal"}, False),
        ({"key": "a"}, False),
        ({"key": "a", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "a", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "a", "operator": "Exists", "tolerationSeconds": 5}, False),
    ],
)
def test_only_a_toleration_of_every_value_covers_one_of_every_value(own: dict[str, Any], covered: bool) -> None:
    wanted = {"key": "a", "operator": "Exists", "effect": "NoSchedule"}
    assert unsteered_pod._covers(own, wanted) is covered


def test_limits_are_judged_in_every_container_after_one_without_a_gpu(engine: Engine, sample_facts: Facts) -> None:
    variables = [{"name": "CUDA_MPS_PIPE_DIRECTORY", "value": "/elsewhere"}]
    item = pod()
    item["spec"]["containers"].insert(0, {"name": "sidecar", "env": variables})
    item["spec"]["containers"][1]["env"] = variables
    verdict = engine.judge(admission.decode(admission.wrap(item)), sample_facts)
    lifted = [dotted(result.finding.path) for result in verdict.results if result.rule == "lifted-limit"]
    assert lifted == ["spec.containers[1].env[0]"]
