"""`slicewarden doctor` against an API server that is pretended: an installation in order, and each fault of it."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

import certs
from tests import ROOT
from tests.support.kubeconfigs import kubeconfig
from tests.support.listening import Asked, listening
from tests.support.policies import FACTS, POLICY, policy_of
from tests.support.starting import made, objects
from tests.support.strangers import HOSTILE, harmful, places
from webhook.api.resources import Resource
from webhook.cli import main as cli
from webhook.cluster.watch import inside, namespaces, resources
from webhook.doctor import doctor
from webhook.doctor.doctor import Check, CheckState, Examined
from webhook.doctor.installation import Installation, ReadFailure
from webhook.doctor.installation import PolicyAnswers as Powers
from webhook.engine import filled
from webhook.engine.paths import MUTATE, VALIDATE, Name
from webhook.engine.paths import Path as PolicyPath
from webhook.engine.registration import configurations
from webhook.facts.snapshot import Facts
from webhook.fallback import current
from webhook.fallback.answers import ValidationActions
from webhook.fallback.mutations import mutating
from webhook.fallback.needs import LACKING
from webhook.fallback.policies import fallback
from webhook.memory.driver.nodes import LABEL, READY
from webhook.memory.driver.start import UNMET, StartNeed
from webhook.policy.model import Card
from webhook.rules import walk

HOME = "/api/v1/namespaces/slicewarden-system"
DEPLOYMENT = "/apis/apps/v1/namespaces/slicewarden-system/deployments/slicewarden"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/slicewarden-system/endpointslices"
MUTATING, VALIDATING = (
    f"/apis/admissionregistration.k8s.io/v1/{each}webhookconfigurations/slicewarden"
    for each in ("mutating", "validating")
)
POLICY_MAP, SERVING = f"{HOME}/configmaps/slicewarden-policy-x", f"{HOME}/secrets/slicewarden-serving"
REVIEWS, PROBE = "/apis/authorization.k8s.io/v1/subjectaccessreviews", "/api/v1/namespaces/default/pods"

FALLBACK = [
    f"/apis/admissionregistration.k8s.io/v1/{each}"
    for each in (
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    )
]
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"

BY_FALLBACK = (
    "pods \"a\" is forbidden: ValidatingAdmissionPolicy 'slicewarden-pods' with binding 'slicewarden-pods' denied"
)
DENIED = 'admission webhook "pods.slicewarden.dev" denied the request: visible-devices: …'


def issued(days: int = 60, name: str = "slicewarden", *, old: bool = False) -> tuple[str, str]:
    """A serving certificate and the bundle of its CA, both in base64."""
    now = datetime.now(UTC) - timedelta(days=100 if old else 0)
    ca = certs.issue_ca("ca", now, days=365)
    pair = certs.issue_serving(ca, certs.service_names(name, "slicewarden-system"), [], now, days)
    return b64encode(pair.certificate_pem).decode(), b64encode(ca.certificate_pem).decode()


class World:
    """Return what the API server answers, by path: an object, or a status with a message."""

    def __init__(self, file: Path = POLICY, facts: Iterable[Any] | None = None) -> None:
        policy, found = policy_of(file), [*(_facts() if facts is None else facts)]
        certificate, bundle = issued()
        self.counts = 0
        self.lacks = ""
        self.asked: list[tuple[str, str, Any]] = []
        self.texts: dict[str, tuple[int, bytes]] = {}
        self.items: dict[str, Any] = {
            "/version": {"major": "1"},
            "/api/v1": {"resources": []},
            DEPLOYMENT: {
                "spec": {
                    "replicas": 2,
                    "template": {
                        "spec": {
                            "containers": [{"name": "webhook", "args": ["serve", "--live"]}],
                            "volumes": [
                                {"name": "tls", "secret": {"secretName": "slicewarden-serving"}},
                                {"name": "policy", "configMap": {"name": "slicewarden-policy-x"}},
                            ],
                        }
                    },
                }
            },
            f"{HOME}/pods": {"metadata": {}, "items": [self.pod("a", "cpu-0"), self.pod("b", "cpu-1")]},
            SLICES: {"items": [{"endpoints": [{"conditions": {"ready": True}}, {"conditions": {"ready": True}}]}]},
            POLICY_MAP: {"data": {"policy.yaml": file.read_text("utf-8")}},
            SERVING: {"data": {"tls.crt": certificate}},
            REVIEWS: {"status": {"allowed": True}},
            PROBE: (400, DENIED),
        }
        for path, written in zip((MUTATING, VALIDATING), configurations(policy), strict=True):
            self.items[path] = deepcopy(written)
            for hook in self.items[path]["webhooks"]:
                hook["clientConfig"]["caBundle"] = bundle
        self.install(fallback(policy, walk(), ValidationActions.BY_RULE))
        series = {
            "slicewarden_facts_loaded": 1.0,
            'slicewarden_facts_age_seconds{kind="Node"}': 12.0,
            f'slicewarden_policy_info{{hash="{policy.digest}"}}': 1.0,
        }
        self.series = {"a": dict(series), "b": dict(series)}
        for resource in (*resources(policy), *inside(namespaces(policy))):
            items = [each for each in found if _lists(resource, each)]
            self.items[resource.path] = {"metadata": {}, "items": items}

    def install(self, made: list[Any]) -> None:
        """Have this fallback, as the API server lists it: without the kinds of items."""
        for kind, path in zip((*current.KINDS, *current.MUTATING), FALLBACK, strict=True):
            some = [each for each in deepcopy(made) if each["kind"] == kind]
            items = [{key: value for key, value in each.items() if key != "kind"} for each in some]
            self.items[path] = {"items": items}

    def watch_fallback(self) -> None:
        self.items[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]["args"].append("--fallback=ByRule")

    @staticmethod
    def pod(name: str, node: str, *, ready: bool = True) -> Any:
        status = {"conditions": [{"type": "Ready", "status": str(ready)}]}
        return {"metadata": {"name": name}, "spec": {"nodeName": node}, "status": status}

    def hooks(self) -> list[Any]:
        return [hook for path in (MUTATING, VALIDATING) for hook in self.items[path]["webhooks"]]

    def audit(self) -> None:
        """Have it run in audit mode, and take what the policy denies."""
        self.items[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]["args"].append("--audit-only")
        for hook in self.hooks():
            hook["failurePolicy"] = "Ignore"
        for each in self.items[FALLBACK[1]]["items"]:
            each["spec"]["validationActions"] = ["Audit"]
        self.items[PROBE] = {"kind": "Pod"}
        self.counts = 1

    def answer(self, asked: Asked) -> None:
        path = asked.path.partition("?")[0]
        body = json.loads(asked.body or b"null")
        self.asked.append((asked.command, asked.path, body))
        if path == PROBE and asked.command == "POST":
            for series in self.series.values():
                name = 'slicewarden_review_duration_seconds_count{endpoint="/validate"}'
                series[name] = series.get(name, 7.0) + self.counts
        if path.startswith(f"{HOME}/pods/") and path.endswith(":8080/proxy/metrics"):
            series = self.series.get(path.rpartition("/pods/")[2].partition(":")[0], {})
            text = "# HELP any\n" + "".join(f"{name} {value}\n" for name, value in series.items())
            asked.give(*((200, text.encode()) if series else (503, b"no")))
            return
        if path in self.texts:
            asked.give(*self.texts[path])
            return
        item = self.items.get(path, (404, "not found"))
        if path == REVIEWS and body["spec"]["resourceAttributes"]["resource"] == self.lacks:
            item = {"status": {"allowed": False}}
        status, content = (item[0], {"message": item[1]}) if isinstance(item, tuple) else (200, item)
        asked.give(status, json.dumps(content).encode())


def _facts() -> Iterator[Any]:
    for each in yaml.safe_load_all(FACTS.read_text("utf-8")):
        yield from each["items"] if each["kind"] == "List" else [each]


def _lists(resource: Resource, item: Any) -> bool:
    """Whether the API server lists an object for a resource."""
    if (item["apiVersion"], item["kind"]) != (resource.api_version, resource.kind):
        return False
    return not resource.namespace or item["metadata"].get("namespace") == resource.namespace


class Ended:
    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.err = status, err
        self.checks: list[Any] = json.loads(out)["checks"] if out.startswith("{") else []

    def having(self, state: str) -> dict[str, str]:
        return {each["check"]: each["message"] for each in self.checks if each["state"] == state}


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def ask(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def ask(*options: str) -> Ended:
        with listening(world.answer) as url:
            config = str(kubeconfig(tmp_path, url))
            status = cli.main(["doctor", "--kubeconfig", config, "--format", "json", *options])
        return Ended(status, *capsys.readouterr())

    return ask


def _evil(value: Any) -> Any:
    """An answer in which each text that names or says something is the hostile one."""
    kept = deepcopy(value)
    for within, key, path in [*places(kept)]:
        if path[-1] in ("name", "nodeName", "message", "reason", "args") or "args" in path:
            within[key] += HOSTILE
    return kept


SAID = (
    DEPLOYMENT,
    f"{HOME}/pods",
    SLICES,
    VALIDATING,
    POLICY_MAP,
    SERVING,
    REVIEWS,
    PROBE,
    FALLBACK[0],
    "/api/v1/nodes",
)
"""The answers that have texts of others, or whose error has one."""


@pytest.mark.parametrize("status", [200, 403])
def test_no_text_of_the_cluster_is_a_command(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    """In turn each answer is hostile: the names in it, or the message of an error."""
    honest = dict(world.items)
    with listening(world.answer) as url:
        config = str(kubeconfig(tmp_path, url))
        for path in SAID:
            evil = _evil(honest[path]) if status == 200 and path != PROBE else (400 if path == PROBE else 403, HOSTILE)
            world.items = {**honest, path: evil}
            cli.main(["doctor", "--kubeconfig", config])
            printed = capsys.readouterr()
            assert harmful(printed.out, "") == []
            assert harmful(printed.err, "") == []


CLUSTERS = sorted((ROOT / "tests/clusters").glob("**/*.yaml"))

NAMES = {
    *("replicas", "mode", "policy", "lint", "registration", "certificate", "caBundle", "endpoints", "facts", "guard"),
    *("permissions", "calls", "fallback"),
}


@pytest.mark.parametrize("rbac", [True, False])
def test_a_webhook_that_may_not_ask_for_rights_is_an_error_where_the_policy_trusts_by_them(
    world: World, ask: Any, rbac: bool
) -> None:
    world.lacks = "subjectaccessreviews"
    if rbac:
        text = world.items[POLICY_MAP]["data"]["policy.yaml"].replace(
            "    grants:\n", "    grants:\n      - rbac: true\n"
        )
        world.items[POLICY_MAP]["data"]["policy.yaml"] = text
    said = ask().having("error").get("permissions", "")
    assert ("may not create subjectaccessreviews.authorization.k8s.io" in said) is rbac


def test_a_working_installation_has_no_error(world: World, ask: Any) -> None:
    done = ask()
    assert (done.status, done.err) == (0, "")
    assert {each["check"] for each in done.checks} == NAMES
    assert done.having("error") == done.having("not known") == {}
    writes = [(method, path) for method, path, _ in world.asked if method != "GET"]
    assert {path for method, path in writes} == {REVIEWS, f"{PROBE}?dryRun=All"}


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda file: str(file.stem))
def test_a_policy_of_init_is_in_order_on_its_own_cluster(
    cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On each dump `doctor` reports no error, and can read all that it looks at."""
    items = objects(cluster)
    policy = tmp_path / "policy.yaml"
    accelerators = ["nvidia-l4"] if cluster.stem == "gke-autopilot" else []
    policy.write_text(made(items, accelerators=accelerators).text, "utf-8")
    world = World(policy, items)
    with listening(world.answer) as url:
        status = cli.main(["doctor", "--kubeconfig", str(kubeconfig(tmp_path, url)), "--format", "json"])
    done = Ended(status, *capsys.readouterr())
    assert (done.err, done.having("error"), done.having("not known")) == ("", {}, {})
    assert {each["check"] for each in done.checks} >= NAMES
    assert done.status == 0


