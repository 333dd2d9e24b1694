"""Policies: what is read out of one, and that every error names its place and the way out."""

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import ROOT
from tests.support.policies import POLICY, RULES, policy_of
from tests.support.unusable_policies import ERRORS, SMALL, WRONG, edited, with_wrong
from webhook.documents.documents import read
from webhook.memory import frameworks
from webhook.model import Action, Unusable
from webhook.policy.load import MOST, load
from webhook.policy.model import Guard, Policy, SharingLimits
from webhook.policy.schemas import schema
from webhook.policy.scopes import Requesters

SAMPLE = POLICY.read_text("utf-8")


def problems_of(text: str) -> list[str]:
    with pytest.raises(Unusable) as raised:
        policy_of(text)
    return str(raised.value).split("\n")


# What is read


def test_the_digest_depends_only_on_the_content_of_a_policy() -> None:
    digest = policy_of(SMALL).digest
    assert len(digest) == 16
    assert set(digest) <= set("0123456789abcdef")
    rewritten = edited(
        ("    default: untrusted\n", ""), ("  trust:\n", "  trust:\n    default: 'untrusted' # so far\n")
    )
    assert policy_of(rewritten, "other.yaml").digest == digest
    for change in (("Warn", "Audit"), ("name: small", "name: other"), ("maxReplicas: 4", "maxReplicas: 5")):
        assert policy_of(edited(change)).digest != digest


def test_actions_are_eased_where_the_policy_says_so() -> None:
    more = """\
  administrators: {users: [jane], groups: [platform]}
  overrides:
    - {namespaceSelector: {matchLabels: {stage: trial}}, pools: [shared], rules: {unsteered-pod: Audit}}
  exemptions:
    - {name: moving, reason: the old cluster, until: 2027-03-31, namespaces: [team-b], rules: [multiple-slices]}
    - {name: agents, reason: part of the system, system: true, namespaces: [gpu-operator], serviceAccounts: [dcgm]}
  rules:
"""
    policy = policy_of(edited(("  rules:\n", more)))
    assert policy.administrators == Requesters(frozenset({"jane"}), frozenset({"platform"}))
    (override,) = policy.overrides
    assert override.scope
    assert override.scope.covers("any", {"stage": "trial"}, "default")
    assert override.pools == {"shared"}
    assert override.actions == {"unsteered-pod": Action.AUDIT}
    moving, agents = policy.exemptions
    assert moving.until == date(2027, 3, 31)
    assert moving.rules == {"multiple-slices"}
    assert agents.until is None
    assert not agents.rules
    assert agents.scope.covers("gpu-operator", None, "dcgm")
    assert not agents.scope.covers("team-b", None, "dcgm")


def test_the_star_sets_the_action_of_every_rule_without_an_entry() -> None:
    everything = policy_of(edited(("    multiple-slices: Warn\n", '    "*": Audit\n    multiple-slices: Warn\n')))
    for rule in RULES:
        assert everything.action(rule) is (Action.WARN if rule == "multiple-slices" else Action.AUDIT)
    only = policy_of(edited(("    multiple-slices: Warn\n", '    "*": Audit\n')))
    assert {only.action(rule) for rule in RULES} == {Action.AUDIT}
    assert len({policy_of(SMALL).digest, only.digest, everything.digest}) == 3


def test_the_star_of_an_override_sets_the_action_of_every_rule_without_an_entry() -> None:
    more = """\
  overrides:
    - {namespaces: [team-a], rules: {"*": Warn, unsteered-pod: Deny}}
    - {namespaces: [team-b], rules: {unsteered-pod: Audit}}
  rules:
"""
    every, one = policy_of(edited(("  rules:\n", more))).overrides
    for rule in RULES:
        assert every.action(rule) is (Action.DENY if rule == "unsteered-pod" else Action.WARN)
        assert one.action(rule) is (Action.AUDIT if rule == "unsteered-pod" else None)


