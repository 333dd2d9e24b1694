"""`slicewarden policy lint`: every lint finds its case, and is silent beside it."""

import ast
import inspect
import json
import pkgutil
from datetime import date, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import ROOT
from tests.support.policies import RULES, facts_of
from webhook import lints
from webhook.cli import inputs
from webhook.cli import main as cli
from webhook.documents.documents import read
from webhook.lints.eased import WAYS
from webhook.policy.load import load_with_document

POLICY = """\
apiVersion: slicewarden.dev/v1alpha1
kind: GPUSharingPolicy
metadata: {name: small}
spec:
  trust:
    grants:
      - namespaces: [team]
  pools:
    - name: shared
      sharing: time-slicing
      trust: [trusted]
      nodes: {matchLabels: {gpus: shared}}
      resources: [nvidia.com/gpu]
      tolerations: [{key: gpus}]
    - name: whole
      sharing: none
      trust: [trusted, untrusted]
      nodes: {matchLabels: {gpus: whole}}
      resources: [nvidia.com/gpu]
      tolerations: [{key: gpus}]
      maxRequest: 8
  guard: {taint: {key: gpus}}
  sharing:
    namespaces: [operator]
    maxReplicas: 4
"""
FACTS = """\
apiVersion: v1
kind: List
items:
  - {apiVersion: v1, kind: Namespace, metadata: {name: team, labels: {tier: gold}}}
  - {apiVersion: v1, kind: Namespace, metadata: {name: other}}
  - {apiVersion: v1, kind: Namespace, metadata: {name: operator}}
  - apiVersion: v1
    kind: Node
    metadata:
      name: shared-1
      labels:
        gpus: shared
        nvidia.com/gpu.product: Tesla-T4-SHARED
        nvidia.com/gpu.memory: "15360"
        nvidia.com/gpu.replicas: "4"
        nvidia.com/gpu.sharing-strategy: time-slicing
    spec: {taints: [{key: gpus, effect: NoSchedule}]}
    status: {allocatable: {nvidia.com/gpu: "4"}}
  - apiVersion: v1
    kind: Node
    metadata:
      name: whole-1
      labels: {gpus: whole, nvidia.com/gpu.product: NVIDIA-A100, nvidia.com/gpu.sharing-strategy: none}
    spec: {taints: [{key: gpus, effect: NoSchedule}]}
    status: {allocatable: {nvidia.com/gpu: "8"}}
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: config, namespace: operator}, data: {any: "version: v1"}}
"""
TODAY = date(2026, 11, 21)

BESIDE_MIG = (
    "resources: [nvidia.com/gpu]\n      tolerations: [{key: gpus}]\n      maxRequest",
    "resources: [nvidia.com/gpu, nvidia.com/mig-1g.10gb]\n      tolerations: [{key: gpus}]\n      maxRequest",
)
FOUR_AND_EIGHT = ('{nvidia.com/gpu: "8"}', '{nvidia.com/gpu: "4", nvidia.com/mig-1g.10gb: "8"}')
"""A pool that offers whole cards and MIG devices, and a node with 12 of them."""

RELEASES = {**dict.fromkeys(RULES, (0, 1)), "device-mount": (0, 2), "device-path": (0, 2)}
"""As if two rules had come with a second release."""

RULES_AT = "  sharing:\n    namespaces: [operator]\n"
"""The place in POLICY before which more of a policy is written."""


def found(policy: str = POLICY, facts: str = FACTS, today: date = TODAY, soon: int = 30) -> list[tuple[str, int, str]]:
    """Each finding's lint, line and message."""
    documents, problems = read(policy, "p.yaml")
    assert problems == []
    (judged,) = lints.lint(
        *load_with_document(documents, RELEASES, "p.yaml"), facts_of(facts), today, timedelta(soon)
    ).judged
    return [(result.rule, line, result.finding.message) for result, line in judged.findings]


def edited(text: str, *edits: tuple[str, str]) -> str:
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


BOTH = "namespaces: [team, other]"
BY_RBAC = ("- namespaces: [team]\n", "- namespaces: [team]\n      - rbac: true\n")
"""Trust by RBAC beside the grant by name."""
_DEPLOYER, _EVERYONE = (
    "{kind: ServiceAccount, name: deployer, namespace: team}",
    "{kind: Group, name: system:serviceaccounts}",
)
RIGHTS = (
    "  - {apiVersion: v1, kind: Namespace, metadata: {name: other}}\n",
    f"""\
  - {{apiVersion: v1, kind: Namespace, metadata: {{name: other}}}}
  - apiVersion: rbac.authorization.k8s.io/v1
    kind: ClusterRole
    metadata: {{name: everything}}
    rules: [{{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}}]
  - apiVersion: rbac.authorization.k8s.io/v1
    kind: ClusterRoleBinding
    metadata: {{name: deployers}}
    roleRef: {{kind: ClusterRole, name: everything}}
    subjects: [{_DEPLOYER}, {{kind: ServiceAccount, name: job-controller, namespace: kube-system}}]
""",
)
"""An account of a tenant, and one of the system, that may do everything."""
WARN, AUDIT = "rules: {device-path: Warn}", "rules: {device-path: Audit}"