def test_audit_mode_is_no_error_if_a_replica_counts_the_dry_run(world: World, ask: Any) -> None:
    world.audit()
    done = ask()
    assert (done.status, done.having("error")) == (0, {})
    assert done.having("ok")["mode"].startswith("audit: ")
    world.counts = 0
    assert "no replica was called" in ask().having("error")["calls"]


def test_a_fallback_that_answers_first_does_not_hide_the_webhook(world: World, ask: Any) -> None:
    world.items.update({PROBE: (422, BY_FALLBACK), DEPLOYMENTS: (400, DENIED.replace("pods.", "workloads."))})
    assert "calls" in ask().having("ok")
    world.items.update({DEPLOYMENTS: {"kind": "Deployment"}})
    assert "was allowed" in ask().having("error")["calls"]
    world.install([])
    assert "it comes from the API server's own files" in ask().having("ok")["fallback"]


AGENTS = "/api/v1/namespaces/slicewarden-node/pods"
HOOKED = {"nvidia.com/gpu.sharing-strategy": "time-slicing", LABEL: READY}


def hooked(world: World, *nodes: str) -> None:
    """Have a pool whose nodes NVIDIA's hook limits, these nodes in it, and an agent on each but the last."""
    value = yaml.safe_load(world.items[POLICY_MAP]["data"]["policy.yaml"])
    pool = next(each for each in value["spec"]["pools"] if each["sharing"] == "time-slicing")
    pool["memoryLimit"], pool["nodes"] = "Driver", {"matchLabels": HOOKED}
    world.items[POLICY_MAP]["data"]["policy.yaml"] = yaml.safe_dump(value)
    world.items["/api/v1/nodes"]["items"] += [{"metadata": {"name": each, "labels": HOOKED}} for each in nodes]
    pods = [World.pod(f"agent-{each}", each) for each in nodes[:-1]]
    world.items[AGENTS] = {"metadata": {}, "items": pods}