def test_forms_of_asking_have_defaults_that_a_policy_replaces() -> None:
    default = policy_of(SMALL)
    for name in (
        "nvidia.com/gpu",
        "nvidia.com/mig-1g.10gb",
        "amd.com/gpu",
        "aliyun.com/gpu-mem",
        "nvidia.com/gpucores",
    ):
        assert name in default.gpu_resources
    assert "deviceclass.resource.kubernetes.io/anything" in default.gpu_resources
    assert "gpu-fraction" in default.forms.annotations
    assert "nvidia-cdi" in default.forms.runtime_classes
    assert not default.forms.claims
    more = """\
  gpus:
    resources: [example.com/accelerator-*]
    annotations: [example.com/share]
    runtimeClasses: [fast]
    deviceClasses: [gpu.example.com]
    claims: [{namespaces: [net]}]
    labels: [example.com/share]
    otherDevices: [nvidia.com/nic-*]
    imexChannels: true
  rules:
"""
    policy = policy_of(edited(("  rules:\n", more)))
    assert "example.com/accelerator-2" in policy.gpu_resources
    assert "nvidia.com/gpu" in policy.gpu_resources
    assert "amd.com/gpu" not in policy.gpu_resources
    assert "deviceclass.resource.kubernetes.io/gpu.example.com" in policy.gpu_resources
    assert "deviceclass.resource.kubernetes.io/nic.example.com" not in policy.gpu_resources
    assert policy.forms.annotations.patterns == ("example.com/share",)
    assert policy.forms.labels.patterns == ("example.com/share",)
    assert "nvidia.com/nic-2" in default.gpu_resources
    assert "nvidia.com/nic-2" not in policy.gpu_resources
    assert "nvidia.com/hostdev" not in policy.gpu_resources
    assert (default.forms.imex_channels, policy.forms.imex_channels) == (False, True)
    assert policy.forms.runtime_classes.patterns == ("fast",)
    (claims,) = policy.forms.claims
    assert claims.covers("net", None, "default")


def test_all_names_of_nvidias_are_gpus_but_those_of_network_cards() -> None:
    known = policy_of(SMALL).gpu_resources
    assert all(name in known for name in ("nvidia.com/GA102GL_A10", "nvidia.com/NVIDIA_A10-12Q", "nvidia.com/pgpu"))
    assert not any(name in known for name in ("nvidia.com/hostdev", "nvidia.com/mlnxnics", "nvidia.com.example.org/a"))
    offered = policy_of(SMALL.replace("[nvidia.com/gpu]", "[nvidia.com/gpu, nvidia.com/ib-gpu]")).gpu_resources
    assert "nvidia.com/ib-gpu" in offered


def test_every_resource_that_a_pool_offers_counts_as_a_gpu() -> None:
    policy = policy_of(SMALL.replace("resources: [nvidia.com/gpu]", "resources: [example.com/fast, nvidia.com/gpu]"))
    assert "example.com/fast" in policy.gpu_resources
    assert "example.com/faster" not in policy.gpu_resources


def test_guards() -> None:
    assert policy_of(SMALL).guard is None
    assert policy_of(edited(("  rules:\n", "  guard: every-pod\n  rules:\n"))).guard == Guard()
    tolerated = SMALL.replace(
        "resources: [nvidia.com/gpu]\n", "resources: [nvidia.com/gpu]\n      tolerations: [{key: gpus}]\n"
    )
    guarded = tolerated.replace("  rules:\n", "  guard: {taint: {key: gpus}}\n  rules:\n")
    assert policy_of(guarded).guard == Guard("gpus")


def test_the_sample_policy_loads(sample_policy: Policy) -> None:
    assert sample_policy.name == "sample"
    assert [(pool.name, pool.sharing, pool.shared) for pool in sample_policy.pools] == [
        ("shared", "time-slicing", True),
        ("mig", "mig", False),
        ("exclusive", "none", False),
    ]
    assert {rule: sample_policy.action(rule) for rule in RULES} == dict.fromkeys(RULES, Action.DENY)
    assert sample_policy.default_trust == "untrusted"
    assert sample_policy.config_maps == {("gpu-operator", "time-slicing-config")}


def test_the_sample_in_the_package_is_the_sample_of_the_repository() -> None:
    assert (ROOT / "webhook" / "sample" / "policy.yaml").read_text("utf-8") == SAMPLE