def denied(but: str) -> str:
    """Entries of a policy's rules that leave only one open of all that shut a way."""
    shut = {rule for way in WAYS for rules in way.sets for rule in rules}
    return "".join(f"    {rule}: Deny\n" for rule in sorted(shut - {but}))


def more(text: str) -> tuple[str, str]:
    """An edit that adds to a policy's spec."""
    return RULES_AT, text + RULES_AT


Edit = tuple[str, str]

_TAINT = "    spec: {taints: [{key: gpus, effect: NoSchedule}]}\n"
_OFFER = '    status: {allocatable: {nvidia.com/gpu: "8"}}'
UNTAINTED = _TAINT + _OFFER, _OFFER
"""An edit of FACTS that takes the taint off the node of whole cards."""

# What to change in the policy, what in the facts, the line, and how the message begins.
CASES: dict[str, list[tuple[list[Edit], list[Edit], int, str]]] = {
    "newer-rule": [
        (
            [more('  rulesAsOf: "0.1"\n  rules: {device-path: Warn}\n')],
            [],
            23,
            "rule device-mount is new in 0.2 and only records; name it under rules, or say 0.2 here",
        ),
    ],
    "empty-pool": [
        ([("{gpus: whole}", "{gpus: hole}")], [], 18, "no node has gpus=hole, so pods of pool whole wait for ever"),
    ],
    "poolless-node": [
        (
            [],
            [("      labels: {gpus: whole, ", "      labels: {gpus: hole, ")],
            8,
            "no pool has 1 node (whole-1), so their GPUs are idle",
        ),
    ],
    "other-sharing": [
        (
            [],
            [("sharing-strategy: none", "sharing-strategy: mps")],
            16,
            "is none, but mps on 1 node (whole-1) in pool whole",
        ),
        (
            [],
            [("sharing-strategy: time-slicing", "sharing-strategy: mps")],
            10,
            "is time-slicing, but mps on 1 node (shared-1)",
        ),
        (
            [],
            [("sharing-strategy: none", "count: '1'")],
            16,
            "is none, but 1 node (whole-1) in pool whole offers more GPUs than cards",
        ),
    ],
    "unoffered-resource": [
        (
            [
                (
                    "      resources: [nvidia.com/gpu]\n      tolerations: [{key: gpus}]\n      max",
                    "      resources: [nvidia.com/gpu, nvidia.com/mig-*]\n      tolerations: [{key: gpus}]\n      max",
                )
            ],
            [],
            19,
            "no node of pool whole has nvidia.com/mig-*",
        ),
    ],
    "unlisted-offer": [
        (
            [],
            [('{nvidia.com/gpu: "8"}', '{nvidia.com/gpu: "8", nvidia.com/mig-1g.10gb: "7"}')],
            19,
            "lacks nvidia.com/mig-1g.10gb, offered by 1 node (whole-1); that is not for a pool of sharing none: "
            "let a pool of MIG devices select such nodes, or change what they offer",
        ),
        (
            [
                (
                    "  pools:\n",
                    "  pools:\n    - {name: parts, sharing: mig, trust: [trusted], nodes: {matchLabels: {gpus: p}}, "
                    "resources: [nvidia.com/mig-*], tolerations: [{key: gpus}]}\n",
                )
            ],
            [('{nvidia.com/gpu: "8"}', '{nvidia.com/gpu: "8", nvidia.com/mig-1g.10gb: "7"}')],
            20,
            "lacks nvidia.com/mig-1g.10gb, offered by 1 node (whole-1); that is not for a pool of sharing none: "
            "let pool parts select such nodes",
        ),
        (
            [],
            [('{nvidia.com/gpu: "8"}', '{nvidia.com/gpu: "8", nvidia.com/gpu.shared: "7"}')],
            19,
            "lacks nvidia.com/gpu.shared, offered by 1 node (whole-1); that is not for a pool of sharing none: "
            "let a pool that shares select such nodes",
        ),
        (
            [],
            [('{nvidia.com/gpu: "4"}', '{nvidia.com/gpu: "4", nvidia.com/gpu.shared: "4"}')],
            13,
            "lacks nvidia.com/gpu.shared, offered by 1 node (shared-1); add it to pool shared",
        ),
    ],
    "unguarded-node": [
        (
            [],
            [UNTAINTED],
            22,
            "the guard of policy small is the taint gpus, which whole-1 lacks, so an image alone may see its",
        ),
        ([("  guard: {taint: {key: gpus}}\n", "")], [], 4, "policy small has no guard"),
    ],
    "unreachable-request": [
        ([("maxRequest: 8", "maxRequest: 16")], [], 21, "is 16, and no node of pool whole has more than 8"),
        (
            [BESIDE_MIG, ("maxRequest: 8", "maxRequest: 13")],
            [FOUR_AND_EIGHT],
            21,
            "is 13, and no node of pool",
        ),
    ],
    "unknown-card": [
        ([], [('        nvidia.com/gpu.memory: "15360"\n', "")], 9, "no card is known on 1 node (shared-1)"),
    ],
    "thin-slice": [
        (
            [more("  memory: {context: {default: 3400Mi, Tesla-T4: 3400Mi}}\n")],
            [],
            9,
            "leaves too little a slice: (15360 MiB - 308 reserve) / 4 replicas - 3400 context = 363 MiB, 0.023 of the "
            "GPU; 512 MiB is the least",
        ),
    ],
    "broken-limit": [
        (
            [("maxReplicas: 4", "maxReplicas: 2")],
            [],
            12,
            "a card has 4 slices on 1 node (shared-1), and sharing.maxReplicas is 2",
        ),
        (
            [("maxReplicas: 4", "maxReplicas: 4\n    maxReplicasByProduct: {Tesla-T4: 3}")],
            [],
            12,
            "a card has 4 slices on 1 node (shared-1), and maxReplicasByProduct is 3",
        ),
        (
            [("maxReplicas: 4", "minSliceMemory: 4Gi")],
            [],
            25,
            "is 4096 MiB, and a slice has 3763 on 1 node (shared-1) in pool shared",
        ),
    ],
    "contradicted-limit": [
        (
            [("maxReplicas: 4", "mps: Forbidden"), ("sharing: time-slicing", "sharing: mps")],
            [("sharing-strategy: time-slicing", "sharing-strategy: mps")],
            10,
            "is mps, and sharing.mps is Forbidden",
        ),
        ([("maxReplicas: 4", "renameByDefault: Required")], [], 13, "sharing.renameByDefault is Required"),
        (
            [("      trust: [trusted]\n", "      trust: [trusted]\n      assume: {memory: 15Gi, replicas: 8}\n")],
            [],
            12,
            "is 8, and sharing.maxReplicas is 4",
        ),
    ],
    "missing-config-map": [
        (
            [("maxReplicas: 4", "configMaps: [{namespace: operator, name: confg}]")],
            [],
            25,
            "there is no ConfigMap operator/confg",
        ),
    ],
    "unknown-namespace": [
        ([("namespaces: [team]", "namespaces: [tema]")], [], 7, "there is no namespace tema"),
        ([("namespaces: [operator]", "namespaces: [operatr]")], [], 24, "there is no namespace operatr"),
        ([more("  leaveAlone: [tema]\n")], [], 23, "there is no namespace tema"),
        (
            [more("  memory: {torch: {versions: [{version: '2.11', namespaces: [tema]}]}}\n")],
            [],
            23,
            "there is no namespace tema",
        ),
    ],
    "absent-agent": [
        (
            [
                more(
                    "  exemptions: [{name: net, reason: r, system: true, namespaces: [calico], serviceAccounts: [a]}]\n"
                )
            ],
            [],
            23,
            "no namespace of net exists; remove the exemptions for agents that you do not run",
        ),
    ],
    "idle-scope": [
        (
            [("namespaces: [team]", "namespaceSelector: {matchLabels: {tier: lead}}")],
            [],
            7,
            "no namespace has tier=lead",
        ),
        (
            [more("  overrides: [{namespaceSelector: {matchLabels: {tier: lead}}, rules: {device-path: Warn}}]\n")],
            [],
            23,
            "no namespace has tier=lead",
        ),
    ],
    "waiting-grant": [
        (
            [("namespaces: [team]", "namespaceSelector: {matchLabels: {slicewarden.dev/trust: trusted}}")],
            [],
            7,
            "no namespace has slicewarden.dev/trust=trusted yet; label those whose pods may share cards",
        ),
    ],
    "broad-grant": [
        (
            [("namespaces: [team]", "namespaceSelector: {matchExpressions: [{key: tier, operator: DoesNotExist}]}")],
            [],
            7,
            "!tier trusts every new namespace",
        ),
        ([("namespaces: [team]", "namespaces: [team, other, operator]")], [], 7, "covers all 3 namespaces"),
    ],
    "shadowed-grant": [
        (
            [
                (
                    "- namespaces: [team]",
                    "- namespaces: [team]\n      - {namespaces: [team], serviceAccounts: [trainer]}",
                )
            ],
            [],
            8,
            "gives nothing that grants[0] does not",
        ),
        (
            [("- namespaces: [team]", "- namespaces: [team]\n      - namespaces: [team]")],
            [],
            8,
            "gives nothing that grants[0] does not",
        ),
    ],
    "overlapping-grants": [
        (
            [
                (
                    "- namespaces: [team]",
                    "- {namespaces: [team], groups: [leads]}\n      - namespaceSelector: {matchLabels: {tier: gold}}",
                )
            ],
            [],
            7,
            "its users or groups have no effect in team, where grants[1] asks for less",
        ),
    ],
    "useless-grant": [
        (
            [("trust: [trusted]\n", "trust: [untrusted]\n"), ("trust: [trusted, untrusted]", "trust: [untrusted]")],
            [],
            7,
            "shared and whole take no trusted pods",
        ),
    ],
    "broad-right": [
        (
            [BY_RBAC],
            [RIGHTS],
            8,
            "ClusterRoleBinding deployers lets team:deployer use trustlevels.slicewarden.dev/trusted, though nobody",
        ),
        (
            [BY_RBAC],
            [(RIGHTS[0], RIGHTS[1].replace(_DEPLOYER, _EVERYONE))],
            8,
            "ClusterRoleBinding deployers lets system:serviceaccounts use",
        ),
    ],
    "ended-exemption": [
        (
            [more('  exemptions: [{name: move, reason: r, until: "2026-11-20", namespaces: [team]}]\n')],
            [],
            23,
            "exemption move ended on 2026-11-20",
        ),
    ],
    "ending-exemption": [
        (
            [more('  exemptions: [{name: move, reason: r, until: "2026-11-21", namespaces: [team]}]\n')],
            [],
            23,
            "exemption move ends on 2026-11-21",
        ),
    ],
    "every-rule-exempted": [
        (
            [more("  exemptions: [{name: a, reason: r, system: true, namespaces: [team], serviceAccounts: [b]}]\n")],
            [],
            23,
            "exemption a covers every rule; name rules, unless it needs all of them",
        ),
    ],
    "exempted-default": [
        (
            [more(f"  exemptions: [{{name: a, reason: r, {who}, namespaces: [team], rules: [device-path]}}]\n")],
            [],
            23,
            "exemption a covers the account default, which every pod has that names none",
        )
        for who in ('until: "2027-03-01", serviceAccounts: [b, default]', "system: true, serviceAccounts: [default]")
    ],
    "unjudged-namespace": [
        (
            [more("  leaveAlone: [team]\n")],
            [],
            23,
            "no pod of namespace team is ever judged; make sure that no tenant may create pods there",
        ),
        (
            [more("  leaveAlone: [a, b, c]\n")],
            [],
            23,
            "no pod of namespaces a, b and c is ever judged; make sure that no tenant may create pods there",
        ),
    ],
    "idle-override": [
        ([more("  overrides: [{namespaces: [team], rules: {device-path: Deny}}]\n")], [], 23, "is Deny without it too"),
        (
            [more(f"  overrides:\n    - {{{BOTH}, {WARN}}}\n    - {{namespaces: [team], {AUDIT}}}\n")],
            [],
            25,
            "overrides[0] names this rule first",
        ),
        ([more('  overrides: [{namespaces: [team], rules: {"*": Deny}}]\n')], [], 23, "is Deny without it too"),
        (
            [more(f"  rules: {{'*': Warn}}\n  overrides: [{{namespaces: [team], {WARN}}}]\n")],
            [],
            24,
            "is Warn without it too",
        ),
        (
            [more(f"  overrides:\n    - {{{BOTH}, rules: {{'*': Warn}}}}\n    - {{namespaces: [team], {AUDIT}}}\n")],
            [],
            25,
            "overrides[0] names this rule first",
        ),
    ],
    "open-way": [
        ([more("  rules: {unsteered-pod: Warn}\n")], [], 23, "with unsteered-pod eased pods go where they like"),
        (
            [more("  rules: {chosen-node: Audit, unguarded-container: Warn}\n")],
            [],
            23,
            "with chosen-node and unguarded-container eased a pod that asks for no GPU",
        ),
        (
            [more(f"  rules:\n    '*': Audit\n{denied(but='lifted-limit')}")],
            [],
            24,
            "with lifted-limit eased one pod can take the whole memory",
        ),
    ],
}


