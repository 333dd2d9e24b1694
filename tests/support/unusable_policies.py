"""Makes unusable policies from a small usable one."""

from collections.abc import Iterator
from typing import Any

import yaml

from tests.support.policies import RULES
from webhook.documents.documents import read

SMALL = """\
apiVersion: slicewarden.dev/v1alpha1
kind: GPUSharingPolicy
metadata:
  name: small
spec:
  trust:
    default: untrusted
    grants:
      - namespaces: [team-a]
  pools:
    - name: shared
      sharing: time-slicing
      trust: [trusted]
      nodes:
        matchLabels: {gpus: shared}
      resources: [nvidia.com/gpu]
      maxRequest: 1
      assume: {memory: 15360Mi, replicas: 4}
    - name: whole
      sharing: none
      trust: [trusted, untrusted]
      nodes:
        matchExpressions:
          - {key: gpus, operator: In, values: [whole]}
      resources: [nvidia.com/gpu]
  memory:
    frameworks: [pytorch]
    context: {default: 1Gi}
  sharing:
    maxReplicas: 4
  rules:
    multiple-slices: Warn
"""


def edited(*edits: tuple[str, str]) -> str:
    """Return the small policy with some texts replaced. Each of them occurs once in it."""
    text = SMALL
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


# What is wrong with one: the edits, then every line of the message

