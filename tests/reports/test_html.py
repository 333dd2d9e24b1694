"""The text of the HTML reports: what it holds, that it is escaped, and that it grows as its findings do.

tests/browser opens the same pages in a browser.
"""

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cost import calls
from webhook import rules
from webhook.facts.snapshot import Facts
from webhook.fallback.answers import ValidationActions
from webhook.fallback.policies import fallback
from webhook.fallback.status import standing
from webhook.memory.budget import Budget
from webhook.memory.explain import Landing
from webhook.model import Action, Finding, Problem, Result, Verdict
from webhook.policy.model import Policy
from webhook.reports.formats import html
from webhook.reports.formats.table import by_owner
from webhook.scan.audit import Audited, RootOwner
from webhook.scan.results import GroupKind, Judged, Report, Unjudged
from webhook.scan.sharing import Amount, NodeUse, PoolUse, overview
from webhook.text.terminal import PLAIN


def judged(text: str, action: Action = Action.DENY, namespace: str = "vision", exemption: str = "") -> Judged:
    result = Result("device-path", action, Finding(("metadata", text), f"{text} is wrong"), exemption)
    return Judged(f"{text}.yaml", 1, 0, "v1", "Pod", namespace, text, Verdict((result,)), (7,), (), f"+ {text}")


class Reader(HTMLParser):
    """The names of the elements and attributes of a page, its text, and the addresses that it names."""

    VOID = frozenset(("meta", "link", "input", "rect"))

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.addresses: set[str] = set()
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.addresses |= {str(value) for name, value in attrs if name in ("href", "src", "action")}
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def page(sample_policy: Policy, sample_facts: Facts) -> Reader:
    found = (
        judged("one"),
        judged("two", Action.WARN, "lab"),
        judged("three", Action.AUDIT, "lab", exemption="moving"),
        replace(judged("node"), kind="Node", namespace=""),
    )
    report = Report(
        found,
        (Problem("broken.yaml", 3, "not YAML"),),
        policy=sample_policy,
        unjudged=(Unjudged(GroupKind("", "Service"), 2),),
        pools=overview(sample_policy, sample_facts),
    )
    return Reader(html.render(report))


def test_a_page_is_well_formed_and_names_no_address(page: Reader) -> None:
    assert page.open == []
    assert {address for address in page.addresses if not address.startswith("#")} == {"data:,"}
    assert not {name for name in page.attributes if name.startswith("on") or name == "style"}


@pytest.mark.parametrize(
    "words",
    [
        "policysample {digest}",
        "4 objects",
        "2 denied",
        "Namespace vision",
        "The whole cluster",
        "one is wrong",
        "exempted by moving",
        "broken.yaml:3: not YAML",
        "2 objects are of kinds that are not judged: Service",
        "Way out:",
        "15360 MiB: 308 MiB reserve, and 4 slices of 512 MiB context and 3251 MiB cap (0.211 of the GPU)",
        "0 of 4 in use",
    ],
)
def test_a_page_shows_the_expected_words(page: Reader, words: str, sample_policy: Policy) -> None:
    squeezed = " ".join(page.text.replace("</dt>", "").split()).replace("policy sample", "policysample")
    assert words.format(digest=sample_policy.digest) in squeezed


def pool(name: str, sharing: str, *nodes: NodeUse) -> PoolUse:
    return PoolUse(name, sharing, ("trusted",), ("nvidia.com/gpu",), nodes)


def node(name: str, gpus: int | None, held: int, offered: int) -> NodeUse:
    pods = {"lab": tuple(f"{name}-{number}" for number in range(held))} if held else {}
    return NodeUse(name, "T4", gpus, (Amount("nvidia.com/gpu", held, offered),), pods)


def headlines(text: str) -> dict[str, int]:
    """The numbers at the head of a page, by their words."""
    found = re.findall(r"<li class=\"\w*\"><strong>(?:at least )?([\d,]+)</strong> ([^<]+)</li>", text)
    return {words: int(number.replace(",", "")) for number, words in found}