def test_the_samples_examples_of_exemptions_can_be_used_as_they_are() -> None:
    begin, end = SAMPLE.index("    # - name: node-exporter"), SAMPLE.index("\n  memory:")
    policy = policy_of(SAMPLE[:begin] + SAMPLE[begin:end].replace("    # ", "    ") + SAMPLE[end:])
    agents = {each.name: each.scope for each in policy.exemptions}
    assert agents["calico"].covers("calico-system", None, "calico-node")
    assert agents["node-exporter"].covers("monitoring", None, "prometheus-node-exporter")
    for scope in agents.values():
        assert not scope.covers("calico-system", None, "default")


def test_a_pool_of_claims_alone_assumes_a_card_without_replicas() -> None:
    """A claim says how much it takes; of a resource only the number of slices does."""
    words = "assume: {memory: 15360Mi, replicas: 4}"
    assert words in SMALL
    (problem,) = problems_of(SMALL.replace(words, "assume: {memory: 15360Mi}"))
    assert "needs replicas: the slices of a card that pods request as a resource" in problem
    claims = SMALL.replace(words, "assume: {memory: 15360Mi}").replace(
        "resources: [nvidia.com/gpu]", "deviceClasses: [a.b]", 1
    )
    assumed = policy_of(claims).pools[0].assume
    assert assumed is not None
    assert assumed.memory == 15360


def test_pods_without_trust_may_preempt_unless_the_policy_says_never() -> None:
    assert policy_of(SMALL).untrusted_preempt
    assert not policy_of(f"{SMALL}  untrusted: {{preempt: Never}}\n").untrusted_preempt


def test_a_grant_by_rbac_is_for_every_namespace_unless_it_names_some() -> None:
    wide, narrow = policy_of(
        edited(("      - namespaces: [team-a]\n", "      - rbac: true\n      - {rbac: true, namespaces: [team-a]}\n"))
    ).grants
    assert wide.rbac
    assert narrow.rbac
    assert wide.scope.covers("anywhere", None, "default")
    assert not narrow.scope.covers("anywhere", None, "default")
    assert narrow.scope.covers("team-a", None, "default")
    assert not policy_of(SMALL).asks_rbac


def test_every_key_of_a_policy_is_read() -> None:
    policy = policy_of(SMALL)
    assert policy.name == "small"
    assert policy.annotation == "slicewarden.dev/trust"
    (grant,) = policy.grants
    assert grant.scope.covers("team-a", None, "default")
    assert not grant.scope.covers("team-b", {}, "default")
    shared, whole = policy.pools
    assert (shared.name, set(shared.trust), shared.max_request) == ("shared", {"trusted"}, 1)
    assert shared.assume is not None
    assert (shared.assume.memory, shared.assume.replicas) == (15360, 4)
    assert (whole.max_request, whole.assume) == (None, None)
    assert whole.nodes.matches({"gpus": "whole"})
    assert policy.frameworks == ("pytorch",)
    assert policy.context_mib["default"] == 1024
    assert policy.limits.max_replicas == 4
    assert policy.action("multiple-slices") is Action.WARN
    assert policy.action("unsteered-pod") is Action.DENY


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("{text: 'GPU team, #gpu-help'}", "GPU team, #gpu-help"),
        ("{text: 'Ask the GPU team.', url: 'https://wiki/gpu'}", "Ask the GPU team, https://wiki/gpu"),
        ("\n    text: |\n      GPU team,\n      room 4\n", "GPU team, room 4"),
        ('{text: "bell \\a"}', "bell \\u0007"),
    ],
)
def test_support_is_one_printable_line(written: str, read: str) -> None:
    assert policy_of(edited(("  rules:\n", f"  support: {written}\n  rules:\n"))).support == read
    assert policy_of(SMALL).support == ""


def test_a_shared_pool_takes_one_at_most_whether_it_says_so_or_not() -> None:
    assert policy_of(edited(("      maxRequest: 1\n", ""))).pools[0].max_request == 1


def test_a_grant_for_accounts_covers_only_those_of_its_namespaces() -> None:
    grants = """\
      - namespaceSelector:
          matchLabels: {tier: gold}
        serviceAccounts: [trainer]
"""
    (grant,) = policy_of(edited(("      - namespaces: [team-a]\n", grants))).grants
    assert grant.scope.covers("any", {"tier": "gold"}, "trainer")
    assert not grant.scope.covers("any", {"tier": "gold"}, "default")
    assert not grant.scope.covers("any", {"tier": "lead"}, "trainer")
    assert not grant.scope.covers("any", None, "trainer")


