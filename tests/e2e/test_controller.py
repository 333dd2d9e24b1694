"""The controller on a real etcd with two API servers and three replicas: from two commands to enforcement, and back."""

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

import certs
from certs.life import rotate
from tests.e2e import offered
from tests.e2e.control_plane import Component, eventually
from tests.e2e.objects import pod
from tests.e2e.release import (
    ACCOUNT,
    BOTH,
    HOME,
    MORE,
    TEAM,
    Load,
    Object,
    P,
    Q,
    Release,
    bundles,
    connected,
    digest,
    forbidden,
    honest,
    one_write,
    policy,
    read,
    recorded,
    releasing,
    versions,
)
from webhook.cluster.cert_store import ClusterStore, ObjectNames
from webhook.controller import fallback
from webhook.controller.controller import Controller, Round
from webhook.controller.terms import MANAGER
from webhook.engine import filled
from webhook.engine.paths import MUTATE, VALIDATE, Manner, Name
from webhook.engine.paths import Path as EnginePath
from webhook.engine.registration import NAME
from webhook.fallback.needs import LACKING
from webhook.policy import revisions
from webhook.serving import replica_state


@pytest.fixture(scope="module")
def release(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """A cluster of two API servers, at first without anything of ours."""
    with releasing(tmp_path_factory.mktemp("controller"), programs) as made:
        yield made


@pytest.fixture
def enforced(release: Release) -> Release:
    """The release with Q in force, whatever was before."""
    release.in_force(Q)
    return release


def component(release: Release, name: str) -> Component:
    (found,) = [each for each in release.cluster.components if each.name == name]
    return found


def authority(release: Release) -> str:
    """The CA that the controller has issued certificates by, in base64."""
    return str(release.cluster.get("secret", "slicewarden-ca", f"--namespace={HOME}")["data"]["ca.crt"])


def closed(version: Object) -> bool:
    """Whether a request fails by a configuration while no replica answers."""
    return any(hook["failurePolicy"] == "Fail" for hook in version.get("webhooks") or ())


def test_two_commands_lead_from_nothing_to_ready(release: Release) -> None:
    """Nothing fails while no replica answers, until a probe came through each API server."""
    release.works()
    p = digest(P)
    with recorded(release) as written:
        with component(release, "kube-apiserver-2").frozen():
            release.apply(P)
            assert eventually(lambda: release.servers[1] in release.condition("Ready").get("message", ""))
            assert release.named() == (f"{p}-audit", "")
            assert not any(map(closed, release.cluster.get(BOTH)["items"]))
        release.cluster.do("wait", "--for=condition=Ready", "gpusharingpolicy", "--all", "--timeout=300s")
    assert release.named() == (p, p)
    judging, patching = ([each for each in written if each["kind"].startswith(half)] for half in ("Valid", "Mutat"))
    audit, strict = Name(p, Manner.AUDIT), Name(p)
    assert {*map(filled.named, judging)} == {(), (audit,), (audit, strict), (strict,)}
    assert {*map(filled.named, patching)} == {(), (audit,), (strict,)}
    assert {filled.named(each) for each in judging if closed(each)} == {(strict,)}
    assert not any(map(closed, patching))
    assert bundles(written) == {authority(release)}
    status = release.policy()["status"]
    assert (status["digest"], status["mode"], status["replicas"]) == (p, "Enforce", "3/3")
    steps = [f"validate {p}-audit", f"mutate {p}-audit", f"validate {p}-audit.{p}", f"mutate {p}", f"validate {p}"]
    assert [each for each in release.wrote() if not each.startswith("releases")] == steps


def test_the_policy_is_enforced_through_both_api_servers(enforced: Release) -> None:
    for server in (0, 1):
        assert enforced.create(honest(), server) == ""
        assert "NVIDIA_VISIBLE_DEVICES" in enforced.create(forbidden(), server)


def test_an_api_server_has_the_whole_fallback_or_the_status_says_why_it_has_none(enforced: Release) -> None:
    wanted = fallback.made(read(Q))

    def filled_as_said() -> bool:
        items = enforced.cluster.get(fallback.PLURAL)["items"]
        has = {each["metadata"]["name"] for each in items if each["spec"].get("validations")} & set(fallback.NAMES)
        return has == (set() if LACKING in enforced.condition("Ready")["message"] else wanted.keys())

    assert eventually(filled_as_said)
    assert (LACKING in enforced.condition("Ready")["message"]) is (offered.FALLBACK in offered.lacking())


def test_a_diff_of_what_is_installed_is_empty(enforced: Release) -> None:
    service = [each for each in yaml.safe_load_all(enforced.manifests) if each["kind"] != "Service"]
    shown = json.dumps({"apiVersion": "v1", "kind": "List", "items": service})
    for options in ([], ["--server-side", "--force-conflicts", "--field-manager=argocd-controller"]):
        found = enforced.cluster.kubectl("diff", *options, "--filename=-", stdin=shown)
        assert (found.returncode, found.stdout) == (0, ""), found.stderr


def fields(release: Release, *subresource: str) -> dict[str, set[str]]:
    """The keys of the policy that each field manager owns, with or without those that it owns through a subresource."""
    words = ("gpusharingpolicy", "sample", "--output=json", "--show-managed-fields")
    metadata = json.loads(release.cluster.do("get", *words))["metadata"]
    owned: dict[str, set[str]] = {}
    for each in metadata["managedFields"]:
        if (each.get("subresource"),) == (subresource or (None,)):
            owned.setdefault(each["manager"], set()).update(each["fieldsV1"])
    return owned


def test_server_side_apply_and_the_controller_own_different_fields(enforced: Release) -> None:
    """Nobody forces anything: an owner that the controller took a field from would get a conflict."""
    apply = ("apply", "--server-side", "--filename=-")
    enforced.cluster.do(*apply, stdin=json.dumps(Q))
    assert eventually(lambda: enforced.ready(digest(Q)))
    own, controllers = fields(enforced), fields(enforced, "status")
    assert {manager for manager, keys in own.items() if "f:spec" in keys} == {"kubectl"}
    assert set[str]().union(*own.values()) == {"f:metadata", "f:spec"}
    assert controllers == {MANAGER: {"f:status"}}
    assert own.keys().isdisjoint(controllers)
    for value in (P, Q):
        enforced.cluster.do(*apply, stdin=json.dumps(value))
        assert eventually(partial(enforced.ready, digest(value)))
        assert enforced.named() == (digest(value), digest(value))
    enforced.cluster.stop(enforced.controller)
    assert eventually(lambda: one_write(enforced) == "")
    written, before = everything_written(enforced), enforced.policy()["metadata"]
    enforced.cluster.do(*apply, stdin=json.dumps(Q))
    assert enforced.policy()["metadata"] == before
    faked = {**Q, "status": {"phase": "Off", "observedGeneration": 1}}
    enforced.cluster.do(*apply, stdin=json.dumps(faked))
    assert enforced.policy()["metadata"]["generation"] == before["generation"]
    assert one_write(enforced) == ""
    assert everything_written(enforced) == written
    installed = [
        each for each in yaml.safe_load_all(enforced.manifests) if each["kind"].endswith("WebhookConfiguration")
    ]
    enforced.cluster.do(*apply, stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": installed}))
    assert one_write(enforced) == ""
    assert enforced.named() == (digest(Q), digest(Q))


FORMER = "OpenAPI-Generator"
"""The field manager of earlier releases: the name of the Kubernetes client for Python."""
OWN = (f"--namespace={HOME}", "--output=json", "--show-managed-fields")
WRITTEN = (
    ("secret", "slicewarden-ca"),
    ("secret", "slicewarden-serving"),
    ("lease", "slicewarden-controller"),
    ("configmap", "slicewarden-releases"),
)
"""What the controller writes, apart from what it applies."""


def managers(release: Release, kind: str, name: str) -> set[str]:
    """The field managers of an object."""
    found = json.loads(release.cluster.do("get", kind, name, *OWN))
    return {each["manager"] for each in found["metadata"]["managedFields"]}


@pytest.mark.parametrize(("kind", "name"), WRITTEN)
def test_the_controller_writes_under_its_own_name(enforced: Release, kind: str, name: str) -> None:
    found = managers(enforced, kind, name)
    assert MANAGER in found
    assert found <= {MANAGER, "kubectl-client-side-apply"}


def test_what_an_earlier_release_wrote_under_another_name_conflicts_with_nothing(enforced: Release) -> None:
    """It wrote a status, revisions, Secrets and, when it rotated the CA, the bundles of webhooks."""
    enforced.cluster.stop(enforced.controller)
    enforced.apply(P)
    names = ObjectNames(HOME, "slicewarden-ca", "slicewarden-serving", NAME)
    terms = certs.Terms(tuple(certs.service_names(NAME, HOME)))
    with connected(enforced) as api:
        api.user_agent = f"{FORMER}/36.0/python"
        one = Controller(api, enforced.terms, lambda _: None)

        def ends() -> bool:
            return one.look() == Round()

        assert eventually(ends)
        assert enforced.ready(digest(P))
        assert [*certs.keep(ClusterStore(api, names, print), terms, lambda: datetime.now(UTC), [rotate])]
    written = [*CONFIGURATIONS.values()][:2]
    for each in (("secret", "slicewarden-ca"), ("gpusharingpolicy", "sample"), *written):
        assert FORMER in managers(enforced, *each)
    enforced.start_controller()
    for value in (policy(mode="Off"), Q, P):
        enforced.apply(value)
        assert eventually(partial(enforced.ready, digest(value)))
        wanted = ("", "") if value["spec"]["mode"] == "Off" else (digest(value), digest(value))
        assert enforced.named() == wanted
    for each in written:
        assert {MANAGER, FORMER} & managers(enforced, *each) == {MANAGER}
    assert fields(enforced, "status").keys() == {MANAGER}


def test_a_change_of_policy_under_load_refuses_and_admits_nothing_wrongly(enforced: Release) -> None:
    with Load(enforced) as load:
        enforced.apply(P)
        assert eventually(lambda: enforced.ready(digest(P)))
        assert eventually(lambda: load.enough)
    print(load)
    assert load.wrong == []
    assert enforced.named() == (digest(P), digest(P))
    before = Counter(enforced.judged_by())
    for server in (0, 1):
        enforced.create(honest(), server, "--dry-run=server")
    assert eventually(lambda: (Counter(enforced.judged_by()) - before).total() > 1)
    assert {*(Counter(enforced.judged_by()) - before)} == {digest(P)}


def test_any_number_of_quick_changes_ends_in_the_newest(enforced: Release) -> None:
    for number in range(3 * replica_state.MOST):
        enforced.apply(policy(leaveAlone=[f"elsewhere-{number}"]))
    enforced.apply(Q)
    assert eventually(lambda: enforced.ready(digest(Q)))
    assert enforced.named() == (digest(Q), digest(Q))
    assert eventually(lambda: enforced.revisions() == {digest(Q)})


def test_a_new_replica_loads_first_what_the_registration_names(enforced: Release) -> None:
    enforced.cluster.stop(enforced.controller)
    others = [policy(leaveAlone=[f"elsewhere-{number}"]) for number in range(2 * replica_state.MOST)]
    made = [revisions.revision(read(each), HOME) for each in others]
    enforced.apply({"apiVersion": "v1", "kind": "List", "items": made})
    enforced.cluster.stop("replica-0")
    enforced.start_replica(0)
    assert eventually(lambda: enforced.health_of(0)[0] == 200)
    assert digest(Q) in json.loads(enforced.health_of(0, "policies")[1])["held"]
    enforced.start_controller()
    assert eventually(lambda: enforced.revisions() == {digest(Q)})


def stopped_in_the_middle(release: Release) -> bool:
    """Change Q to P, and stop the controller between the steps; if it was faster, go back to Q and return False."""
    controller = component(release, release.controller)
    release.apply(P)
    assert eventually(lambda: "." in release.named()[0] or release.ready(digest(P)))
    controller.process.send_signal(signal.SIGSTOP)
    if "." in release.named()[0]:
        return True
    controller.process.send_signal(signal.SIGCONT)
    assert eventually(lambda: release.ready(digest(P)))
    release.apply(Q)
    assert eventually(lambda: release.ready(digest(Q)))
    return False


def test_killed_in_the_middle_of_a_change_another_controller_finishes(enforced: Release) -> None:
    assert any(stopped_in_the_middle(enforced) for _ in range(20))
    enforced.cluster.stop(enforced.controller)
    assert "." in enforced.named()[0]
    enforced.start_controller()
    assert eventually(lambda: enforced.ready(digest(P)))
    assert enforced.named() == (digest(P), digest(P))


def test_a_frozen_api_server_or_replica_stops_a_change_and_is_named(enforced: Release) -> None:
    def waits_for(what: str) -> bool:
        return what in enforced.condition("Ready").get("message", "")

    with component(enforced, "kube-apiserver-2").frozen():
        enforced.apply(P)
        assert eventually(partial(waits_for, enforced.servers[1]))
        assert enforced.condition("Reconciling")["status"] == "True"
        with component(enforced, "replica-0").frozen():
            assert eventually(partial(waits_for, f"127.0.0.1:{enforced.health[0]} does not answer"))
        assert enforced.named() == (digest(Q), digest(Q))
    assert eventually(lambda: enforced.ready(digest(P)))


@contextmanager
def refusing(release: Release, path: str, only: str = "true") -> Iterator[None]:
    """Have the API servers refuse the controller a registration with a path, if the request is such."""
    kind, name = "ValidatingAdmissionPolicy", {"name": "tests-refusal"}
    condition = f"request.userInfo.username == '{ACCOUNT.name}' && {only} || request.name == 'tests-seen'"
    spec: Object = {
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": ["admissionregistration.k8s.io"],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": BOTH.split(","),
                }
            ]
        },
        "matchConditions": [
            {"name": "by-the-controller-or-to-see-whether-it-is-in-force", "expression": condition},
        ],
        "validations": [
            {
                "expression": f"!object.?webhooks.orValue([]).exists(hook, hook.clientConfig.service.path == '{path}')",
                "message": "not today",
            }
        ],
    }
    made = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": name}
    release.apply({**made, "kind": kind, "spec": spec})
    binding = {"policyName": name["name"], "validationActions": ["Deny"]}
    release.apply({**made, "kind": f"{kind}Binding", "spec": binding})
    nothing = [{"apiGroups": ["tests.example"], "apiVersions": ["v1"], "resources": ["none"], "operations": ["CREATE"]}]
    hooks = [hook(clientConfig={"service": {**SERVICE, "path": path}}, rules=nothing)]
    seen = {**made, "kind": "MutatingWebhookConfiguration", "metadata": {"name": "tests-seen"}, "webhooks": hooks}

    def refused(server: int) -> bool:
        why = release.create(seen, server)
        if not why:
            release.cluster.do("delete", "mutatingwebhookconfiguration", "tests-seen")
        return "not today" in why

    try:
        assert all(eventually(partial(refused, server)) for server in (0, 1))
        yield
    finally:
        for each in (f"{kind}Binding", kind):
            release.cluster.do("delete", each, name["name"])