def test_the_headline_counts_cards_by_how_they_are_shared_and_what_is_held() -> None:
    pools = (
        pool("t4", "time-slicing", node("a", 2, 3, 8), node("b", None, 0, 4)),
        pool("a100", "none", node("c", 8, 0, 8)),
        pool("mig", "mig", node("d", 1, 5, 7)),
        pool("", "", node("e", 4, 9, 4)),
    )
    text = html.render(Report((), pools=pools))
    shown = headlines(text)
    cards = {"cards": 15, "shared": 2, "whole": 8, "split by MIG": 1, "in no pool": 4}
    assert {words: shown[words] for words in cards} == cards
    assert (shown["of 31 GPUs and slices held"], shown["idle"]) == (17, 5 + 4 + 8 + 2)
    assert "The cards of 1 node are not known." in text
    assert [text.count(f"at least {number}<") for number in (15, 2, 8, 1, 4)] == [1, 2, 0, 0, 0]
    assert "at least" not in html.render(Report((), pools=pools[1:]))
    assert "<strong>at least 0</strong> cards" in html.render(
        Report((), pools=(pool("a", "none", node("b", None, 0, 4)),))
    )
    assert [text.count(f"{number} idle node") for number in (1, 2)] == [2, 0]
    assert text.index("of 31 GPUs") < text.index("idle node")


def landing(cap: Budget | None = None, *, waits: bool = False) -> Landing:
    return Landing(("spec",), "t4", (), "", "trusted", {}, "", cap, waits=waits)


def test_the_headline_counts_what_enforcing_would_do(sample_policy: Policy, sample_facts: Facts) -> None:
    cap = next(division.budget for pool in overview(sample_policy, sample_facts) for division in pool.divisions)
    steer = {"op": "add", "path": "/spec/template/spec/nodeSelector", "value": {}}
    write = {"op": "add", "path": "/spec/containers/0/env", "value": []}
    plain = replace(judged("a"), verdict=Verdict(), lines=(), kind="Pod")
    found = (
        judged("refused"),
        replace(judged("refused too"), landings=(landing(waits=True),)),
        replace(plain, name="steered", verdict=Verdict((), (steer,)), landings=(landing(),)),
        replace(plain, name="capped", verdict=Verdict((), (steer, write)), landings=(landing(cap),)),
        replace(plain, name="capped before", landings=(landing(cap),)),
        replace(plain, name="waiting", landings=(landing(waits=True),)),
        replace(plain, name="workload", kind="Deployment", landings=(landing(cap),)),
    )
    shown = headlines(html.render(Report(found)))
    effects = {"refused": 2, "steered to a pool": 3, "with capped memory": 2, "waiting for a node": 1}
    assert {words: shown[words] for words in effects} == effects


def test_denials_come_first_and_what_is_allowed_is_folded() -> None:
    found = (
        judged("falco", Action.AUDIT, "agents", exemption="falco"),
        judged("late", Action.DENY, "zoo"),
        judged("fine", Action.AUDIT, "zoo"),
        judged("careful", Action.WARN, "lab"),
    )
    text = html.render(Report(found, pools=()))
    places = [text.index(f"{name} is wrong") for name in ("late", "fine", "careful", "falco")]
    assert places == sorted(places)
    assert places[-1] < text.index('id="totals"') < text.index('id="pools"')
    assert [*re.findall(r'<details class="namespace"( open)?>', text)] == [" open", " open", ""]
    assert text.index('<details class="rest">') < places[1]


def test_an_object_of_a_cluster_has_the_command_that_shows_it_and_no_line() -> None:
    served = replace(judged("web"), kind="Deployment", api_version="apps/v1", live=True)
    text = html.render(Report((served, replace(judged("it's"), kind="Node", namespace="", live=True))))
    assert "kubectl --namespace vision get deployment.apps/web --output yaml" in text
    assert "kubectl get &#39;node/it&#39;&#34;&#39;&#34;&#39;s&#39; --output yaml" in text
    assert "web.yaml" not in text
    assert "line 7" not in text
    assert "kubectl" not in html.render(Report((judged("web"),)))


def test_pods_are_shown_with_their_workload() -> None:
    owner = replace(judged("web"), kind="Deployment", api_version="apps/v1")
    pods = tuple(replace(judged("web"), name=f"web-{number}", owner=("Deployment", "web")) for number in range(3))
    other = replace(judged("other"), owner=("Deployment", "web"))
    text = html.render(Report((owner, *pods, other)))
    assert "3 pods of it with no other findings" in text
    assert "web-1" not in text
    assert "other is wrong" in text
    assert (headlines(text)["refused"], headlines(text)["denied"]) == (2, 5)


def test_pods_that_differ_in_which_pool_is_full_are_shown_with_their_workload() -> None:
    def having(name: str, message: str, kind: str = "Pod") -> Judged:
        result = Result("visible-devices", Action.DENY, Finding(("spec",), message))
        owner = ("DaemonSet", "agent") if kind == "Pod" else ("", "")
        return replace(judged(name), kind=kind, owner=owner, verdict=Verdict((result,)))

    full = "request GPUs (all 8 GPUs of pool b200-whole are in use now)"
    agent = having("agent", f"remove it, and {full}; exempt it", "DaemonSet")
    pods = [
        having("a", "remove it, and request GPUs"),
        having("b", "remove it, and request GPUs (the only GPU of pool x is in use now)"),
    ]
    odd = having("c", "remove it, and request GPUs (all are in use now)")
    assert [*by_owner(Report((agent, *pods, odd))).values()] == [pods]