AGENT = more(
    "  exemptions:\n    - name: agent\n      reason: r\n      system: true\n      namespaces: [slicewarden-node]\n"
    "      serviceAccounts: [slicewarden-node]\n      rules: [device-path]\n"
)
_OPERATOR = "  - {apiVersion: v1, kind: Namespace, metadata: {name: operator}}\n"
THERE = _OPERATOR, _OPERATOR + _OPERATOR.replace("operator", "slicewarden-node")
"""An edit of FACTS: the agent's namespace exists."""


def node(words: str) -> Edit:
    """An edit that says what the agent does in the shared pool."""
    return "      sharing: time-slicing\n", f"      sharing: time-slicing\n      node: {words}\n"


def stay(seconds: int, agent: str = "") -> Edit:
    """An edit that gives the shared pool a longest stay, and says what the agent does there."""
    old = "      sharing: time-slicing\n"
    return old, f"{old}      maxActiveDeadlineSeconds: {seconds}\n" + (f"      node: {agent}\n" if agent else "")


LIMITED = "      sharing: time-slicing\n", "      sharing: time-slicing\n      memoryLimit: Driver\n"
LABELLED = "{gpus: shared}", "{gpus: shared, slicewarden.dev/memory-limits: 'true'}"


def listing(entry: str) -> Edit:
    """An edit of FACTS: a list of images with what is known of one."""
    data = f'{{"images-0.json": \'{{"registry.example.com/a:1": {entry}}}\'}}'
    metadata = "metadata: {name: slicewarden-images, namespace: operator}"
    whole = f"  - {{apiVersion: v1, kind: ConfigMap, {metadata}, data: {data}}}\n"
    return _OPERATOR, _OPERATOR + whole


