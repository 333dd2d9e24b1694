"""Node selections and nodes, numbers and quantities, as tenants may write them and as Kubernetes reads them."""

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from tests.oracles.programs import Oracle
from webhook.api import admission, quantity
from webhook.api.jsonpatch import apply
from webhook.api.objects import unpaid
from webhook.api.pods import Pod
from webhook.api.selectors import Selector, integer
from webhook.engine.engine import Engine
from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.gpu.placement import clash
from webhook.gpu.selection import Selection
from webhook.policy.model import Policy, Pool
from webhook.policy.resources import ResourceNames
from webhook.rules import walk

# What is said

DIGITS = ("0", "1", "5", "007", "00000000000000000000000000000005", "15360", "020000", "9223372036854775807")
ODD = ("-1", "-0", "+5", "-9223372036854775808", "9223372036854775808", "-9223372036854775809", "1_0", "0x10", "0b1")
STRANGE = (
    "",
    " ",
    "5 ",
    " 5",
    "\u0665",
    "\uff15",
    "5.0",
    "1e3",
    "1e0",
    "--1",
    "+",
    "-",
    "five",
    "a",
    "true",
    "5\n",
    "\x00",
    "\u00b2",
)
LONG = ("0" * 62 + "5", "0" * 63 + "5", "9" * 63, "a" * 64, "0" * 500 + "7")
VALUES = st.one_of(st.sampled_from(("a", "b", *DIGITS)), st.sampled_from(DIGITS + ODD), st.sampled_from(STRANGE + LONG))
KEYS = (
    "k",
    "k",
    "j",
    "example.com/k",
    "metadata.name",
    "nvidia.com/gpu.memory",
    "",
    "-",
    "a/b/c",
    "A.b/c",
    "k ",
    "a" * 64,
    "x" * 254 + "/k",
)
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gt", "Lt", "in", "", "Equals")
NAMES = ("n1", "n2")


def _requirement(keys: st.SearchStrategy[str], values: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    sizes = st.sampled_from((1, 1, 1, 1, 0, 2))
    lists = sizes.flatmap(lambda size: st.lists(values, min_size=size, max_size=size, unique=True))
    said = st.fixed_dictionaries({"key": keys, "operator": st.sampled_from(OPERATORS), "values": lists})
    return said.map(lambda one: {**one, "values": []} if "Exist" in one["operator"] and len(one["values"]) < 2 else one)


EXPRESSIONS = st.lists(_requirement(st.one_of(st.just("k"), st.sampled_from(KEYS)), VALUES), max_size=2)
FIELDS = st.lists(
    _requirement(st.sampled_from(("metadata.name", "metadata.name", "spec.x")), st.sampled_from((*NAMES, "n3", ""))),
    max_size=1,
)
TERMS = st.fixed_dictionaries({}, optional={"matchExpressions": EXPRESSIONS, "matchFields": FIELDS})
LABELS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3)
NODES = st.lists(st.tuples(st.sampled_from(NAMES), LABELS), min_size=1, max_size=3)
POD_LABELS = st.one_of(st.just({}), st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=1))

SHARING, REPLICAS, PRODUCT = ("nvidia.com/gpu.sharing-strategy", "nvidia.com/gpu.replicas", "nvidia.com/gpu.product")
POOL_LABELS = {SHARING: ("none", "time-slicing", "mps"), REPLICAS: ("0", "1", "4", "00"), PRODUCT: ("Tesla-T4", "A10")}


@st.composite
def selections(draw: st.DrawFn) -> dict[str, Any]:
    """A node selection, and nodes with a name and labels."""
    terms = draw(st.one_of(st.none(), st.lists(TERMS, max_size=3)))
    return {"pod": pod(draw(POD_LABELS), terms), "nodes": [named(*each) for each in draw(NODES)]}


@st.composite
def steered(draw: st.DrawFn) -> dict[str, Any]:
    """The same over the labels by which the sample policy tells its pools apart."""
    keys = st.sampled_from((*POOL_LABELS, "k"))
    values = st.sampled_from((*(value for each in POOL_LABELS.values() for value in each), "2", "-1"))
    expressions = st.lists(_requirement(keys, values), max_size=2)
    term = st.fixed_dictionaries({}, optional={"matchExpressions": expressions, "matchFields": FIELDS})
    labels = st.fixed_dictionaries({}, optional={key: st.sampled_from(each) for key, each in POOL_LABELS.items()})
    terms = draw(st.one_of(st.none(), st.lists(term, min_size=1, max_size=2)))
    asking = pod(draw(st.one_of(st.just({}), labels)), terms)
    asking["metadata"] = {"name": "any", "namespace": draw(st.sampled_from(("vision", "visitors")))}
    if draw(st.booleans()):
        asking["metadata"]["annotations"] = {"slicewarden.dev/trust": "trusted"}
    asking["spec"]["containers"] = [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    names = st.sampled_from(NAMES)
    return {"pod": asking, "nodes": [named(draw(names), draw(labels)) for _ in range(4)]}


def pod(labels: dict[str, str], terms: list[dict[str, Any]] | None) -> dict[str, Any]:
    """A pod with this node selector and these required terms."""
    spec: dict[str, Any] = {"containers": [], "nodeSelector": labels}
    if terms is not None:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "any", "namespace": "vision"}, "spec": spec}