ERRORS: dict[str, tuple[list[tuple[str, str]], list[str]]] = {
    "guard of another name": (
        [("  rules:\n", "  guard: all-pods\n  rules:\n")],
        ['p.yaml:31: spec.guard: must be "every-pod", found "all-pods"'],
    ),
    "guard without a taint's key": (
        [("  rules:\n", "  guard: {taint: {}}\n  rules:\n")],
        ["p.yaml:31: spec.guard.taint: key is missing"],
    ),
    "guard whose taint a pool does not tolerate": (
        [
            ("  rules:\n", "  guard: {taint: {key: gpus}}\n  rules:\n"),
            ("      maxRequest: 1\n", "      maxRequest: 1\n      tolerations: [{key: gpus}]\n"),
        ],
        [
            'p.yaml:20: spec.pools[1]: pool "whole" does not tolerate gpus, the taint of the guard, so its nodes would '
            "take no pod; give it the toleration"
        ],
    ),
    "star in the middle of a form of asking": (
        [("  rules:\n", "  gpus: {annotations: [a*b]}\n  rules:\n")],
        ['p.yaml:31: spec.gpus.annotations[0]: must be a name, with * only at its end, found "a*b"'],
    ),
    "claims of every namespace": (
        [("  rules:\n", "  gpus: {claims: [{namespaceSelector: {matchLabels: {}}}]}\n  rules:\n")],
        ["p.yaml:31: spec.gpus.claims[0].namespaceSelector: is empty, and would cover every namespace; name labels"],
    ),
    "unknown key near a known one": (
        [("    frameworks: [pytorch]\n", "    framework: [pytorch]\n")],
        ["p.yaml:27: spec.memory.framework: unknown key, did you mean frameworks?"],
    ),
    "unknown key far from all": (
        [("    maxReplicas: 4\n", "    colour: red\n")],
        [
            "p.yaml:30: spec.sharing.colour: unknown key; known are configMaps, maxReplicas, maxReplicasByProduct, "
            "minSliceMemory, mps, namespaces, renameByDefault"
        ],
    ),
    "a slice that is no amount": (
        [("    maxReplicas: 4\n", "    minSliceMemory: much\n")],
        ['p.yaml:30: spec.sharing.minSliceMemory: must be a quantity of memory such as 512Mi, found "much"'],
    ),
    "more slices than a kubelet can be told of": (
        [("    maxReplicas: 4\n", "    maxReplicas: 65537\n")],
        ["p.yaml:30: spec.sharing.maxReplicas: 65537 is greater than the maximum of 65536"],
    ),
    "more slices of a product than a kubelet can be told of": (
        [("    maxReplicas: 4\n", "    maxReplicasByProduct: {Tesla-T4: 1000000000}\n")],
        ["p.yaml:30: spec.sharing.maxReplicasByProduct.Tesla-T4: 1000000000 is greater than the maximum of 65536"],
    ),
    "more slices in a pool than a kubelet can be told of": (
        [("      maxRequest: 1\n", "      maxRequest: 1\n      maxReplicas: 1000000000\n")],
        ["p.yaml:18: spec.pools[0].maxReplicas: 1000000000 is greater than the maximum of 65536"],
    ),
    "a stay of no time": (
        [("      maxRequest: 1\n", "      maxRequest: 1\n      maxActiveDeadlineSeconds: 0\n")],
        ["p.yaml:18: spec.pools[0].maxActiveDeadlineSeconds: 0 is less than the minimum of 60"],
    ),
    "a longer stay than Kubernetes counts": (
        [("      maxRequest: 1\n", "      maxRequest: 1\n      maxActiveDeadlineSeconds: 2147483648\n")],
        ["p.yaml:18: spec.pools[0].maxActiveDeadlineSeconds: 2147483648 is greater than the maximum of 2147483647"],
    ),
    "an option that is none": (
        [("    maxReplicas: 4\n", "    mps: No\n")],
        ["p.yaml:30: spec.sharing.mps: must be one of Allowed, Forbidden, found false"],
    ),
    "a product without a name": (
        [("    maxReplicas: 4\n", "    maxReplicasByProduct: {'': 4}\n")],
        ["p.yaml:30: spec.sharing.maxReplicasByProduct[]: must be the start of a product's name, such as Tesla-T4"],
    ),
    "unknown key in a pool": (
        [("      maxRequest: 1\n", "      maxRequests: 1\n")],
        ["p.yaml:17: spec.pools[0].maxRequests: unknown key, did you mean maxRequest?"],
    ),
    "unknown rule": (
        [("    multiple-slices: Warn\n", "    multiple-slice: Warn\n")],
        ["p.yaml:32: spec.rules.multiple-slice: unknown rule, did you mean multiple-slices?"],
    ),
    "a part of a rule": (
        [("    multiple-slices: Warn\n", "    unread: Warn\n")],
        ["p.yaml:32: spec.rules.unread: unknown rule, did you mean unread-text or unread-variables?"],
    ),
    "support without words": (
        [("  rules:\n", "  support: {text: ' ', url: wiki.example.com}\n  rules:\n")],
        [
            'p.yaml:31: spec.support.text: must be text that is not blank, found " "',
            'p.yaml:31: spec.support.url: must be a URL that begins with https:// or http://, found "wiki.example.com"',
        ],
    ),
    "support without a text": (
        [("  rules:\n", "  support: {url: 'https://wiki.example.com', chat: gpu}\n  rules:\n")],
        [
            "p.yaml:31: spec.support.chat: unknown key; known are text, url",
            "p.yaml:31: spec.support: text is missing",
        ],
    ),
    "unknown rule far from all": (
        [("    multiple-slices: Warn\n", "    zzz: Warn\n")],
        [f"p.yaml:32: spec.rules.zzz: unknown rule; known are *, {', '.join(RULES)}"],
    ),
    "an action of every rule that is none": (
        [("    multiple-slices: Warn\n", '    "*": Ignore\n')],
        ['p.yaml:32: spec.rules[*]: must be one of Deny, Warn, Audit, found "Ignore"'],
    ),
    "the beginning of a rule": (
        [("    multiple-slices: Warn\n", '    "multiple-*": Warn\n')],
        ["p.yaml:32: spec.rules[multiple-*]: unknown rule, did you mean multiple-slices?"],
    ),
    "an exemption of every rule by a star": (
        [
            (
                "  rules:\n",
                '  exemptions: [{name: a, reason: b, until: "2027-03-31", namespaces: [c], rules: ["*"]}]\n  rules:\n',
            )
        ],
        [f'p.yaml:31: spec.exemptions[0].rules[0]: unknown "*"; known are {", ".join(RULES)}'],
    ),
    "unknown action": (
        [("multiple-slices: Warn", "multiple-slices: warn")],
        ['p.yaml:32: spec.rules.multiple-slices: must be one of Deny, Warn, Audit, found "warn"'],
    ),
    "wrong type": (
        [("      trust: [trusted]\n", "      trust: trusted\n")],
        ['p.yaml:13: spec.pools[0].trust: must be a list, found "trusted"'],
    ),
    "boolean by accident": (
        [("        matchLabels: {gpus: shared}\n", "        matchLabels: {gpus: yes}\n")],
        [
            "p.yaml:15: spec.pools[0].nodes.matchLabels.gpus: must be text, found true; put it in quotes: without them "
            "YAML takes yes, no, on, off, y and n for true or false"
        ],
    ),
    "wrong type with two right ones": (
        [("context: {default: 1Gi}", "context: {default: [1Gi]}")],
        ["p.yaml:28: spec.memory.context.default: must be text or a whole number, found a list"],
    ),
    "misspelt in a pool, and what depends on it": (
        [("      sharing: none\n", "      shareing: none\n      maxRequest: 8\n")],
        [
            "p.yaml:19: spec.pools[1]: sharing is missing",
            "p.yaml:20: spec.pools[1].shareing: unknown key, did you mean sharing?",
        ],
    ),
    "unknown sharing, and what depends on it": (
        [("      sharing: none\n", "      sharing: nome\n      maxRequest: 8\n")],
        ['p.yaml:20: spec.pools[1].sharing: must be one of time-slicing, mps, mig, none, found "nome"'],
    ),
    "missing in a pool": (
        [("      sharing: none\n", "")],
        ["p.yaml:19: spec.pools[1]: sharing is missing"],
    ),
    "empty list": (
        [("      trust: [trusted]\n", "      trust: []\n")],
        ["p.yaml:13: spec.pools[0].trust: must not be empty"],
    ),
    "empty name": (
        [("  name: small\n", "  name: ''\n")],
        ["p.yaml:4: metadata.name: must not be empty"],
    ),
    "grant to nobody": (
        [("      - namespaces: [team-a]\n", "      - serviceAccounts: [a]\n")],
        ["p.yaml:9: spec.trust.grants[0]: one of namespaces, namespaceSelector, rbac is needed"],
    ),
    "grant by RBAC or not": (
        [("      - namespaces: [team-a]\n", '      - rbac: "yes"\n')],
        ['p.yaml:9: spec.trust.grants[0].rbac: must be true, found "yes"'],
    ),
    "grant to everybody": (
        [("      - namespaces: [team-a]\n", "      - namespaceSelector: {matchLabels: {}}\n")],
        ["p.yaml:9: spec.trust.grants[0].namespaceSelector: is empty, and would cover every namespace; name labels"],
    ),
    "override of nothing": (
        [("  rules:\n", "  overrides:\n    - rules: {multiple-slices: Warn}\n  rules:\n")],
        ["p.yaml:32: spec.overrides[0]: one of namespaces, namespaceSelector, pools is needed"],
    ),
    "override in a pool that is none": (
        [("  rules:\n", "  overrides:\n    - {pools: [shard], rules: {multiple-slices: Warn}}\n  rules:\n")],
        ["p.yaml:32: spec.overrides[0].pools[0]: unknown pool, did you mean shared?"],
    ),
    "override of a rule that is none": (
        [("  rules:\n", "  overrides:\n    - {namespaces: [a], rules: {multiple-slice: Warn}}\n  rules:\n")],
        ["p.yaml:32: spec.overrides[0].rules.multiple-slice: unknown rule, did you mean multiple-slices?"],
    ),
    "exemption without an end": (
        [("  rules:\n", "  exemptions:\n    - {name: a, reason: b, namespaces: [c]}\n  rules:\n")],
        ["p.yaml:32: spec.exemptions[0]: one of until, system is needed"],
    ),
    "exemption of everybody": (
        [
            (
                "  rules:\n",
                "  exemptions:\n    - {name: a, reason: b, until: 2027-01-01, namespaceSelector: {}}\n  rules:\n",
            )
        ],
        ["p.yaml:32: spec.exemptions[0].namespaceSelector: must not be empty"],
    ),
    "exemption until a day that is none": (
        [("  rules:\n", "  exemptions:\n    - {name: a, reason: b, until: 2027-02-30, namespaces: [c]}\n  rules:\n")],
        ['p.yaml:32: spec.exemptions[0].until: is not a day of the calendar: "2027-02-30"'],
    ),
    "administrators who are nobody": (
        [("  rules:\n", "  administrators: {}\n  rules:\n")],
        ["p.yaml:31: spec.administrators: must not be empty"],
    ),
    "pool of all nodes": (
        [("        matchLabels: {gpus: shared}\n", "        matchLabels: {}\n")],
        [
            "p.yaml:14: spec.pools[0].nodes: is empty, and would match every node; name labels",
            'p.yaml:22: spec.pools[1].nodes: pool "whole" overlaps pool "shared": a node could match both; '
            "give them different values of one label, or exclude one's label from the other with NotIn",
        ],
    ),
    "annotation that is no key": (
        [("    default: untrusted\n", "    default: untrusted\n    annotation: a b/c\n")],
        ['p.yaml:8: spec.trust.annotation: must be a label key: name or domain/name, found "a b/c"'],
    ),
    "label that no node can have": (
        [("        matchLabels: {gpus: shared}\n", "        matchLabels: {'bad key': yes please}\n")],
        [
            "p.yaml:15: spec.pools[0].nodes.matchLabels[bad key]: must be a label key: name or domain/name",
            "p.yaml:15: spec.pools[0].nodes.matchLabels[bad key]: must be a label value: letters, digits, "
            '- _ and . between them, at most 63, found "yes please"',
        ],
    ),
    "namespaces by wildcard": (
        [("[team-a]", "['*']")],
        ['p.yaml:9: spec.trust.grants[0].namespaces[0]: must be a name of lower-case letters, digits and -, found "*"'],
    ),
    "resource by a wildcard of its own": (
        [("      resources: [nvidia.com/gpu]\n      maxRequest", "      resources: ['mig*']\n      maxRequest")],
        [
            "p.yaml:16: spec.pools[0].resources[0]: must be a resource name: domain/name, "
            'with * only at its end, found "mig*"'
        ],
    ),
    "toleration of a value by its existence": (
        [("      maxRequest: 1\n", "      tolerations: [{key: a, operator: Exists, value: b}]\n")],
        ['p.yaml:17: spec.pools[0].tolerations[0].value: must be "", found "b"'],
    ),
    "toleration for a time of what evicts nobody": (
        [("      maxRequest: 1\n", "      tolerations: [{key: a, effect: NoSchedule, tolerationSeconds: 3}]\n")],
        ['p.yaml:17: spec.pools[0].tolerations[0].effect: must be "NoExecute", found "NoSchedule"'],
    ),
    "operator misspelt": (
        [("operator: In,", "operator: in,")],
        [
            "p.yaml:24: spec.pools[1].nodes.matchExpressions[0].operator: must be one of In, NotIn, Exists, "
            'DoesNotExist, found "in"'
        ],
    ),
    "more than one of a shared GPU": (
        [("      maxRequest: 1\n", "      maxRequest: 2\n")],
        ["p.yaml:17: spec.pools[0].maxRequest: must be 1, found 2"],
    ),
    "another version": (
        [("v1alpha1", "v9")],
        ['p.yaml:1: apiVersion: must be "slicewarden.dev/v1alpha1", found "slicewarden.dev/v9"'],
    ),
    "bad quantity": (
        [("default: 1Gi", "default: 1GB")],
        ['p.yaml:28: spec.memory.context.default: must be a quantity of memory such as 512Mi, found "1GB"'],
    ),
    "quantity of nothing": (
        [("memory: 15360Mi", "memory: 15360")],
        ["p.yaml:18: spec.pools[0].assume.memory: must be at least 1Mi, found 15360, a quantity in bytes"],
    ),
    "pool that contradicts itself": (
        [("values: [whole]}\n", "values: [whole]}\n          - {key: gpus, operator: DoesNotExist}\n")],
        ["p.yaml:22: spec.pools[1].nodes: no node can match: gpus contradicts itself"],
    ),
    "two pools of one name": (
        [("    - name: whole\n", "    - name: shared\n")],
        ['p.yaml:19: spec.pools[1].name: a second pool named "shared"'],
    ),
    "pools that overlap": (
        [("values: [whole]", "values: [whole, shared]")],
        [
            'p.yaml:22: spec.pools[1].nodes: pool "whole" overlaps pool "shared": a node could match both; '
            "give them different values of one label, or exclude one's label from the other with NotIn"
        ],
    ),
    "several errors": (
        [
            ("      trust: [trusted]\n", "      trust: trusted\n"),
            ("    default: untrusted\n", "    default: maybe\n"),
            ("    multiple-slices: Warn\n", "    multiple-slice: Warn\n"),
            ("      sharing: none\n", ""),
        ],
        [
            'p.yaml:7: spec.trust.default: must be one of trusted, untrusted, found "maybe"',
            'p.yaml:13: spec.pools[0].trust: must be a list, found "trusted"',
            "p.yaml:19: spec.pools[1]: sharing is missing",
            "p.yaml:31: spec.rules.multiple-slice: unknown rule, did you mean multiple-slices?",
        ],
    ),
    "several errors of meaning": (
        [
            ("    - name: whole\n", "    - name: shared\n"),
            ("values: [whole]", "values: [shared]"),
            ("default: 1Gi", "default: much"),
            ("memory: 15360Mi", "memory: 512KB"),
        ],
        [
            'p.yaml:18: spec.pools[0].assume.memory: must be a quantity of memory such as 512Mi, found "512KB"',
            'p.yaml:19: spec.pools[1].name: a second pool named "shared"',
            'p.yaml:22: spec.pools[1].nodes: pool "shared" overlaps pool "shared": a node could match both; '
            "give them different values of one label, or exclude one's label from the other with NotIn",
            'p.yaml:28: spec.memory.context.default: must be a quantity of memory such as 512Mi, found "much"',
        ],
    ),
}