def image_limits(action: str) -> Edit:
    """An edit of the policy that has LIMITED already."""
    return "      memoryLimit: Driver\n", f"      memoryLimit: Driver\n      imageLimits: {action}\n"


BEARS = "        gpus: shared\n        slicewarden.dev/memory-limits: 'true'\n"
"""Edits of POLICY and FACTS: the driver limits pods of the shared pool, which selects nodes that can; a node can."""

CASES |= {
    "odd-stay": [
        ([stay(599)], [], 11, "is 599 s, less than ten minutes, with the pull of the image; correct it, or remove it"),
        ([stay(28_800_000)], [], 11, "is 28800000 s, more than ninety days; correct it, or remove it"),
    ],
    "late-idle": [
        (
            [stay(3600, "{idle: {afterMinutes: 60}}"), AGENT],
            [THERE],
            12,
            "reports after 3600 s, and pods end after 3600 s; lower afterMinutes",
        ),
        (
            [stay(7200, "{idle: {afterMinutes: 60, noticeMinutes: 60, action: Evict}}"), AGENT],
            [THERE],
            12,
            "evicts after 7200 s, and pods end after 7200 s; lower noticeMinutes",
        ),
    ],
    "agent-without-effect": [
        ([node("{over: {action: Evict}}")], [], 11, "needs the agent, and no exemption covers"),
        (
            [LIMITED],
            [],
            11,
            "needs the agent, and no exemption covers",
        ),
        ([node('{contention: {mode: "Off", restSeconds: 5}}'), AGENT], [], 11, "has mode Off, so its other settings"),
        ([node("{contention: {mode: FirstCome, turnSeconds: 5}}"), AGENT], [], 11, "has no effect with mode FirstCome"),
    ],
    "late-driver-limit": [
        (
            [LIMITED, AGENT],
            [],
            11,
            "is set by the agent after a container's start, because pool shared does not select",
        ),
        (
            [LIMITED, LABELLED, AGENT],
            [("        gpus: shared\n", f"{BEARS}        nvidia.com/cuda.driver-version.major: '570'\n")],
            13,
            "selects 1 node (shared-1), which has driver 570, not 615 or newer, so the agent sets the driver's limits",
        ),
        (
            [LIMITED, LABELLED, AGENT],
            [("        gpus: shared\n", f"{BEARS}        nvidia.com/mig-1g.5gb.count: '1'\n")],
            13,
            "selects 1 node (shared-1), which has MIG devices",
        ),
        (
            [LIMITED, LABELLED, AGENT, ("  sharing:\n", "  rules: {unsteered-pod: Warn}\n  sharing:\n")],
            [("        gpus: shared\n", BEARS)],
            11,
            "is set by the agent after a container's start, because the action of unsteered-pod is Warn",
        ),
    ],
    "unlisted-images": [
        (
            [LIMITED, LABELLED, AGENT, image_limits("Deny")],
            [("        gpus: shared\n", BEARS)],
            12,
            "refuses every pod of pool shared, because no list of images says which limits",
        ),
        (
            [LIMITED, LABELLED, AGENT, image_limits("Warn")],
            [("        gpus: shared\n", BEARS), listing('""')],
            12,
            "warns of every pod of pool shared",
        ),
    ],
    "turn-longer-than-probes": [
        ([node("{contention: {mode: Turns, turnSeconds: 20}}"), AGENT], [], 11, "a turn has 20 s, and a pod may be"),
        (
            [node("{contention: {mode: Turns, turnSeconds: 21, longestSeconds: 60}}"), AGENT],
            [],
            11,
            "a turn has 21 s, and a pod with a usual liveness probe",
        ),
    ],
}