def test_the_page_of_an_audit_says_what_the_fallback_holds_and_what_of_it_is_not_current(sample_policy: Policy) -> None:
    made = fallback(sample_policy, rules.walk(), ValidationActions.BY_RULE)
    for found, said in (
        ([], "fallback: none that the API shows; if the registration is removed, nothing enforces the policy"),
        (made, "fallback: current, actions: ByRule"),
        (made, "records multiple-slices"),
        (made[:-1], "its binding is missing, so it is not in force"),
    ):
        report = Report((), fallback=standing(sample_policy, rules.walk(), found))
        assert said in Reader(html.audit(report, PLAIN, 0)).text
    assert "fallback" not in Reader(html.audit(Report(()), PLAIN, 0)).text


def test_style_and_script_are_those_that_the_policy_of_the_page_names() -> None:
    text = html.render(Report(()))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    for name in ("style", "script"):
        inside = re.findall(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
        (digest,) = (base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in inside)
        assert f"{name}-src &#39;sha256-{digest}&#39;" in policy[1]
    assert policy[1].startswith("default-src &#39;none&#39;")


@given(st.text(st.characters(codec=None), min_size=1))
def test_no_text_becomes_an_element_or_an_attribute(text: str) -> None:
    plain = Reader(html.render(Report((judged("x"),), (Problem("x", 1, "x"),))))
    other = Reader(html.render(Report((judged(text, namespace=text),), (Problem(text, 1, text),))))
    assert (other.names, other.attributes, other.addresses) == (plain.names, plain.attributes, plain.addresses)
    assert other.open == []
    assert all(c.isprintable() or c == "\n" for c in other.text)


def test_a_bar_fills_the_gpu_and_no_more(sample_policy: Policy, sample_facts: Facts) -> None:
    for pool in overview(sample_policy, sample_facts):
        for division in pool.divisions:
            segments = html.bar(division).segments
            assert len(segments) == 1 + 2 * division.budget.card.replicas
            ends = [segment.start + segment.width for segment in segments]
            assert [segment.start for segment in segments[1:]] == pytest.approx(ends[:-1])
            assert 990 < ends[-1] <= 1000.001


def test_many_nodes_are_counted_and_the_first_named(sample_policy: Policy, sample_facts: Facts) -> None:
    node = sample_facts.named["t4-shared"]
    facts = Facts(nodes=tuple(replace(node, name=f"node-{n:04}") for n in range(html.MOST + 20)))
    text = html.render(Report((), pools=overview(sample_policy, facts)))
    assert "And 20 more nodes." in text
    assert f"node-{html.MOST:04}" not in text


def test_the_cost_of_a_page_grows_linearly_with_its_findings() -> None:
    def cost(count: int) -> int:
        report = Report(tuple(judged(f"pod-{n}", namespace=f"team-{n % 10}") for n in range(count)))
        return calls(lambda: html.render(report))

    first, second, third = map(cost, (100, 200, 300))
    assert third - second <= 1.05 * (second - first)


def test_a_part_of_a_live_page_shows_the_worst_objects_of_each_namespace(sample_policy: Policy) -> None:
    """A tenant who makes thousands of workloads hides none of another namespace, and does not stop the browser."""

    def audited(namespace: str, name: str, action: Action) -> Audited:
        verdict = Verdict((Result("multiple-slices", action, Finding(("spec",), f"of {name}"), ""),))
        owner = RootOwner("apps/v1", "Deployment", namespace, name)
        return Audited("", 0, 0, "v1", "Pod", namespace, name, verdict, (0,), source=owner)

    flood = [audited("a", f"warned-{number}", Action.WARN) for number in range(3000)]
    judged = (*flood, audited("a", "denied", Action.DENY), audited("b", "other", Action.WARN))
    text = html.audit_fragment(Report(judged, policy=sample_policy), 3002)
    assert text.count('class="entry"') == html.MOST_HERE + 1
    assert "of denied" in text
    assert "of other" in text
    assert "2,951 more workloads" in text
    assert ">1</strong> workloads would be denied" in text
    many = [audited(f"team-{number}", "other", Action.WARN) for number in range(html.MOST_TOGETHER + 5)]
    text = html.audit_fragment(Report((*many, judged[-2]), policy=sample_policy), len(many) + 1)
    assert text.count('class="entry"') == html.MOST_TOGETHER
    assert "of denied" in text
    assert "6 more workloads" in text