def test_a_change_that_an_api_server_would_refuse_changes_nothing(enforced: Release) -> None:
    wrote = enforced.wrote()
    with refusing(enforced, f"/mutate/{digest(P)}"):
        enforced.apply(P)
        assert eventually(lambda: enforced.condition("Stalled").get("reason") == "Refused")
        assert "not today (the policy before stays in force)" in enforced.condition("Ready")["message"]
        assert enforced.wrote() == wrote
        assert enforced.named() == (digest(Q), digest(Q))
        enforced.apply(Q)
        assert eventually(lambda: enforced.ready(digest(Q)))
    assert enforced.wrote() == wrote


def test_a_change_that_is_refused_half_way_goes_back_under_load(enforced: Release) -> None:
    with refusing(enforced, f"/mutate/{digest(P)}", "!request.dryRun"), Load(enforced) as load:
        enforced.apply(P)
        assert eventually(lambda: enforced.condition("Stalled").get("reason") == "Refused")
        assert eventually(lambda: enforced.named() == (digest(Q), digest(Q)))
        assert eventually(lambda: load.enough)
        enforced.apply(Q)
        assert eventually(lambda: enforced.ready(digest(Q)))
    assert load.wrong == []
    assert f"validate {digest(Q)}.{digest(P)}" in enforced.wrote()