def agent(world: World, node: str, text: str, status: int = 200) -> None:
    head = "# TYPE slicewarden_node_use_bytes gauge\n" if status == 200 else ""
    world.texts[f"{AGENTS}/agent-{node}:8080/proxy/metrics"] = (status, (head + text).encode())


def test_the_agents_of_nodes_with_limits_by_the_hook_say_what_the_nodes_lack(world: World, ask: Any) -> None:
    assert "limits" not in {each["check"] for each in ask().checks}
    hooked(world, "n1", "n2", "n3")
    needs = "".join(f'slicewarden_node_limit_needs{{need="{need}"}} 1\n' for need in StartNeed)
    agent(world, "n1", needs)
    agent(world, "n2", needs.replace('v2"} 1', 'v2"} 0') + 'slicewarden_node_limit_faults{fault="no hook"} 2\n')
    done = ask()
    assert done.having("error")["limits"] == f"{UNMET[StartNeed.CGROUP]}: n2"
    assert done.having("warning")["limits"] == "NVIDIA's hook was not called before the start of a container: n2"
    assert done.having("not known")["limits"] == "1 node could not be asked, such as n3: no agent runs there"
    agent(world, "n2", needs)
    world.items["/api/v1/nodes"]["items"].pop()
    assert ask().having("ok")["limits"] == "the agents of 2 nodes find nothing that NVIDIA's hook lacks"