ELSEWHERE = {
    "evicting-default",
    "flavor-against-pool",
    "labelless-pool",
    "missing-class",
    "shared-device",
    "uncounted-device",
    "unjudged-class",
}
"""The lints that test_queues_and_devices.py tries, with facts of their own."""


def test_a_good_policy_has_no_findings() -> None:
    assert found() == []


def test_without_facts_only_the_policy_itself_is_judged() -> None:
    assert found(facts="apiVersion: v1\nkind: List\nitems: []\n") == []
    wrong = edited(POLICY, ("{gpus: whole}", "{gpus: hole}"), ("namespaces: [team]", "namespaces: [tema]"))
    assert found(wrong, facts="apiVersion: v1\nkind: List\nitems: []\n") == []


@pytest.mark.parametrize(
    ("lint", "place"), [(lint, place) for lint, cases in CASES.items() for place in range(len(cases))]
)
def test_each_lint_finds_its_case(lint: str, place: int) -> None:
    policy, facts, line, begin = CASES[lint][place]
    messages = [
        (at, message) for name, at, message in found(edited(POLICY, *policy), edited(FACTS, *facts)) if name == lint
    ]
    assert [at for at, message in messages if message.startswith(begin)] == [line], messages
    assert len(messages) == 1


def test_every_rule_eased_at_once_opens_every_door() -> None:
    """By the policy's own rules, or by an override of all its pools."""
    for text in ('  rules: {"*": Audit}\n', '  overrides: [{pools: [shared, whole], rules: {"*": Warn}}]\n'):
        opened = [message for name, _, message in found(edited(POLICY, more(text))) if name == "open-way"]
        assert [way.open in message for way, message in zip(WAYS, opened, strict=True)] == [True] * len(WAYS)