def test_a_policy_that_slipped_in_and_cannot_be_used_leaves_the_one_before_in_force(enforced: Release) -> None:
    """It is so for replicas and controllers too that start only then."""

    def judges(server: int) -> bool:
        denied, admitted = (enforced.create(made, server, "--dry-run=server") for made in (forbidden(), honest()))
        return "NVIDIA_VISIBLE_DEVICES" in denied and admitted == ""

    wrong = policy()
    wrong["spec"]["pools"] = [*wrong["spec"]["pools"], {**wrong["spec"]["pools"][0], "name": "overlapping"}]
    shown = json.dumps(wrong)
    enforced.cluster.do("delete", *CONFIGURATIONS["policies"])
    try:
        slips_in = partial(enforced.cluster.kubectl, "apply", "--filename=-", stdin=shown)
        assert eventually(lambda: slips_in().returncode == 0)
        assert eventually(lambda: enforced.condition("Stalled").get("reason") == "Invalid")
        assert enforced.condition("Stalled")["status"] == "True"
        assert "the policy before stays in force" in enforced.condition("Ready")["message"]
        (problem,) = enforced.policy()["status"]["problems"]
        assert "overlaps pool" in problem
        assert one_write(enforced) == ""
        for number in range(3):
            enforced.cluster.stop(f"replica-{number}")
        before = Counter(enforced.judged_by())
        enforced.start_replica(0)
        assert eventually(lambda: enforced.health_of(0)[0] == 200)
        assert json.loads(enforced.health_of(0, "policies")[1])["held"] == [digest(Q)]
        assert all(eventually(partial(judges, server)) for server in (0, 1))
        assert eventually(lambda: {*(Counter(enforced.judged_by()) - before)} == {digest(Q)})
        assert enforced.named() == (digest(Q), digest(Q))
    finally:
        for number in (1, 2):
            enforced.start_replica(number)
        (check,) = [
            each
            for each in yaml.safe_load_all(enforced.manifests)
            if (each["kind"].lower(), each["metadata"]["name"]) == CONFIGURATIONS["policies"]
        ]
        enforced.apply(check)
        enforced.apply(Q)
    assert eventually(lambda: "webhooks" in enforced.cluster.get(*CONFIGURATIONS["policies"]))
    assert eventually(lambda: enforced.ready(digest(Q)))