def test_limits_of_sharing_are_read() -> None:
    assert policy_of(SMALL).limits == SharingLimits(max_replicas=4)
    words = "{namespaces: [gpu], maxReplicasByProduct: {Tesla: 2, Tesla-T4: 6}, minSliceMemory: 2Gi, mps: Forbidden}"
    limits = policy_of(edited(("  sharing:\n    maxReplicas: 4\n", f"  sharing: {words}\n"))).limits
    assert (limits.namespaces, limits.min_slice, limits.mps) == (("gpu",), 2048, "Forbidden")
    products = ("Tesla-T4-SHARED", "Tesla-V100", "NVIDIA-A100")
    assert [limits.of_product(product) for product in products] == [6, 2, None]


def test_only_the_namespaces_that_a_policy_names_are_left_alone() -> None:
    assert policy_of(SMALL).leave_alone == ()
    named = ("  sharing:\n    maxReplicas: 4\n", "  leaveAlone: [gpu]\n  sharing: {namespaces: [plugin]}\n")
    policy = policy_of(edited(named))
    assert (policy.leave_alone, policy.limits.namespaces) == (("gpu",), ("plugin",))


def test_other_documents_in_the_policy_file_are_ignored() -> None:
    text = f"apiVersion: v1\nkind: Namespace\n---\n- a list\n---\n{SMALL}"
    assert policy_of(text).name == "small"


@pytest.mark.parametrize(("edits", "messages"), ERRORS.values(), ids=ERRORS)
def test_an_error_names_file_line_place_and_way_out(edits: list[tuple[str, str]], messages: list[str]) -> None:
    assert problems_of(edited(*edits)) == messages


def test_a_policy_without_pools_is_refused_with_the_reason() -> None:
    head = SMALL[: SMALL.index("spec:")]
    assert problems_of(f"{head}spec: {{pool: []}}\n") == [
        "p.yaml:5: spec: pools is missing",
        "p.yaml:5: spec.pool: unknown key, did you mean pools?",
    ]


def test_lines_count_within_the_file_and_not_within_the_document() -> None:
    before = "# two lines\n---\napiVersion: v1\nkind: Namespace\n---\n"
    (message,) = problems_of(before + edited(("  name: small\n", "  name: ''\n")))
    assert message == f"p.yaml:{4 + 5}: metadata.name: must not be empty"


def test_a_repeated_name_is_reported_once() -> None:
    (trust,) = [row for row in SMALL.splitlines() if "trust: [" in row][:1]
    many = trust.partition("[")[0] + "[" + ", ".join(["trusted"] * 200) + "]"
    (message,) = problems_of(SMALL.replace(trust, many, 1))
    assert message.endswith('spec.pools[0].trust: names "trusted" twice')


def test_a_second_policy_is_refused_where_it_starts() -> None:
    second = SMALL.count("\n") + 2
    assert problems_of(f"{SMALL}---\n{SMALL}") == [f"p.yaml:{second}: a second policy: only one may be given"]


@pytest.mark.parametrize("text", ["", "a: 1\n", "apiVersion: v1\nkind: ConfigMap\n", "- 1\n---\ntext\n"])
def test_a_file_without_a_policy_is_refused(text: str) -> None:
    (message,) = problems_of(text)
    assert message == "p.yaml: no GPUSharingPolicy of slicewarden.dev/v1alpha1 in it"


@pytest.mark.parametrize(
    ("head", "error"),
    [
        (
            "apiVersion: v1\nkind: GPUSharingPolicy\n",
            'p.yaml:1: apiVersion: must be "slicewarden.dev/v1alpha1", found "v1"',
        ),
        (
            "apiVersion: slicewarden.dev/v1alpha1\nkind: GPUSharingPolcy\n",
            'p.yaml:2: kind: unknown kind "GPUSharingPolcy", did you mean GPUSharingPolicy?',
        ),
        (
            "apiVersion: slicewarden.dev/v1alpha1\nkind: PolicyTests\n",
            'p.yaml:2: kind: unknown kind "PolicyTests", did you mean PolicyTest?',
        ),
        (
            "kind: PolicyTest\nspec: {}\n",
            'p.yaml:1: apiVersion: must be "slicewarden.dev/v1alpha1", found null',
        ),
    ],
)
def test_a_misspelt_kind_of_ours_is_an_error(head: str, error: str) -> None:
    assert problems_of(head) == [error]
    assert problems_of(f"{head}---\n{SMALL}") == [error]  # beside a good one it would be missed


