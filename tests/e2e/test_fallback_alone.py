"""The fallback with nobody beside it: no webhook answers, and an administrator deleted its registration by mistake."""

import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import ROOT
from tests.e2e import control_plane, offered
from tests.e2e.control_plane import Cluster, eventually
from tests.e2e.objects import NODE_FEATURES, TRUSTED, Object, pod
from tests.e2e.sending import Sender
from tests.evaluator.evaluator import Evaluator, request_for, running
from tests.support.fixtures import files_of, fixture, settings
from tests.support.go_programs import Missing
from tests.support.policies import POLICY, policy_of
from webhook.api import admission, jsonpatch
from webhook.cluster.registered import POLICIES as PLURALS
from webhook.engine.engine import Engine
from webhook.engine.registration import NAME, configurations
from webhook.facts.snapshot import Facts
from webhook.fallback import current
from webhook.fallback.params import Params, data
from webhook.fallback.policies import fallback
from webhook.policy.scopes import Grant, Scope
from webhook.rules import Rule, walk

pytestmark = pytest.mark.needs(offered.FALLBACK)

FLAGS = ("--disable-admission-plugins=ServiceAccount,RuntimeClass,DefaultTolerationSeconds,Priority",)
"""No controllers are here to make what these ask for, and an object is stored as a fixture has it."""
EXACT = [rule for rule in walk() if rule.fallback is not None and (rule.fallback.__doc__ or "").startswith("Exact")]
PASSED = {
    *json.loads((ROOT / "tests" / "evaluator" / "missed.json").read_text("utf-8"))["let pass"],
    "unguarded-container/patch-chosen-node",  # a fallback knows no node
}
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
GROUPS = ("", "resource.k8s.io", NODE_FEATURES["spec"]["group"])
POLICIES = {kind: plural for plural, kind in PLURALS.items()}
BY_FALLBACK = "ValidatingAdmissionPolicy 'slicewarden-"
EVERYBODY = {"kind": "Group", "name": "system:authenticated", "apiGroup": "rbac.authorization.k8s.io"}
SHARED = {"nvidia.com/gpu.sharing-strategy": "time-slicing"}
"""Labels of a node of the sample policy's shared pool, which no tenant may create."""


class Case(NamedTuple):
    """A fixture's request."""

    name: str
    request: Object


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    try:
        with running() as found:
            yield found
    except Missing as missing:
        pytest.exit(str(missing), returncode=2)