def shown_diff(release: Release, old: Object, new: Object) -> Object:
    """What `slicewarden diff --live` says of two policies."""
    files: list[Path] = []
    for name, value in (("old", old), ("new", new)):
        file = release.cluster.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(value), "utf-8")
        files.append(file)
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "webhook",
        "diff",
        *files,
        "--live",
        "--format",
        "json",
        "--fail-on",
        "never",
    ]
    command += ["--kubeconfig", release.cluster.kubeconfig()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout)["summary"])


def test_a_second_policy_says_what_it_would_deny_and_takes_over_when_the_first_is_deleted(enforced: Release) -> None:
    plain = pod("reader", TEAM, limits={})
    plain["spec"]["hostPID"] = True
    for value in (honest(), honest(), plain):
        assert enforced.create(value) == ""
    stricter = policy(**MORE)
    stricter["metadata"] = {"name": "stricter"}
    shared = [{**each, "tenants": {"namespaces": ["nobody"]}} for each in stricter["spec"]["pools"]]
    stricter["spec"]["pools"] = shared
    enforced.apply(stricter)
    said = shown_diff(enforced, Q, stricter)["denied"]
    assert said >= 2
    assert eventually(lambda: enforced.policy("stricter").get("status", {}).get("wouldDeny") == said)
    status = enforced.policy("stricter")["status"]
    assert enforced.condition("Ready", "stricter")["reason"] == "NotInForce"
    assert len(status["wouldDenySample"]) == said
    assert all(line.startswith(f"Pod {TEAM}/honest-") for line in status["wouldDenySample"])
    assert enforced.named() == (digest(Q), digest(Q))
    with Load(enforced, makes=(forbidden,)) as load:
        enforced.cluster.do("delete", "gpusharingpolicy", "sample")
        assert eventually(lambda: enforced.ready(name="stricter"))
    assert load.wrong == []
    assert load.forbidden > 0
    assert "wouldDeny" not in enforced.policy("stricter")["status"]
    assert enforced.named() == (digest(stricter), digest(stricter))
    enforced.apply(Q)
    enforced.cluster.do("delete", "gpusharingpolicy", "stricter")
    assert eventually(lambda: enforced.ready(digest(Q)))