def test_a_policy_and_its_tests_may_share_a_file() -> None:
    test = "apiVersion: slicewarden.dev/v1alpha1\nkind: PolicyTest\n"
    assert policy_of(f"{test}---\n{SMALL}").name == "small"


def test_an_error_quotes_what_it_found_in_one_short_line_of_ascii() -> None:
    (message,) = problems_of(edited(("  name: small\n", f'  name: ["\\e[31m\\n\\u2028", "{"x" * 1000}"]\n')))
    assert message.isascii()
    assert message.isprintable()
    assert len(message) < 200


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_a_value_of_the_wrong_kind_anywhere_is_an_error_with_a_line(key: str, value: Any) -> None:
    document = with_wrong(key, value)
    text = yaml.safe_dump(document, sort_keys=False)
    messages = problems_of(text)
    assert messages
    for message in messages:
        file, line, rest = message.split(":", 2)
        assert file == "p.yaml"
        assert 1 <= int(line) <= text.count("\n")
        assert rest.strip()


def test_an_unusable_policy_can_be_raised_through_a_context_manager() -> None:
    @contextmanager
    def somewhere() -> Iterator[None]:
        yield

    with pytest.raises(Unusable), somewhere():
        policy_of("")


# Caps

CAPS = """\
    reserve: {Tesla-T4: 400Mi}
    sharing: [time-slicing, mps]
    unified: [NVIDIA-GB10]
    defeats: Deny
    arguments: Append
    torch:
      versions:
        - {version: "2.11.1", namespaces: [team-a], pools: [shared]}
        - {version: "2.8"}
      older: {max_split_size_mb: 128, expandable_segments: true}
"""
MEMORY = "    context: {default: 1Gi}\n"
BEFORE_CAPS = SMALL[: SMALL.index(MEMORY) + len(MEMORY)].count("\n")


def test_every_key_on_caps_is_read() -> None:
    policy = policy_of(edited((MEMORY, MEMORY + CAPS)))
    assert policy.reserve_mib == {"Tesla-T4": 400}
    assert policy.capped_sharing == {"time-slicing", "mps"}
    assert policy.unified == ("NVIDIA-GB10",)
    assert policy.defeats is Action.DENY
    assert policy.append_arguments
    assert policy.torch("team-a", "shared") == (2, 11)
    assert policy.torch("team-a", "whole") == policy.torch("team-b", "shared") == (2, 8)
    assert policy.older_settings == {"max_split_size_mb": "128", "expandable_segments": "True"}


def test_caps_have_defaults() -> None:
    policy = policy_of(SMALL)
    assert policy.reserve_mib == {}
    assert policy.capped_sharing == {"time-slicing"}
    assert policy.defeats is Action.WARN
    assert not policy.append_arguments
    assert policy.torch("team-a", "shared") is None
    assert "NVIDIA-GB10" in policy.unified


def test_all_frameworks_of_the_table_may_be_named() -> None:
    items = schema(RULES, frameworks=frameworks.names())["$defs"]["memory"]["properties"]["frameworks"]["items"]
    assert tuple(items["enum"]) == frameworks.names()


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ('"2.8"', "2.10", 9, "torch.versions[1].version: must be text, found 2.1; put it in quotes"),
        ('"2.8"', '"2"', 9, 'torch.versions[1].version: must be a version in quotes, such as "2.11", found "2"'),
        ("pools: [shared]", "pools: [share]", 8, 'torch.versions[0].pools[0]: no pool named "share"'),
        ("mb: 128", "mb: 20", 10, "torch.older.max_split_size_mb: 20 is less than the minimum of 21"),
        (
            "older: {max",
            "older: {min",
            10,
            "torch.older.min_split_size_mb: unknown key, did you mean max_split_size_mb?",
        ),
        ("defeats: Deny", "defeats: Audit", 4, 'defeats: must be one of Warn, Deny, found "Audit"'),
        ("400Mi", "lots", 1, 'reserve.Tesla-T4: must be a quantity of memory such as 512Mi, found "lots"'),
        ("[time-slicing, mps]", "[]", 2, "sharing: must not be empty"),
    ],
)
def test_an_error_in_caps_names_line_and_place(old: str, new: str, line: int, message: str) -> None:
    text = edited((MEMORY, MEMORY + CAPS))
    assert text.count(old) == 1
    assert problems_of(text.replace(old, new)) == [f"p.yaml:{BEFORE_CAPS + line}: spec.memory.{message}"]