@pytest.fixture(scope="module")
def alone(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server at which everybody may do everything by RBAC."""
    with control_plane.serving(tmp_path_factory.mktemp("alone"), programs, flags=FLAGS) as cluster:
        cluster.wait_until("namespaces are there", lambda: cluster.kubectl("get", "ns", "kube-system").returncode == 0)
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        binding = {"metadata": {"name": "everybody"}, "roleRef": role, "subjects": [EVERYBODY]}
        authorization = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}
        assert cluster.apply({**authorization, **binding}).returncode == 0
        assert cluster.apply(NODE_FEATURES).returncode == 0
        yield cluster


@pytest.fixture(scope="module")
def sender(alone: Cluster) -> Iterator[Sender]:
    with closing(Sender(alone)) as found:
        yield found


def cases(rule: Rule, evaluator: Evaluator) -> Iterator[Case]:
    """The fixtures of a rule that are denied, as /mutate leaves them, and those that it would mend, as they came.

    Workloads are left out: the fallback meets them by their pods.
    """
    policy, facts = settings(rule.id)
    engine = Engine(policy, walk())
    for number, file in enumerate(files_of(rule.id)):
        request = request_for(fixture(file)[0].value)
        if not file.stem.startswith(("deny", "patch")) or request["resource"]["group"] not in GROUPS:
            continue
        settled = evaluator.settled(named(request, f"{rule.id}-{number}"))
        if settled is None:
            continue
        review = {"apiVersion": admission.API_VERSION, "kind": "AdmissionReview", "request": settled}
        verdict = engine.judge(admission.decode(json.dumps(review).encode()), facts)
        patches = file.stem.startswith("patch")
        assert patches or not verdict.allowed, file
        if verdict.patch and settled["operation"] == "CREATE" and not patches:
            settled = {**settled, "object": jsonpatch.apply(settled["object"], verdict.patch)}
        yield Case(f"{rule.id}/{file.stem}", settled)


def named(request: Object, name: str) -> Object:
    """Give the object a name of its own, so that each can be stored; a class is known by its name."""
    kind, before = request["kind"]["kind"], request["object"]["metadata"]["name"]
    if kind not in ("Pod", "Binding", "Node", "Namespace"):
        return request
    for item in filter(None, (request["object"], request.get("oldObject"))):
        item["metadata"].pop("generateName", None)
        item["metadata"]["name"] = name
    user = request["userInfo"]
    if user.get("username") == f"system:node:{before}":
        user = {**user, "username": f"system:node:{name}"}
    return {**request, "name": name, "userInfo": user, **({"namespace": name} if kind == "Namespace" else {})}


KEPT = ("name", "namespace", "labels", "annotations", "ownerReferences")
"""The parts of an object's metadata that its author writes."""


def prepare(sender: Sender, found: list[Case], namespaces: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Store the namespaces, and what is changed or bound; return the cases of which the API server refused it."""
    spaces = {case.request["namespace"] for case in found if case.request["kind"]["kind"] != "Namespace"} - {""}
    for name in {*namespaces, *spaces}:
        sender.send("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        _, stored = sender.send("GET", f"/api/v1/namespaces/{name}")
        stored["metadata"]["labels"] = {"kubernetes.io/metadata.name": name, **namespaces.get(name, {})}
        assert sender.send("PUT", f"/api/v1/namespaces/{name}", stored)[0] == 200
    refused = {}
    for case in found:
        request = case.request
        old = request.get("oldObject")
        if request["kind"]["kind"] == "Binding":
            old = pod(request["object"]["metadata"]["name"], request["namespace"], limits={})
            request = {**request, "kind": PODS, "resource": {**PODS, "resource": "pods"}}
        if old:
            old = {**old, "metadata": {key: value for key, value in old["metadata"].items() if key in KEPT}}
            first = {**request, "operation": "CREATE", "object": old, "subResource": "", "userInfo": None}
            status, answer = sender.sent(first, store=True)
            if status != 201:
                refused[case.name] = f"{answer.get('message')}"
    return refused


PODS = {"group": "", "version": "v1", "kind": "Pod"}


def install(sender: Sender, made: list[Object]) -> None:
    """Create the policies and bindings of a fallback."""
    for each in made:
        status, answer = sender.send("POST", f"{ADMISSION}/{POLICIES[each['kind']]}", each)
        assert status == 201, answer


def remove(sender: Sender) -> None:
    """Delete the fallback."""
    for plural in POLICIES.values():
        assert sender.send("DELETE", f"{ADMISSION}/{plural}?labelSelector={current.SELECTOR}")[0] == 200


def by_fallback(sender: Sender, request: Object) -> bool:
    """Tell whether the fallback denies a request."""
    return BY_FALLBACK in str(sender.sent(request)[1].get("message"))


def none_by_fallback(sender: Sender, tried: list[Case]) -> bool:
    """Tell whether no fallback denies any of the requests."""
    return not any(by_fallback(sender, case.request) for case in tried)


def refused_now(sender: Sender, request: Object) -> bool:
    """Tell whether the API server refuses a request, for whatever reason."""
    return sender.sent(request)[0] >= 400


def not_by_fallback(sender: Sender, request: Object) -> bool:
    """Tell whether no fallback denies a request."""
    return not by_fallback(sender, request)


def took(holds: Callable[[], bool]) -> float:
    """Ask until the answer is yes; return the seconds it took."""
    start = time.monotonic()
    assert eventually(holds, pause=0.02)
    return time.monotonic() - start


def test_every_exact_rule_holds_when_webhook_and_registration_are_gone(
    alone: Cluster, sender: Sender, evaluator: Evaluator
) -> None:
    """An administrator's mistake: the registration is deleted while the webhook is down."""
    for each in configurations(policy_of(POLICY)):
        for hook in each["webhooks"]:
            hook["clientConfig"] = {"url": f"https://127.0.0.1:9{hook['clientConfig']['service']['path']}"}
        assert alone.apply(each).returncode == 0
    for half in ("mutating", "validating"):
        alone.do("delete", f"{half}webhookconfiguration", NAME)
    by_policy: dict[str, list[Rule]] = {}
    for rule in EXACT:
        by_policy.setdefault(settings(rule.id)[0].digest, []).append(rule)
    held, refused, through = Counter[str](), list[str](), list[str]()
    for some in by_policy.values():
        policy, facts = settings(some[0].id)
        found = [case for rule in some for case in cases(rule, evaluator)]
        not_stored = prepare(sender, found, facts.namespaces)
        refused += [f"{name}: before: {why}" for name, why in not_stored.items()]
        install(sender, fallback(policy, walk()))
        tried = [case for case in found if case.name not in not_stored]
        sure = next(case for case in tried if case.name not in PASSED).request
        took(partial(by_fallback, sender, sure))
        for case in tried:
            status, answer = sender.sent(case.request)
            if (
                status < 400 and case.name not in PASSED
            ):  # the policies of one fallback may come into force a second apart
                took(partial(refused_now, sender, case.request))
                status, answer = sender.sent(case.request)
            message = str(answer.get("message"))
            if status < 400:
                through.append(case.name)
            elif BY_FALLBACK in message:
                held[case.name.partition("/")[0]] += 1
            else:
                refused.append(f"{case.name}: {message}")
        remove(sender)
        # Its policies may go a second apart, too, and the next fallback is not to be taken for them.
        took(partial(none_by_fallback, sender, tried))
    print(f"\nheld by the fallback, by rule: {dict(held)}; let in: {through}")
    print(f"{len(refused)} refused by the API server itself:", *(line[:240] for line in refused), sep="\n")
    assert set(through) <= PASSED
    assert held.keys() == {rule.id for rule in EXACT}
    assert held.total() > 150
    assert len(refused) < held.total() / 5


def test_a_change_of_the_config_map_that_a_fallback_reads_is_in_force_without_another_policy(
    alone: Cluster, sender: Sender
) -> None:
    """Without the ConfigMap every pod is refused, but in namespaces that are left alone."""
    policy = policy_of(POLICY)
    trusted = policy.grants[0].pools or policy.pool_names
    config_map, *policies = fallback(policy, walk(), params=Params("default", "fallback"))
    assert alone.apply(config_map).returncode == 0
    review = admission.decode(admission.wrap(pod("a", "default", annotations=TRUSTED)))
    granting = Grant(Scope(frozenset({"default"}), None, frozenset()), trusted)
    verdict = Engine(replace(policy, grants=(granting,)), walk()).judge(review, Facts())
    asks = jsonpatch.apply(pod("a", "default", annotations=TRUSTED), verdict.patch)
    request = {"kind": PODS, "resource": {**PODS, "resource": "pods"}, "operation": "CREATE"}
    gpu = {**request, "namespace": "default", "object": asks}
    plain = {**request, "namespace": "default", "object": pod("plain", "default", limits={})}
    system = {**request, "namespace": "kube-system", "object": pod("plain", "kube-system", limits={})}
    where = "/api/v1/namespaces/default/configmaps"

    def let_in(asked: Object) -> bool:
        return sender.sent(asked)[0] == 201

    install(sender, policies)
    took(lambda: "unearned-trust" in str(sender.sent(gpu)[1].get("message")))
    granted = {**config_map, "data": {**config_map["data"], "trust.default": f"{','.join(sorted(trusted))} *\n"}}
    assert granted["data"] == data(replace(policy, grants=(granting,)))
    assert alone.apply(granted).returncode == 0
    print(f"\na grant is in force after {took(lambda: let_in(gpu)):.2f} s")
    assert let_in(plain)
    assert sender.send("DELETE", f"{where}/fallback")[0] == 200
    took(lambda: not let_in(plain))
    assert not let_in(gpu)
    assert let_in(system)
    assert alone.apply(granted).returncode == 0
    took(lambda: let_in(plain) and let_in(gpu))
    remove(sender)
    took(lambda: let_in({**gpu, "object": pod("a", "default")}))


def test_a_fallback_comes_into_force_and_goes_as_often_as_it_is_installed(sender: Sender) -> None:
    """The whole of it. How long it takes is printed, from the last request of its installation.

    It looks for changes a second after it has compiled the last (apiserver
    pkg/admission/plugin/policy/generic/policy_source.go), so half a second and what it takes to compile is the least.
    """
    made, asks = fallback(policy_of(POLICY), walk()), pod("a", "default")
    resource = {**PODS, "resource": "pods"}
    request = {"kind": PODS, "resource": resource, "namespace": "default", "operation": "CREATE", "object": asks}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mine", "labels": SHARED}}
    kind = {**PODS, "kind": "Node"}
    last = {**request, "kind": kind, "resource": {**PODS, "resource": "nodes"}, "namespace": "", "object": node}
    last["userInfo"] = {"username": "tenant"}
    times: dict[str, list[float]] = {"in force": [], "gone": []}
    for _ in range(9):
        install(sender, made)
        times["in force"].append(took(lambda: by_fallback(sender, request) and by_fallback(sender, last)))
        remove(sender)
        times["gone"].append(took(lambda: not_by_fallback(sender, request) and not_by_fallback(sender, last)))
    print("\nseconds:", {what: [round(each, 2) for each in some] for what, some in times.items()})
    print("medians:", {what: round(statistics.median(some), 2) for what, some in times.items()})