def everything_written(release: Release) -> Object:
    """The versions of all objects that a controller writes, and the status of the policy."""
    return {**versions(release), "status": release.policy()["status"]}


def test_a_label_changes_no_digest_and_writes_nothing(enforced: Release) -> None:
    enforced.cluster.stop(enforced.controller)
    assert eventually(lambda: one_write(enforced) == "")
    before = everything_written(enforced)
    enforced.cluster.do("label", "gpusharingpolicy", "sample", "argocd.argoproj.io/instance=app")
    enforced.cluster.do("annotate", "gpusharingpolicy", "sample", "example.com/note=new")
    assert one_write(enforced) == ""
    assert everything_written(enforced) == before


def test_a_namespace_that_may_not_be_read_is_named_and_the_policy_before_stays(enforced: Release) -> None:
    elsewhere = policy(**MORE)
    elsewhere["spec"]["sharing"] = {**elsewhere["spec"]["sharing"], "namespaces": ["gpu-operator", "team-x"]}
    enforced.cluster.do("create", "namespace", "team-x")
    enforced.apply(elsewhere)
    assert eventually(lambda: enforced.condition("Stalled").get("reason") == "FactsUnreadable")
    assert "of team-x" in enforced.condition("Ready")["message"]
    assert enforced.named() == (digest(Q), digest(Q))
    enforced.apply(Q)
    assert eventually(lambda: enforced.ready(digest(Q)))


def test_a_change_of_mode_changes_no_digest_and_an_event_tells_of_it(enforced: Release) -> None:
    enforced.apply(policy(mode="Audit", **MORE))
    assert eventually(lambda: enforced.ready() and enforced.named()[0].endswith("-audit"))
    assert enforced.policy()["status"]["digest"] == digest(Q)
    enforced.apply(Q)
    assert eventually(lambda: enforced.ready(digest(Q)))

    def told() -> set[str]:
        found = enforced.cluster.get("events.events.k8s.io", "--namespace=default")["items"]
        return {each["reason"] for each in found if each["regarding"]["kind"] == "GPUSharingPolicy"}

    assert eventually(lambda: {"InForce", "NotInForce", "FactsUnreadable"} <= told())


def test_the_role_allows_no_creation_and_no_other_names(enforced: Release) -> None:
    def may(*words: str) -> bool:
        return enforced.cluster.kubectl("auth", "can-i", *words, user=ACCOUNT).stdout.strip() == "yes"

    for plural in BOTH.split(","):
        assert may("patch", f"{plural}/slicewarden")
        for words in (("create", plural), ("delete", f"{plural}/slicewarden"), ("patch", f"{plural}/other")):
            assert not may(*words)
    assert not may("list", "secrets", f"--namespace={HOME}")
    assert not may("get", "pods", f"--namespace={TEAM}")
    assert not may("create", "pods", f"--namespace={TEAM}")
    assert not may("patch", "validatingadmissionpolicies/slicewarden-guard")


SERVICE: Object = {"namespace": HOME, "name": "slicewarden", "port": 443}


def everything() -> Object:
    """A policy that registers every webhook there is."""
    value = policy()
    spec = value["spec"]
    spec["priorities"] = [{"classes": ["high"], "namespaces": [TEAM]}]
    spec["sharing"] = {**spec["sharing"], "configMaps": [{"namespace": "kube-system", "name": "sharing"}]}
    spec["pools"][0]["scheduler"] = "another-scheduler"
    spec["trust"] = {**spec["trust"], "grants": [{"namespaces": [TEAM], "users": ["root"]}]}
    return value


def another() -> Object:
    """A policy whose pools select nodes by one label more, and that names another ConfigMap."""
    value = everything()
    spec = value["spec"]
    spec["sharing"]["configMaps"] += [{"namespace": "kube-system", "name": "another"}]
    nodes = spec["pools"][0]["nodes"]
    nodes["matchLabels"] = {**nodes.get("matchLabels", {}), "example.com/more": "x"}
    return value