def test_a_need_that_an_agent_does_not_know_is_not_called_met(world: World, ask: Any) -> None:
    hooked(world, "n1", "n2")
    world.items["/api/v1/nodes"]["items"].pop()
    agent(
        world, "n1", 'slicewarden_node_limit_needs{need="cgroup v2"} 1\nslicewarden_node_limit_needs{need="driver"} 1\n'
    )
    done = ask()
    assert "limits" not in done.having("ok")
    says = "agents do not know whether their nodes meet the need `whole GPUs` of NVIDIA's hook: n1"
    assert done.having("not known")["limits"] == says


@pytest.mark.parametrize(
    ("text", "status", "why"),
    [
        ("", 200, "its agent's policy has no such pool for it"),
        ("slicewarden_node_limit_needs{need=} 1\n", 200, "its agent's answer cannot be used"),
        (HOSTILE, 503, "HTTP 503"),
        ('slicewarden_node_limit_needs{need="a\\nb"} 0\n', 200, "its agent's policy has no such pool for it"),
    ],
)
def test_an_agent_without_a_usable_answer_is_not_known(
    world: World, ask: Any, text: str, status: int, why: str
) -> None:
    hooked(world, "n1", "n2")
    world.items["/api/v1/nodes"]["items"].pop()
    agent(world, "n1", text, status)
    done = ask()
    assert done.having("not known")["limits"].startswith(f"1 node could not be asked, such as n1: {why}")
    assert harmful(str(done.checks), "") == []
    world.items[AGENTS] = (403, "no")
    assert "limits" in ask().having("not known")


def _edit(world: World, path: str, old: str, new: str) -> None:
    world.items[path] = json.loads(json.dumps(world.items[path]).replace(old, new))


def _series(world: World, name: str, value: float) -> None:
    world.series["b"][name] = value


def _watched(world: World, made: list[Any]) -> None:
    world.install(made)
    world.watch_fallback()


def _mutating(world: World, change: Callable[[list[Any]], Any], assumed: Card | None = None) -> None:
    policy = policy_of(POLICY)
    if assumed:
        other = replace(policy, pools=tuple(replace(pool, assume=assumed) for pool in policy.pools))
        made = mutating(other, walk(), Facts())
    else:
        made = mutating(policy, walk(), Facts.of(_facts()))
    change(made)
    world.install([*fallback(policy, walk(), ValidationActions.BY_RULE), *made])


def test_no_fallback_is_offered_where_the_api_server_serves_none(world: World, ask: Any) -> None:
    for path in FALLBACK:
        world.items.pop(path, None)
    assert "has no ValidatingAdmissionPolicy" in ask().having("ok")["fallback"]


def _audit_beside_a_fallback(world: World) -> None:
    world.audit()
    world.install(fallback(policy_of(POLICY), walk(), ValidationActions.DENY))