# Overlap

KEYS = ("a", "b")
VALUES = ("1", "2")


@st.composite
def selectors(draw: st.DrawFn) -> dict[str, Any]:
    labels = draw(st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=2))
    expressions = draw(
        st.lists(
            st.one_of(
                st.fixed_dictionaries(
                    {
                        "key": st.sampled_from(KEYS),
                        "operator": st.sampled_from(["In", "NotIn"]),
                        "values": st.lists(st.sampled_from(VALUES), min_size=1, max_size=2, unique=True),
                    }
                ),
                st.fixed_dictionaries(
                    {"key": st.sampled_from(KEYS), "operator": st.sampled_from(["Exists", "DoesNotExist"])}
                ),
            ),
            max_size=2,
        )
    )
    return {"matchLabels": labels, "matchExpressions": expressions}


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Label selection, written out a second time."""
    for expression in selector["matchExpressions"]:
        value = labels.get(expression["key"])
        holds = {
            "In": value in expression.get("values", []),
            "NotIn": value not in expression.get("values", []),
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not holds[expression["operator"]]:
            return False
    return all(labels.get(key) == value for key, value in selector["matchLabels"].items())


NODES = [
    {key: value for key, value in zip(KEYS, values, strict=True) if value is not None}
    for values in itertools.product((None, *VALUES, "3"), repeat=len(KEYS))
]


@settings(max_examples=60)
@given(selectors(), selectors())
def test_two_pools_overlap_exactly_when_a_node_can_match_both(one: dict[str, Any], other: dict[str, Any]) -> None:
    document = yaml.load(SMALL, yaml.CSafeLoader)
    document["spec"]["pools"][0]["nodes"] = one
    document["spec"]["pools"][1]["nodes"] = other
    try:
        policy_of(json.dumps(document))
        messages = ""
    except Unusable as error:
        messages = str(error)
    assert ("overlaps" in messages) == any(selects(one, node) and selects(other, node) for node in NODES)
    for index, selector in enumerate((one, other)):
        empty = not any(selects(selector, node) for node in NODES)
        assert (f"spec.pools[{index}].nodes: no node can match" in messages) == empty


def test_the_number_of_reported_unknown_keys_is_limited() -> None:
    names = "\n".join(f"  key-{number:05}: 1" for number in range(5_000))
    documents, _ = read(f"apiVersion: slicewarden.dev/v1alpha1\nkind: GPUSharingPolicy\nmetadata:\n{names}\n", "p.yaml")
    with pytest.raises(Unusable) as raised:
        load(documents, RULES, "p.yaml")
    assert len(raised.value.problems) == MOST + 1
    assert raised.value.problems[-1].message == "there are more errors than these 100: correct these first"


def test_the_number_of_pools_is_limited_since_all_pairs_are_compared() -> None:
    pools = "\n".join(
        f"  - {{name: p{n}, sharing: none, trust: [trusted], resources: [a.b/c], nodes: {{matchLabels: {{a: n{n}}}}}}}"
        for n in range(251)
    )
    head = "apiVersion: slicewarden.dev/v1alpha1\nkind: GPUSharingPolicy\nmetadata: {name: a}\nspec:\n  pools:\n"
    documents, _ = read(f"{head}{pools}\n", "p.yaml")
    with pytest.raises(Unusable) as raised:
        load(documents, RULES, "p.yaml")
    (problem,) = raised.value.problems
    assert problem.message == "spec.pools: must not have more than 250 items, found 251"
    documents, _ = read(f"{head}{pools.rpartition(chr(10))[0]}\n", "p.yaml")
    assert len(load(documents, RULES, "p.yaml").pools) == 250