def hook(**changes: Any) -> Object:
    return {
        "name": "evil.example.com",
        "clientConfig": {"service": {**SERVICE, "path": "/x"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        **changes,
    }


Change = Callable[[Object], object]
"""Changes a webhook."""


def rule(group: str, resource: str, *operations: str) -> Object:
    asked = {"apiGroups": [group], "apiVersions": ["*"], "resources": [resource]}
    return {**asked, "operations": [*operations] or ["CREATE", "UPDATE"]}


def service(**fields: Any) -> Change:
    return lambda hook: hook["clientConfig"]["service"].update(fields)


def without(*keys: str) -> Change:
    return lambda hook: [hook.pop(key) for key in keys]


def asking(*rules: Object, **fields: Any) -> Change:
    return lambda hook: hook.update(rules=[*rules], **fields)


PROBED = {
    "apiGroups": ["coordination.k8s.io"],
    "apiVersions": ["v1"],
    "resources": ["leases"],
    "operations": ["UPDATE"],
}
KINDS = "kinds of the engine's tables"
ALONE = "leave kube-system and slicewarden-system alone"
FORBIDDEN: dict[str, tuple[str, str, Change, str]] = {
    "url": ("validate", "pods", lambda hook: hook.update(clientConfig={"url": "https://evil.example.com/"}), "no URL"),
    "namespace": ("validate", "pods", service(namespace=TEAM), "only register the Service"),
    "service": ("mutate", "mutate", service(name="another"), "only register the Service"),
    "port": ("validate", "pods", service(port=8443), "only register the Service"),
    "path": ("validate", "pods", service(path="/validate"), "paths that name policies"),
    "path of policies": ("validate", "pods", service(path="/policy"), "paths that name policies"),
    "path of the other half": ("mutate", "mutate", service(path=f"/validate/{'0' * 16}"), "paths that name policies"),
    "two patch": ("mutate", "mutate", service(path=f"/mutate/{'0' * 16}.{'1' * 16}"), "paths that name policies"),
    **{
        f"{group}/{resource}": ("validate", "pods", asking(rule(group, resource)), KINDS)
        for group, resource in (
            ("", "secrets"),
            ("", "serviceaccounts"),
            ("", "events"),
            ("", "pods/exec"),
            ("", "*"),
            ("*", "pods"),
            ("*", "*/*"),
            ("apps", "pods"),
            ("apps", "deployments/scale"),
            ("apiextensions.k8s.io", "customresourcedefinitions"),
            ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
            ("rbac.authorization.k8s.io", "clusterroles"),
            ("certificates.k8s.io", "certificatesigningrequests"),
            ("authentication.k8s.io", "tokenreviews"),
            ("slicewarden.dev", "gpusharingpolicies"),
        )
    },
    "what is never patched": ("mutate", "mutate", asking(rule("", "nodes")), KINDS),
    "a second rule": ("validate", "pods", lambda hook: hook["rules"].append(rule("", "secrets")), KINDS),
    "deletion": ("validate", "pods", asking(rule("", "pods", "DELETE")), "creations and updates"),
    "connection": ("validate", "pods", asking(rule("", "pods", "CONNECT")), "creations and updates"),
    "any operation": ("validate", "pods", asking(rule("", "pods", "*")), "creations and updates"),
    "every lease": ("validate", "probe-validate", without("matchConditions"), "dry runs of one Lease"),
    "leases elsewhere": ("mutate", "probe-mutate", without("namespaceSelector"), "dry runs of one Lease"),
    "leases of others": (
        "validate",
        "probe-validate",
        lambda hook: hook["matchConditions"][0].update(expression="true"),
        "dry runs of one Lease",
    ),
    "leases that fail": ("validate", "probe-validate", lambda hook: hook.update(failurePolicy="Fail"), "one Lease"),
    "leases beside pods": ("validate", "pods", lambda hook: hook["rules"].append(PROBED), "dry runs of one Lease"),
    "deleted leases": ("validate", "probe-validate", asking({**PROBED, "operations": ["CREATE"]}), "one Lease"),
    "everywhere": ("validate", "pods", without("namespaceSelector"), ALONE),
    "system namespaces": (
        "validate",
        "pods",
        lambda hook: hook["namespaceSelector"]["matchExpressions"][0].update(values=["gpu-operator"]),
        ALONE,
    ),
    "another label": (
        "validate",
        "pods",
        lambda hook: hook["namespaceSelector"]["matchExpressions"][0].update(key="team"),
        ALONE,
    ),
    "labelled namespaces": (
        "validate",
        "pods",
        lambda hook: hook["namespaceSelector"].update(matchLabels={"a": "b"}),
        ALONE,
    ),
    "only some namespaces": (
        "validate",
        "pods",
        lambda hook: hook["namespaceSelector"]["matchExpressions"][0].update(operator="In"),
        ALONE,
    ),
    "labelled objects": (
        "validate",
        "pods",
        lambda hook: hook.update(objectSelector={"matchLabels": {"a": "b"}}),
        "no objectSelector",
    ),
    "unlabelled objects": (
        "validate",
        "nodes",
        lambda hook: hook.update(objectSelector={"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}),
        "no objectSelector",
    ),
    "every node": ("validate", "nodes", lambda hook: hook["matchConditions"][0].update(expression="true"), "labels of"),
    "a wider condition on nodes": (
        "validate",
        "nodes",
        lambda hook: hook["matchConditions"][0].update(expression=hook["matchConditions"][0]["expression"] + "|| true"),
        "labels of nodes",
    ),
    "no condition": ("validate", "pods", without("matchConditions"), "one condition"),
    "patches that fail": ("mutate", "mutate", lambda hook: hook.update(failurePolicy="Fail"), "may not let patches"),
    "long waits": ("validate", "pods", lambda hook: hook.update(timeoutSeconds=30), "timeouts"),
    "policies that fail": (
        "policies",
        "policies",
        lambda hook: hook.update(failurePolicy="Fail"),
        "that are applied, fail",
    ),
    "policies elsewhere": ("policies", "policies", service(path=f"/validate/{'0' * 16}"), "paths that name policies"),
    "pods by the check of policies": ("policies", "policies", asking(rule("", "pods")), KINDS),
}
CONFIGURATIONS = {
    "validate": ("validatingwebhookconfiguration", "slicewarden"),
    "mutate": ("mutatingwebhookconfiguration", "slicewarden"),
    "policies": ("validatingwebhookconfiguration", "slicewarden-policies"),
}


def try_to_write(release: Release, which: str, change: Callable[[Object], object]) -> subprocess.CompletedProcess[str]:
    """Write a changed configuration for show, by the controller's account."""
    found = release.cluster.get(*CONFIGURATIONS[which])
    change(found)
    kind, name = CONFIGURATIONS[which]
    patch = [{"op": "replace", "path": f"/{key}", "value": found[key]} for key in ("metadata", "webhooks")]
    words = ["patch", kind, name, "--type=json", f"--patch={json.dumps(patch)}", "--dry-run=server"]
    return release.cluster.kubectl(*words, user=ACCOUNT)


@pytest.mark.parametrize(("which", "name", "change", "why"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_the_guard_refuses_what_a_stolen_token_would_register(
    enforced: Release, which: str, name: str, change: Change, why: str
) -> None:
    def changed(configuration: Object) -> None:
        (one,) = (each for each in configuration["webhooks"] if each["name"] == f"{name}.slicewarden.dev")
        change(one)

    tried = try_to_write(enforced, which, changed)
    assert tried.returncode != 0
    assert "slicewarden-guard" in tried.stderr
    assert why in tried.stderr


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {}},
        {"labels": {"app.kubernetes.io/part-of": "another"}},
        {"finalizers": ["example.com/never"]},
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "x"}]},
    ],
    ids=["no label", "label", "finalizer", "owner"],
)
def test_the_guard_refuses_what_would_keep_the_registration_or_have_it_collected(
    enforced: Release, metadata: Object
) -> None:
    tried = try_to_write(enforced, "validate", lambda found: found["metadata"].update(metadata))
    assert tried.returncode != 0
    assert "the controller may change no" in tried.stderr