def test_every_lint_has_a_case() -> None:
    assert {*CASES, *ELSEWHERE} == {lints.name(each) for each in lints.LINTS}


def test_every_lint_says_the_way_out_in_one_line_that_never_changes() -> None:
    for page in lints.pages().values():
        assert page.split("\n\n")[-1].startswith("Way out:")
    for policy, facts, _, _ in (case for cases in CASES.values() for case in cases):
        one, two = (found(edited(POLICY, *policy), edited(FACTS, *facts)) for _ in range(2))
        assert one == two
        assert all("\n" not in message for _, _, message in one)


def test_every_file_of_the_folder_is_a_family() -> None:
    names = {module.name for module in pkgutil.iter_modules(lints.__path__, f"{lints.__name__}.")}
    assert names == {lints.base.__name__, *(family.__name__ for family in lints.FAMILIES)}


@pytest.mark.parametrize("family", lints.FAMILIES, ids=lambda family: family.__name__.rpartition(".")[2])
def test_every_generator_of_a_family_is_listed(family: ModuleType) -> None:
    tree = ast.parse(inspect.getsource(family))
    takes = [n.name for n in tree.body if isinstance(n, ast.FunctionDef) and [a.arg for a in n.args.args] == ["of"]]
    assert takes == [each.__name__ for each in family.LINTS]


# Honest neighbours