DRIVERS = "nvidia-dra-driver-gpu"


def _beforehand(world: World, number: int) -> None:
    """Have so many pods on a node of a pool that do not tolerate its taint."""
    for index in range(number):
        metadata = {"namespace": "visitors", "name": f"p{index}", "uid": f"u{index}"}
        pod = {"metadata": metadata, "spec": {"nodeName": "t4-shared", "containers": [{"name": "a"}]}}
        world.items["/api/v1/pods"]["items"].append(pod)


@pytest.mark.parametrize(
    ("metadata", "spec", "older"),
    [
        ({}, {}, True),
        ({}, {"tolerations": [{"key": "example.com/cpu", "operator": "Exists"}]}, True),
        ({}, {"tolerations": [{"key": "slicewarden.dev/pool", "operator": "Exists"}]}, False),
        ({}, {"tolerations": [{"operator": "Exists"}]}, False),
        ({}, {"nodeName": "cpu-0"}, False),
        ({}, {"nodeName": ""}, False),
        ({"namespace": "kube-system"}, {}, False),
        ({"namespace": "gpu-operator"}, {}, False),
        ({"namespace": DRIVERS}, {"serviceAccountName": "compute-domain-daemon-service-account"}, False),
        ({"namespace": DRIVERS}, {"serviceAccountName": "default"}, True),
        ({"annotations": {"kubernetes.io/config.mirror": "x"}}, {}, False),
        ({}, {"containers": [{"name": "a", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]}, False),
    ],
)
def test_a_pod_that_was_on_a_node_before_its_taint_is_told(
    world: World, ask: Any, metadata: Any, spec: Any, older: bool
) -> None:
    _beforehand(world, 1)
    (pod,) = [each for each in world.items["/api/v1/pods"]["items"] if each["metadata"]["name"] == "p0"]
    pod["metadata"].update(metadata)
    pod["spec"].update(spec)
    assert ("older pods" in ask().having("warning")) is older


def test_a_name_of_an_older_pod_is_no_command(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _beforehand(world, 1)
    world.items["/api/v1/pods"]["items"][-1]["metadata"]["name"] += HOSTILE
    with listening(world.answer) as url:
        cli.main(["doctor", "--kubeconfig", str(kubeconfig(tmp_path, url))])
    printed = capsys.readouterr()
    assert "older pods" in printed.out
    assert harmful(printed.out, "") == harmful(printed.err, "") == []


Break = Callable[[World], Any]

ERRORS: list[tuple[Break, str, str, str]] = [
    (lambda w: w.items.pop(DEPLOYMENT), "replicas", "error", "does not exist"),
    (lambda w: w.items[f"{HOME}/pods"].update(items=[]), "replicas", "error", "no replica of 2 is ready"),
    (lambda w: w.items[f"{HOME}/pods"]["items"].pop(), "replicas", "warning", "1 of 2 replicas are ready"),
    (lambda w: _edit(w, f"{HOME}/pods", "cpu-1", "cpu-0"), "replicas", "warning", "run on node cpu-0"),
    (lambda w: _edit(w, DEPLOYMENT, '"--live"', '"--live", "--audit-only"'), "mode", "warning", "failurePolicy Fail"),
    (lambda w: [h.update(failurePolicy="Ignore") for h in w.hooks()], "mode", "warning", "while the webhook is down"),
    (lambda w: _edit(w, POLICY_MAP, "kind: GPUSharingPolicy", "kind: Pod"), "policy", "error", "cannot be used"),
    (lambda w: w.items.pop(POLICY_MAP), "policy", "error", "could not be read"),
    (lambda w: _series(w, 'slicewarden_policy_info{hash="0"}', 1), "policy", "warning", "judges by policy 0"),
    (
        lambda w: _edit(w, POLICY_MAP, "maxReplicas: 8", "maxReplicas: 4"),
        "registration",
        "error",
        "was made from policy",
    ),
    (lambda w: w.items.pop(VALIDATING), "registration", "error", "is not registered"),
    (lambda w: w.install([]), "fallback", "warning", "nothing enforces the policy"),
    (lambda w: _watched(w, []), "fallback", "error", "but none is installed"),
    (lambda w: w.items[FALLBACK[1]]["items"].pop(), "fallback", "error", "its binding is missing"),
    (lambda w: w.items[FALLBACK[0]]["items"].pop(), "fallback", "error", "is missing"),
    (
        lambda w: w.items[FALLBACK[1]]["items"][0]["spec"].update(validationActions=["Audit"]),
        "fallback",
        "error",
        "actions are Audit, not Deny and Audit",
    ),
    (
        lambda w: _watched(w, fallback(policy_of(POLICY), walk(), ValidationActions.DENY)),
        "fallback",
        "error",
        "slicewarden-pods-audited: its binding is missing",
    ),
    (lambda w: _audit_beside_a_fallback(w), "fallback", "warning", "audit mode, but the fallback denies"),
    (lambda w: _edit(w, FALLBACK[0], "broad-toleration: ", "another: "), "fallback", "error", "its validations differ"),
    (lambda w: _mutating(w, lambda made: made.pop()), "fallback", "error", "its binding is missing"),
    (
        lambda w: _mutating(w, lambda made: made[0]["spec"].update(reinvocationPolicy="Never")),
        "fallback",
        "error",
        "MutatingAdmissionPolicy slicewarden-pods: its reinvocationPolicy differs",
    ),
    (
        lambda w: _mutating(w, lambda _: None, Card("Tesla-T4", 9000, 2)),
        "fallback",
        "error",
        "MutatingAdmissionPolicy slicewarden-pods: its mutations differ",
    ),
    (lambda w: w.items.pop(SERVING), "certificate", "error", "the Secret of the serving certificate does not exist"),
    (lambda w: w.items[SERVING].update(data={}), "certificate", "error", "no certificate under tls.crt"),
    (lambda w: w.items[SERVING]["data"].update({"tls.crt": issued(3)[0]}), "certificate", "warning", "ends 20"),
    (lambda w: w.items[SERVING]["data"].update({"tls.crt": issued(old=True)[0]}), "certificate", "error", "ended 20"),
    (lambda w: w.items[SERVING]["data"].update({"tls.crt": issued(name="b")[0]}), "certificate", "error", "the name"),
    (
        lambda w: w.items[SERVING]["data"].update({"tls.crt": issued()[0]}),
        "caBundle",
        "error",
        "without the CA that signed",
    ),
    (lambda w: [h["clientConfig"].pop("caBundle") for h in w.hooks()], "caBundle", "error", "no caBundle"),
    (lambda w: w.hooks()[3]["clientConfig"].update(caBundle="%"), "caBundle", "error", "no caBundle"),
    (lambda w: _edit(w, SLICES, '"ready": true', '"ready": false'), "endpoints", "error", "no ready endpoint"),
    (lambda w: _series(w, "slicewarden_facts_loaded", 0), "facts", "error", "has no facts"),
    (lambda w: _series(w, 'slicewarden_facts_age_seconds{kind="Pod"}', 900), "facts", "warning", "for 900 s"),
    (lambda w: _edit(w, "/api/v1/nodes", "slicewarden.dev/pool", "other"), "guard", "error", "is the taint"),
    (lambda w: _beforehand(w, 1), "older pods", "warning", "1 pod older than the guard's taint"),
    (lambda w: _beforehand(w, 5), "older pods", "warning", "visitors/p0, visitors/p1, visitors/p2 and 2 more"),
    (
        lambda w: w.items.update({REVIEWS: {"status": {"allowed": False}}}),
        "permissions",
        "error",
        "may not get namespaces",
    ),
    (lambda w: w.items.update({PROBE: {"kind": "Pod"}}), "calls", "error", "was allowed"),
    (
        lambda w: w.items.update({PROBE: (500, 'failed calling webhook "pods.slicewarden.dev": no endpoints')}),
        "calls",
        "error",
        "cannot call the webhook",
    ),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("broken", "check", "state", "says"), ERRORS)
def test_every_error_of_doctor_has_a_way_out(
    world: World, ask: Any, broken: Break, check: str, state: str, says: str
) -> None:
    broken(world)
    done = ask()
    assert says in done.having(state)[check]
    assert done.status == (1 if done.having("error") else 0)
    assert all(each["wayOut"] for each in done.checks if each["state"] != "ok")
    assert all(len(each["message"]) < 400 and "\n" not in each["message"] for each in done.checks)


UNKNOWN: list[tuple[Break, str]] = [
    (lambda w: w.items.update({MUTATING: (403, "is forbidden")}), "registration"),
    (lambda w: w.items.update({SERVING: (403, "is forbidden")}), "certificate"),
    (lambda w: w.items.update({FALLBACK[1]: (403, "is forbidden")}), "fallback"),
    (lambda w: w.items.update({SLICES: (403, "is forbidden")}), "endpoints"),
    (lambda w: w.items.update({REVIEWS: (403, "is forbidden")}), "permissions"),
    (lambda w: w.items.update({PROBE: (403, "pods is forbidden")}), "calls"),
    (lambda w: w.items.update({"/api/v1/nodes": (403, "is forbidden")}), "guard"),
    (lambda w: w.items.update({"/api/v1/pods": (403, "is forbidden")}), "older pods"),
    (lambda w: w.series.pop("b"), "facts"),
    (lambda w: w.items.update({f"{HOME}/pods": (403, "is forbidden")}), "replicas"),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("refused", "check"), UNKNOWN)
def test_a_check_that_could_not_run_is_unknown(world: World, ask: Any, refused: Break, check: str) -> None:
    refused(world)
    done = ask()
    assert check in done.having("not known")
    assert (done.status, done.having("error")) == (2, {})


def test_a_cluster_with_another_policy_is_an_error(ask: Any, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.read_text("utf-8").replace("maxReplicas: 8", "maxReplicas: 4"), "utf-8")
    assert ask("--policy", str(POLICY)).status == 0
    done = ask("--policy", str(file))
    assert done.status == 1
    assert "is installed, not sample" in done.having("error")["policy"]


def test_a_cluster_that_does_not_answer_is_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = kubeconfig(tmp_path, "http://127.0.0.1:1")
    assert cli.main(["doctor", "--kubeconfig", str(config)]) == 2
    assert "does not answer" in capsys.readouterr().err


def test_the_table_has_the_way_out_below_what_is_wrong(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world.items[f"{HOME}/pods"]["items"].pop()
    with listening(world.answer) as url:
        assert cli.main(["doctor", "--kubeconfig", str(kubeconfig(tmp_path, url))]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "warning    replicas      1 of 2 replicas are ready"
    assert lines[1] == f"{' ' * 25}{doctor.LOGS}"
    assert lines[-1] == "13 checks: 1 warning, 12 ok"


# Where the policy is an object

OBJECTS = "/apis/slicewarden.dev/v1alpha1/gpusharingpolicies"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/slicewarden-system/leases/slicewarden-controller"
BINDING = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/slicewarden-guard"


def _status(digest: str, reason: str = "InForce", message: str = "every replica has loaded it") -> dict[str, Any]:
    states = {"Ready": reason == "InForce", "Stalled": reason not in ("InForce", "Changing")}
    conditions = [
        {"type": kind, "status": str(state), "reason": reason, "message": message, "observedGeneration": 2}
        for kind, state in states.items()
    ]
    return {"digest": digest, "mode": "Enforce", "replicas": "2/2", "conditions": conditions}


def by_object(world: World) -> dict[str, Any]:
    """Have the policy as an object, and a controller that works. Returns the policy."""
    value: dict[str, Any] = yaml.safe_load(POLICY.read_text("utf-8"))
    value["spec"]["mode"] = "Enforce"
    value["metadata"].update(creationTimestamp="2026-01-01T00:00:00Z", generation=2)
    policy = policy_of(POLICY)
    value["status"] = _status(policy.digest)
    template = world.items[DEPLOYMENT]["spec"]["template"]["spec"]
    template["containers"][0]["args"] += ["--revisions", "slicewarden-system"]
    del template["volumes"][1]
    renewed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    world.items |= {
        OBJECTS: {"items": [value]},
        f"{DEPLOYMENT}-controller": {"spec": {"replicas": 2}},
        LEASE: {"spec": {"holderIdentity": "controller-a", "renewTime": renewed}},
        BINDING: {"spec": {"validationActions": ["Deny", "Audit"]}},
        BINDING.replace("policybindings", "policies"): {"spec": {}},
    }
    for path, half in ((MUTATING, MUTATE), (VALIDATING, VALIDATE)):
        old = world.items[path]["webhooks"][0]["clientConfig"]["caBundle"]
        names = (Name(policy.digest),)
        world.items[path]["webhooks"] = filled.webhooks(PolicyPath(half, names), {policy.digest: policy}, old)
    return value


def test_a_policy_in_force_as_an_object_is_in_order(world: World, ask: Any) -> None:
    by_object(world)
    done = ask()
    assert (done.status, done.having("error"), done.having("not known")) == (0, {}, {})
    said = done.having("ok")
    assert "is in force, mode Enforce, held by 2/2 replicas" in said["policy"]
    assert said["controller"] == "controller-a runs"
    assert said["registration"].startswith("API servers call the webhook with policy ")
    assert "calls" in said


def test_without_a_policy_nothing_is_judged_and_nothing_is_wrong(world: World, ask: Any) -> None:
    by_object(world)
    world.items[OBJECTS] = {"items": []}
    for path in (MUTATING, VALIDATING):
        del world.items[path]["webhooks"]
    done = ask()
    assert (done.status, done.having("error")) == (0, {})
    assert done.having("ok")["policy"] == "there is no policy, so nothing is judged"
    assert done.having("ok")["registration"] == "nothing is registered"


def _put(world: World, **status: Any) -> None:
    world.items[OBJECTS]["items"][0]["status"].update(status)


def _older(world: World) -> None:
    """What the controller leaves at an API server that lacks functions of the fallback."""
    for each in world.items[FALLBACK[0]]["items"]:
        each["spec"].pop("validations", None)
    _put(world, **_status("d", message=f"every replica has loaded it; {LACKING}"))


@pytest.mark.parametrize(
    ("fault", "check", "state", "words"),
    [
        (lambda w: w.items.pop(VALIDATING), "registration", "error", "RegistrationGone"),
        (
            lambda w: _put(w, **_status("d", "FactsUnreadable", "the webhook may not read configmaps of team-x")),
            "policy",
            "error",
            "FactsUnreadable: the webhook may not read configmaps of team-x",
        ),
        (lambda w: _put(w, **_status("d", "Changing", "10.0.0.1:8080 lacks d")), "policy", "warning", "lacks d"),
        (lambda w: w.items[OBJECTS]["items"][0]["metadata"].update(generation=3), "policy", "warning", "last change"),
        (lambda w: _put(w, conditions=[]), "policy", "warning", "no controller has seen it"),
        (lambda w: _put(w, replicas="1/2"), "replicas", "warning", "1 of 2 replicas hold the policy"),
        (lambda w: w.items.pop(BINDING), "rights", "error", "the guard is missing"),
        (lambda w: w.items[BINDING]["spec"].update(validationActions=["Audit"]), "rights", "error", "denies nothing"),
        (lambda w: w.items.pop(f"{DEPLOYMENT}-controller"), "controller", "error", "is not installed"),
        (lambda w: w.items[LEASE].update(spec={}), "controller", "error", "no controller has run yet"),
        (
            lambda w: w.items[LEASE]["spec"].update(renewTime="2026-01-01T00:00:00.000000Z"),
            "controller",
            "error",
            "no controller runs: controller-a renewed its lease",
        ),
        (lambda w: w.items.pop(OBJECTS), "policy", "error", "definition of GPUSharingPolicy"),
        (lambda w: w.install([]), "fallback", "warning", "it is not installed"),
        (lambda w: w.items[FALLBACK[1]]["items"].pop(), "fallback", "error", "its binding is missing"),
        (
            lambda w: [each["spec"].pop("validations", None) for each in w.items[FALLBACK[0]]["items"]],
            "fallback",
            "warning",
            "it is empty",
        ),
        (_older, "fallback", "warning", LACKING),
    ],
    ids=[
        *("gone", "facts", "changing", "generation", "unseen", "held", "guard", "weak-guard"),
        *(
            "no-controller",
            "no-lease",
            "away",
            "no-definition",
            "no-fallback",
            "unbound",
            "empty-fallback",
            "older-server",
        ),
    ],
)
def test_each_fault_of_a_policy_as_an_object_is_found(
    world: World, ask: Any, fault: Callable[[World], Any], check: str, state: str, words: str
) -> None:
    by_object(world)
    fault(world)
    assert words in ask().having(state)[check]


def test_a_policy_that_waits_is_told_with_what_it_would_deny(world: World, ask: Any) -> None:
    value = by_object(world)
    metadata = {"name": "next", "creationTimestamp": "2026-01-02T00:00:00Z"}
    world.items[OBJECTS]["items"].append({**value, "metadata": metadata, "status": {"wouldDeny": 3}})
    assert "next waits, because sample is older; it would newly deny 3 objects" in ask().having("ok")["policy"]


def test_another_policy_than_the_local_one_is_told(world: World, ask: Any, tmp_path: Path) -> None:
    by_object(world)
    other = tmp_path / "other.yaml"
    other.write_text(POLICY.read_text("utf-8").replace("name: sample", "name: other", 1), "utf-8")
    assert "is in the cluster, not other" in ask("--policy", str(other)).having("error")["policy"]


def test_without_an_installation_every_check_fails_or_is_unknown() -> None:
    gone = ReadFailure(404, "not found")
    read = Installation((gone, gone), (gone, gone), gone, gone, gone, gone, gone)
    checks = doctor.examine(Examined(read, Powers(), datetime.now(UTC), None, "no policy"))
    assert {check.state for check in checks} <= {CheckState.ERROR, CheckState.UNKNOWN}
    assert (
        Check(
            "replicas", CheckState.ERROR, "the Deployment slicewarden does not exist", "apply an overlay of manifests/"
        )
        in checks
    )