@pytest.mark.parametrize(
    "kind", ["secret/slicewarden-ca", "secret/slicewarden-serving", "lease/slicewarden-controller"]
)
def test_the_guard_refuses_owners_that_would_have_other_objects_collected(enforced: Release, kind: str) -> None:
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "x"}
    patch = json.dumps({"metadata": {"ownerReferences": [owner]}})
    words = ["patch", kind, f"--namespace={HOME}", "--type=merge", f"--patch={patch}", "--dry-run=server"]
    tried = enforced.cluster.kubectl(*words, user=ACCOUNT)
    assert "no finalizers and no owners" in tried.stderr


def test_in_kube_system_the_guard_lets_only_named_config_maps_be_judged(enforced: Release) -> None:
    full = read(everything())
    hooks = filled.webhooks(EnginePath(VALIDATE, (Name(full.digest),)), {full.digest: full}, "")
    (named,) = [each for each in hooks if each["name"] == "named-configmaps.slicewarden.dev"]
    for expression in ("true", f"{named['matchConditions'][0]['expression']}|| request.namespace == 'kube-system'"):
        named["matchConditions"][0]["expression"] = expression
        tried = try_to_write(enforced, VALIDATE, partial(dict.update, webhooks=hooks))
        assert "ConfigMaps by their names" in tried.stderr


def test_the_guard_lets_the_controller_write_what_any_policy_registers(enforced: Release) -> None:
    for which in CONFIGURATIONS:
        done = try_to_write(enforced, which, lambda found: found["webhooks"].reverse())
        assert done.returncode == 0, done.stderr
        done = try_to_write(enforced, which, lambda found: found["webhooks"].clear())
        assert done.returncode == 0, done.stderr
    found = {each["name"] for each in enforced.cluster.get(*CONFIGURATIONS["validate"])["webhooks"]}
    full, other = read(everything()), read(another())
    read_both = {each.digest: each for each in (full, other)}
    paths = (
        EnginePath(VALIDATE, (Name(full.digest), Name(full.digest, Manner.AUDIT))),
        EnginePath(VALIDATE, (Name(full.digest), Name(other.digest))),
        EnginePath(MUTATE, (Name(full.digest),)),
    )
    registered: set[str] = set()
    for path in paths:
        hooks = filled.webhooks(path, read_both, "")
        registered |= {each["name"] for each in hooks}
        done = try_to_write(enforced, path.half, partial(dict.update, webhooks=hooks))
        assert done.returncode == 0, done.stderr
    assert {
        "revisions.slicewarden.dev",
        "named-configmaps.slicewarden.dev",
        "groups.slicewarden.dev",
    } <= registered - found