@pytest.mark.parametrize(
    ("policy", "facts"),
    [
        ([("{gpus: whole}", "{gpus: later}"), ("      maxRequest: 8\n", "")], [("{gpus: whole, ", "{gpus: later, ")]),
        ([("namespaces: [team]", "namespaceSelector: {matchLabels: {tier: gold}}")], []),
        (
            [LIMITED, LABELLED, AGENT, image_limits("Deny")],
            [("        gpus: shared\n", BEARS), listing('{"PYTHONPATH": ""}'), THERE],
        ),
        ([BESIDE_MIG, ("maxRequest: 8", "maxRequest: 12")], [FOUR_AND_EIGHT]),
        (
            [
                (
                    "- namespaces: [team]",
                    "- {namespaces: [team], pools: [shared]}\n      - {namespaces: [team], pools: [whole]}",
                )
            ],
            [],
        ),
        (
            [
                (
                    "- namespaces: [team]",
                    "- {namespaces: [team]}\n      - {namespaces: [other], serviceAccounts: [trainer]}",
                )
            ],
            [],
        ),
        ([("- namespaces: [team]", "- {namespaces: [team], groups: [leads]}\n      - {namespaces: [other]}")], []),
        (
            [
                more(
                    "  exemptions:\n    - {name: move, reason: r, until: '2026-12-21', namespaces: [team], "
                    "rules: [device-path]}\n"
                )
            ],
            [],
        ),
        ([more("  overrides: [{namespaces: [team], rules: {device-path: Warn}}]\n")], []),
        (
            [more(f"  overrides:\n    - {{namespaces: [team], {WARN}}}\n    - {{{BOTH}, {AUDIT}}}\n")],
            [],
        ),
        ([more(f"  overrides: [{{pools: [shared], {WARN}}}]\n")], []),
        ([more('  rules: {unread-variables: Warn}\n  overrides: [{namespaces: [team], rules: {"*": Deny}}]\n')], []),
        (
            [
                more(
                    "  overrides:\n    - {namespaces: [team], rules: {device-path: Deny}}\n"
                    f"    - {{{BOTH}, {WARN}}}\n"
                )
            ],
            [],
        ),
        (
            [more(f"  overrides:\n    - {{namespaces: [team], {WARN}}}\n    - {{{BOTH}, rules: {{'*': Audit}}}}\n")],
            [],
        ),
        ([more("  rules: {chosen-node: Warn}\n")], []),
        ([more("  rules: {unread-variables: Warn, multiple-slices: Warn, unguarded-container: Audit}\n")], []),
        (
            [("guard: {taint: {key: gpus}}", "guard: every-pod")],
            [UNTAINTED],
        ),
        ([("maxReplicas: 4", "maxReplicas: 4\n    configMaps: [{namespace: operator, name: config}]")], []),
        ([node("{over: {action: Evict}, contention: {mode: FirstCome, longestSeconds: 60}}"), AGENT], [THERE]),
        ([node("{contention: {mode: Turns, turnSeconds: 20, longestSeconds: 60}}"), AGENT], [THERE]),
        ([node('{contention: {mode: "Off"}}'), AGENT], [THERE]),
        ([stay(600)], []),
        ([stay(90 * 24 * 3600)], []),
        ([stay(7201, "{idle: {afterMinutes: 60, noticeMinutes: 60, action: Evict}}"), AGENT], [THERE]),
        ([stay(3601, "{idle: {afterMinutes: 60, noticeMinutes: 60}}"), AGENT], [THERE]),
        ([], [('{nvidia.com/gpu: "8"}', '{nvidia.com/gpu: "8", gpu.intel.com/monitoring: "1"}')]),
    ],
)
def test_a_similar_policy_without_the_mistake_is_not_reported(policy: list[Edit], facts: list[Edit]) -> None:
    assert found(edited(POLICY, *policy), edited(FACTS, *facts)) == []


def test_a_pool_that_scales_from_zero_may_be_empty() -> None:
    later = ("{gpus: shared}", "{gpus: later}")
    assume = ("      trust: [trusted]\n", "      trust: [trusted]\n      assume: {memory: 15Gi, replicas: 4}\n")
    assert [name for name, _, _ in found(edited(POLICY, later))] == ["poolless-node", "empty-pool"]
    assert [name for name, _, _ in found(edited(POLICY, later, assume))] == ["poolless-node"]


# The command