def named(name: str, labels: dict[str, str]) -> dict[str, Any]:
    """A node."""
    return {"metadata": {"name": name, "labels": labels}}


_NUMERALS = st.one_of(
    VALUES,
    st.text("0123456789", max_size=25),
    st.builds("{}{}{}".format, st.sampled_from(("", "-", "+")), st.text("0", max_size=80), st.integers(0, 2**64)),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
)


def numbers() -> st.SearchStrategy[str]:
    """Texts, most of them numbers in some eyes."""
    return _NUMERALS


def quantities() -> st.SearchStrategy[str]:
    """Texts, most of them quantities in some eyes."""
    suffix = st.one_of(
        st.sampled_from(
            ("", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "K", "i", "e")
        ),
        st.builds(
            "{}{}".format,
            st.sampled_from(("e", "E", "e+", "E-", "e-")),
            st.sampled_from(("", "0", "3", "007", "18", "30")),
        ),
    )
    digits = st.text("0123456789", max_size=22)
    zeros = st.sampled_from(("", "", "0", "0" * 50))
    return st.one_of(
        st.builds("{}{}{}{}".format, st.sampled_from(("", "", "", "-", "+")), zeros, digits, suffix),
        st.builds("{}{}.{}{}{}".format, st.sampled_from(("", "-")), digits, digits, zeros, suffix),
        st.text("0123456789.+-eEkKmMiIn ", max_size=8),
        _NUMERALS,
    )


# What is compared

EVERYWHERE = Pool("any", "none", frozenset(), Selector({}), ResourceNames((), shares=False))


def read(item: dict[str, Any], policy: Policy) -> Pod:
    """The pod as rules see it."""
    (found,) = unpaid(admission.decode(admission.wrap(item)), item, workloads=policy.workloads)
    assert isinstance(found, Pod)
    return found


def differing_nodes(oracle: Oracle, policy: Policy, asked: dict[str, Any]) -> list[tuple[dict[str, Any], bool]]:
    """Nodes on which the scheduler and the reading of a pod's selection differ, with what the scheduler says."""
    selection = Selection.of(read(asked["pod"], policy), EVERYWHERE)
    return [
        (node, matches)
        for node, matches in zip(asked["nodes"], oracle.ask(asked), strict=True)
        if selection.allows(Node(node["metadata"]["name"], node["metadata"]["labels"])) != matches
    ]


def astray(oracle: Oracle, judge: Engine, asked: dict[str, Any], facts: Facts) -> list[dict[str, Any]]:
    """Nodes on which the scheduler would put a pod after it was steered to a pool that they are not of."""
    patched = apply(asked["pod"], judge.mutate(admission.decode(admission.wrap(asked["pod"])), facts).patch)
    if judge.validate(admission.decode(admission.wrap(patched)), facts).results:
        return []
    matches = oracle.ask({"pod": patched, "nodes": asked["nodes"]})
    landing = [node for node, match in zip(asked["nodes"], matches, strict=True) if match]
    pools = [
        {pool.name for pool in judge.policy.pools if pool.nodes.matches(each["metadata"]["labels"])} for each in landing
    ]
    return landing if len({frozenset(each) for each in pools}) > 1 or set() in pools else []


def wrong_clashes(oracle: Oracle, policy: Policy, asked: dict[str, Any]) -> Iterator[str]:
    """Pools of which a pod's own selection is said to exclude every node, and does not."""
    own = read(asked["pod"], policy)
    for node, matches in zip(asked["nodes"], oracle.ask(asked), strict=True):
        if matches:
            fitting = (pool for pool in policy.pools if pool.nodes.matches(node["metadata"]["labels"]))
            yield from (pool.name for pool in fitting if clash(own, pool) is not None)


def steering(policy: Policy) -> Engine:
    """The one rule that steers."""
    return Engine(policy, [rule for rule in walk() if rule.id == "unsteered-pod"])


def number(text: str) -> str | None:
    """How a number is read here, in digits."""
    value = integer(text)
    return None if value is None else str(value)


LARGEST = 2**63 - 1
"""The most that a quantity counts here; Kubernetes goes on for some, and then counts no further either."""


def amount(text: str) -> Fraction | None:
    """How a quantity is read here."""
    try:
        return Fraction(quantity.parse(text))
    except ValueError:
        return None


_NOT_READ = re.compile(
    r"[-+]?\.?(?:[^0-9.].*)?|.*(?:[1-9][0-9]{40,}|[0-9]{40,}[1-9]|[eE][-+]?0*[1-9][0-9]{3,}).*", re.DOTALL
)


def not_read(text: str) -> bool:
    """Tell whether a quantity is refused on purpose: without a digit before its suffix, or of enormous length."""
    return _NOT_READ.fullmatch(text) is not None


def kubernetes_amount(answer: str | None) -> Fraction | None:
    """The same by Kubernetes' answer."""
    if answer is None:
        return None
    enormous = len(answer.partition(".")[0]) > 30
    return Fraction(-LARGEST if answer[0] == "-" else LARGEST) if enormous else _counted(Fraction(answer))


def _counted(value: Fraction) -> Fraction:
    return max(min(value, Fraction(LARGEST)), Fraction(-LARGEST))