def test_a_kind_that_a_policy_adds_is_refused_until_the_guard_has_it(enforced: Release) -> None:
    added = {"group": "example.com", "kind": "Training", "resource": "trainings", "templates": ["spec.template"]}
    more = policy(**MORE, workloads=[added], priorities=[{"classes": ["high"], "namespaces": [TEAM]}])
    enforced.apply(more)
    assert eventually(lambda: enforced.condition("Stalled").get("reason") == "Refused")
    assert "variable `added`" in enforced.condition("Ready")["message"]
    assert enforced.named() == (digest(Q), digest(Q))
    objects = [
        each for each in yaml.safe_load_all(enforced.manifests) if each["metadata"]["name"] == "slicewarden-guard"
    ]
    guard = {each["kind"]: each for each in objects}["ValidatingAdmissionPolicy"]
    wider = json.dumps(guard).replace("['']", "['example.com/trainings']")
    assert wider != json.dumps(guard)
    # two authorities in one bundle, while one is rotated
    trusted = bundles(enforced.cluster.get(BOTH, "--selector=app.kubernetes.io/part-of=slicewarden")["items"])
    assert len(trusted) == 1
    with recorded(enforced) as written:
        enforced.cluster.do("apply", "--filename=-", stdin=wider)
        assert eventually(lambda: enforced.ready(digest(more)))
    judging = [each["webhooks"] for each in written if each["kind"] == "ValidatingWebhookConfiguration"]
    before, *_, after = ({hook["name"] for hook in hooks} for hooks in judging)
    assert after - before == {"groups.slicewarden.dev"}, "the policy adds it"
    assert bundles(written) == trusted
    enforced.apply(Q)
    assert eventually(lambda: enforced.ready(digest(Q)))
    enforced.apply(guard)


@pytest.mark.needs(offered.FALLBACK)
def test_an_emergency_stays_in_force_and_an_install_brings_all_back_through_audit(enforced: Release) -> None:
    enforced.cluster.do("delete", BOTH, "--selector=app.kubernetes.io/part-of=slicewarden")
    assert eventually(lambda: enforced.condition("Ready").get("reason") == "RegistrationGone")
    assert enforced.condition("Stalled")["status"] == "True"
    by_fallback = "ValidatingAdmissionPolicy 'slicewarden-pods'"  # it is what the fallback is for
    assert eventually(lambda: by_fallback in enforced.create(forbidden(), 0, "--dry-run=server"))
    items = [each for each in yaml.safe_load_all(enforced.manifests) if each["kind"].endswith("WebhookConfiguration")]
    enforced.cluster.do("apply", "--filename=-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert eventually(lambda: enforced.ready(digest(Q)))
    assert enforced.wrote()[-5] == f"validate {digest(Q)}-audit"


def test_off_judges_nothing_and_audit_denies_nothing(enforced: Release) -> None:
    enforced.apply(policy(mode="Audit", **MORE))
    assert eventually(lambda: enforced.ready() and enforced.named()[0].endswith("-audit"))
    # The API server reads that the fallback is empty a moment after the controller wrote it.
    assert eventually(lambda: enforced.create(forbidden(), 0, "--dry-run=server") == "")
    enforced.apply(policy(mode="Off"))
    assert eventually(lambda: enforced.ready() and enforced.named() == ("", ""))


def test_without_a_policy_nothing_is_registered_replicas_are_ready_and_doctor_says_so(release: Release) -> None:
    release.works()
    release.cluster.do("delete", "gpusharingpolicies", "--all")
    assert eventually(lambda: release.named() == ("", ""))
    for half in (VALIDATE, MUTATE):
        assert not release.cluster.get(*CONFIGURATIONS[half]).get("webhooks")
    assert eventually(lambda: {release.health_of(number)[0] for number in range(3)} == {200})
    assert eventually(lambda: {release.create(forbidden(), at, "--dry-run=server") for at in (0, 1)} == {""})
    command = ["doctor", "--kubeconfig", str(release.cluster.kubeconfig()), "--format", "json"]
    done = subprocess.run([sys.executable, "-m", "webhook", *command], capture_output=True, text=True, check=False)
    said = {each["check"]: (each["state"], each["message"]) for each in json.loads(done.stdout)["checks"]}
    assert said["policy"] == ("ok", "there is no policy, so nothing is judged")
    assert said["registration"] == ("ok", "nothing is registered")


def test_a_new_controller_writes_nothing_while_nothing_changes(enforced: Release) -> None:
    enforced.cluster.stop(enforced.controller)
    assert eventually(lambda: one_write(enforced) == "")
    before = everything_written(enforced)
    assert [one_write(enforced) for _ in range(3)] == ["", "", ""]
    assert everything_written(enforced) == before