def test_the_page_of_the_lints_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["policy", "lints", "--markdown"]) == 0
    assert (ROOT / "docs" / "policy-lints.md").read_text("utf-8") == capsys.readouterr().out, "run make docs"
    assert cli.main(["policy", "lints"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(lints.pages())
    assert cli.main(["policy", "lints", "open-way"]) == 0
    assert "Way out:" in capsys.readouterr().out
    assert cli.main(["policy", "lints", "open-dor"]) == 2
    assert capsys.readouterr().err == "error: open-dor: no such lint, did you mean open-way?\n"


def test_the_table_speaks_of_errors_warnings_and_notes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "p.yaml"

    def run(*options: str) -> str:
        cli.main(["policy", "lint", str(policy), "--today", "2026-12-15", *options])
        return capsys.readouterr().out

    policy.write_text(POLICY)
    assert (run(), run("--quiet")) == ("No problems found.\n", "")
    text = edited(
        POLICY,
        more('  exemptions: [{name: m, reason: r, until: "2027-01-01", namespaces: [team], rules: [device-path]}]\n'),
    )
    policy.write_text(text)
    line = next(number for number, row in enumerate(text.splitlines(), 1) if "exemptions:" in row)
    assert run().startswith(f"note     {policy}:{line}  ending-exemption  spec.exemptions[0].until\n         ")
    assert run().endswith("\n\n1 note in 1 policy\n")
    policy.write_text(edited(text, ("maxReplicas: 4", "mps: Forbidden"), ("sharing: time-slicing", "sharing: mps")))
    assert run().endswith("\n\n1 error, 1 note in 1 policy\n")
    assert "in 1 policy" not in run("--quiet")
    assert run("--color", "always").startswith("\033[1;31merror  \033[0m  ")


def test_the_command_reports_like_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text(
        edited(
            POLICY,
            more(
                '  exemptions: [{name: m, reason: r, until: "2027-01-01", namespaces: [team], rules: [device-path]}]\n'
            ),
        )
    )

    def run(*options: str) -> tuple[int, Any]:
        status = cli.main(["policy", "lint", str(policy), "--format", "json", *options])
        return status, json.loads(capsys.readouterr().out)

    def named(report: Any) -> list[tuple[str, str]]:
        return [(each["lint"], each["severity"]) for each in report["problems"]]

    assert run("--today", "2026-06-01")[0] == 0
    assert named(run("--today", "2026-06-01")[1]) == []
    assert named(run("--today", "2026-12-15")[1]) == [("ending-exemption", "note")]
    assert named(run("--today", "2026-12-15", "--soon", "7")[1]) == []
    assert run("--today", "2026-06-01")[1]["policy"] == {
        "name": "small",
        "digest": inputs.load_policy(str(policy)).digest,
    }
    status, report = run("--today", "2027-01-02")
    assert (status, named(report)) == (0, [("ended-exemption", "warning")])
    assert run("--today", "2027-01-02", "--fail-on", "warn")[0] == 4
    policy.write_text(edited(POLICY, ("maxReplicas: 4", "mps: Forbidden"), ("sharing: time-slicing", "sharing: mps")))
    assert run()[0] == 1
    assert run("--fail-on", "never")[0] == 0


def test_the_report_names_the_lints_that_need_facts(capsys: pytest.CaptureFixture[str]) -> None:
    policy, facts = str(ROOT / "policies/sample.yaml"), str(ROOT / "webhook/sample/facts.yaml")
    told = "note: no --facts: lints about nodes and namespaces were skipped\n"
    for options, said in (((), told), (("--facts", facts), "")):
        assert cli.main(["policy", "lint", policy, *options]) == 0
        assert capsys.readouterr().err == said


def test_lint_says_when_it_uses_the_sample_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cli.main(["policy", "lint"])
    assert "note: no policies/ here: judged by the sample policy; PATH names yours\n" in capsys.readouterr().err


def test_a_policy_that_cannot_be_used_is_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "p.yaml"
    overlapping = edited(POLICY, ("{gpus: whole}", "{tier: whole}"))  # a node could be in both pools
    policy.write_text(overlapping)
    assert cli.main(["policy", "lint", str(policy)]) == 2
    assert 'pool "whole" overlaps pool "shared"' in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["--today", "tomorrow"], ["--soon", "-1"], ["--soon", "99999"], []])
def test_wrong_usage_is_status_2(wrong: list[str]) -> None:
    assert cli.main(["policy", "lint", *wrong] if wrong else ["policy"]) == 2


def test_trust_by_rbac_beside_another_grant_is_no_fault() -> None:
    assert found(edited(POLICY, BY_RBAC)) == []
    role = RIGHTS[1].replace('["*"]', "[use, trustlevels, slicewarden.dev]").replace("name: everything", "name: role")
    assert found(edited(POLICY, BY_RBAC), edited(FACTS, (RIGHTS[0], role))) == [], "a role that names the right"
    assert found(POLICY, edited(FACTS, RIGHTS)) == [], "a policy that does not ask for it"


def test_a_narrower_grant_by_rbac_is_shadowed_by_a_wider_one() -> None:
    both = (BY_RBAC[0], f"{BY_RBAC[1]}      - {{namespaces: [other], rbac: true}}\n")
    assert [(lint, line) for lint, line, _ in found(edited(POLICY, both))] == [("shadowed-grant", 9)]