KINDS: list[Any] = [None, [], {}, 0, True, "text"]
WRONG: list[tuple[str, Any]] = [
    (key, value)
    for key in ("metadata", "spec", "trust", "pools", "memory", "sharing", "rules", "nodes", "assume")
    for value in KINDS
    if value != {} or key not in ("trust", "memory", "sharing", "rules")  # which may be empty
]


def with_wrong(key: str, value: Any) -> dict[str, Any]:
    """Return the small policy with a value of a wrong type under a key."""
    document: dict[str, Any] = yaml.safe_load(SMALL)
    place = document["spec"]["pools"][0] if key in ("nodes", "assume") else document["spec"]
    place = document if key in ("metadata", "spec") else place
    place[key] = value
    return document


REQUIRED = ("metadata", "spec", "pools", "nodes")
"""Keys of the small policy that have to have a value. An API server takes null for any other key that is not there."""


def unusable() -> Iterator[tuple[str, Any, list[str]]]:
    """Yield each unusable policy: its name, the object, and its messages; none for a value of a wrong type."""
    for name, (edits, messages) in ERRORS.items():
        (document,), _ = read(edited(*edits), "p.yaml")
        yield name, document.value, messages
    for key, value in WRONG:
        yield f"{key}-{value}", with_wrong(key, value), []


NULLS = frozenset(f"{key}-None" for key, value in WRONG if value is None and key not in REQUIRED)
"""The names of those that are the small policy without a key, as an API server reads them."""
