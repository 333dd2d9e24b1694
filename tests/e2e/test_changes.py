"""Changes on two API servers, wherever a controller is killed, frozen or late, and whatever else changes meanwhile."""

import http.client
import json
import ssl
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

import certs
from certs import life
from certs.read import blocks, certificates
from tests.e2e import nightly
from tests.e2e.control_plane import User, eventually
from tests.e2e.objects import pod, template, workload
from tests.e2e.release import (
    ACCOUNT,
    BOTH,
    HOME,
    TEAM,
    Load,
    Object,
    P,
    Q,
    Relay,
    Release,
    connected,
    digest,
    forbidden,
    honest,
    one_write,
    policy,
    releasing,
    versions,
)
from webhook.cluster import client
from webhook.cluster.cert_store import ClusterStore, ObjectNames
from webhook.controller.controller import Controller
from webhook.engine.paths import MUTATE, VALIDATE, Manner

ELSEWHERE = "elsewhere"
"""A namespace that only Q leaves alone."""

REPLICAS = (0, 1, 2)

PLAIN = (
    pod("plain", TEAM, limits={}),
    pod("counted", TEAM, limits={"cpu": 1}, volumes=[{"name": "scratch", "emptyDir": {}}]),
    workload("Deployment", "plain", TEAM, template()),
)
"""Objects that are none of the policy's."""


@pytest.fixture(scope="module")
def release(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    folder = tmp_path_factory.mktemp("changes")
    flags = [*nightly.audited(folder), "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"]
    with releasing(folder, programs, flags=flags) as made:
        made.cluster.do("create", "namespace", ELSEWHERE)
        made.cluster.do("create", "serviceaccount", "default", f"--namespace={ELSEWHERE}")
        yield made


@pytest.fixture
def alone(release: Release) -> Release:
    """The release with P in force, and no controller that works."""
    release.in_force(P)
    release.cluster.stop(release.controller)
    return release


def answers_from_now_on(release: Release, load: Load) -> list[tuple[str, str]]:
    """What the webhooks say of themselves for pods that API servers receive from now on: a webhook's key, and a value.

    Each API server has judged some of both kinds then. Nothing is kept of a webhook that was too late, nor of the one
    that denied a pod.
    """
    began, honest, before = datetime.now(UTC), load.honest, [len(each) for each in load.admitted]
    assert eventually(lambda: load.honest > honest + 20)
    assert eventually(
        lambda: all(len(each) > already + 10 for each, already in zip(load.admitted, before, strict=True))
    )
    said = nightly.answers_since(release.cluster.folder / nightly.LOG, began)
    return [each for annotations in said for each in annotations.items() if each[0].endswith(("/policy", "/mode"))]


def assert_only(release: Release, load: Load, value: Object) -> None:
    """Every answer that an API server gets from now on is that of one policy, in its mode."""
    assert release.ready(digest(value))
    found = Counter(answers_from_now_on(release, load))
    hooks = ("mutate.slicewarden.dev", "pods.slicewarden.dev")
    wanted = {(f"{hook}/policy", digest(value)) for hook in hooks}
    if value["spec"]["mode"] == "Audit":
        wanted |= {(f"{hook}/mode", "audit") for hook in hooks}
    assert found.keys() == wanted
    assert min(found.values()) > 10
    print(f"{sum(found.values())} answers after Ready")


def registered(release: Release) -> list[Object]:
    found = release.cluster.get(BOTH, "--selector=app.kubernetes.io/part-of=slicewarden")["items"]
    return [hook for each in found for hook in each.get("webhooks", ())]


def denied_by_the_fallback(release: Release) -> list[str]:
    """What policies of the fallback say, at any API server, against a pod that Q leaves alone."""
    spared = forbidden()
    spared["metadata"]["namespace"] = ELSEWHERE
    said = [release.create(spared, server, "--dry-run=server") for server in (0, 1)]
    return [each for each in said if "ValidatingAdmissionPolicy" in each]


@pytest.mark.parametrize(("old", "new"), [(P, Q), (Q, P)], ids=["to Q", "back to P"])
def test_killed_after_each_write_other_controllers_finish_and_no_step_refuses_what_it_lets_in(
    alone: Release, old: Object, new: Object
) -> None:
    release = alone
    if old is not P:
        release.in_force(old)
        release.cluster.stop(release.controller)
    steps = list[str]()
    with Load(release) as load:
        release.apply(new)
        before = versions(release)
        while wrote := one_write(release):
            after = versions(release)
            assert len(before.items() ^ after.items()) <= 2, (wrote, before, after)  # one object, or one more or less
            assert all(hook["clientConfig"]["caBundle"] for hook in registered(release))
            if digest(Q) in release.named()[0]:
                assert denied_by_the_fallback(release) == []
            before, steps = after, [*steps, wrote]
        assert_only(release, load, new)
    print(f"{len(steps)} writes; {load}")
    assert load.wrong == []
    p, q = digest(old), digest(new)
    assert [each for each in steps if each.startswith(("validate", "mutate"))] == [
        f"validate {p}.{q}",
        f"mutate {q}",
        f"validate {q}",
    ]
    assert "fallback slicewarden-pods" in steps[steps.index(f"validate {q}") :]


@contextmanager
def dead(release: Release) -> Iterator[None]:
    """Kill all replicas, and start others when the block ends."""
    for number in REPLICAS:
        release.cluster.stop(f"replica-{number}")
    try:
        yield
    finally:
        for number in REPLICAS:
            release.start_replica(number)
    assert eventually(lambda: all(serves(release, number) for number in REPLICAS))


def written_until_ready(release: Release) -> Iterator[str]:
    """Yield each write of a change, made by a controller of its own, and in the end nothing."""
    while wrote := one_write(release):
        yield wrote
    yield ""


def test_in_every_step_plain_pods_are_created_with_all_replicas_and_controllers_dead(alone: Release) -> None:
    release, steps = alone, list[str]()
    for value in (Q, policy("Off"), P):
        release.apply(value)
        for wrote in written_until_ready(release):
            if wrote and not wrote.startswith((VALIDATE, MUTATE)):
                continue
            steps.append(wrote)
            assert eventually(release.called), wrote
            names = release.place().validate
            denies = bool(names) and all(name.manner is Manner.ENFORCE for name in names)
            with dead(release):
                for server in (0, 1):
                    for plain in PLAIN:
                        assert release.create(plain, server, "--dry-run=server") == "", wrote
                    assert bool(release.create(honest(), server, "--dry-run=server")) is denies, wrote
        assert release.ready(digest(value))
    p, q = digest(P), digest(Q)
    assert steps == [
        *(f"validate {p}.{q}", f"mutate {q}", f"validate {q}", "", "validate nothing", "mutate nothing", ""),
        *(f"validate {p}-audit", f"mutate {p}-audit", f"validate {p}-audit.{p}", f"mutate {p}", f"validate {p}", ""),
    ]


def test_where_the_api_server_checks_owners_the_controller_has_no_policy_of_the_fallback_collected(
    release: Release,
) -> None:
    release.in_force(P)
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "x"}
    patch = json.dumps({"metadata": {"ownerReferences": [owner]}})
    words = ["patch", "validatingadmissionpolicy", "slicewarden-pods", "--type=merge", "--dry-run=server"]
    tried = release.cluster.kubectl(*words, f"--patch={patch}", user=ACCOUNT)
    assert "cannot set an ownerRef on a resource you can't delete" in tried.stderr
    label = json.dumps({"metadata": {"annotations": {"example.com/note": "x"}}})
    assert release.cluster.kubectl(*words, f"--patch={label}", user=ACCOUNT).returncode == 0


def test_the_late_write_of_a_controller_that_was_frozen_is_refused(
    alone: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken = list[str]()

    def frozen(method: str, url: str, **more: Any) -> Any:
        """Freeze before the first write of the registration, until another controller has made the whole change."""
        if not woken and method == "PATCH" and "webhookconfigurations/slicewarden?" in url and "dryRun" not in url:
            woken.append(url)
            alone.start_controller()
            assert eventually(lambda: alone.ready(digest(Q)))
        return request(method, url, **more)

    alone.apply(Q)
    with connected(alone) as api:
        request = api.rest_client.pool_manager.request
        monkeypatch.setattr(api.rest_client.pool_manager, "request", frozen)
        late = Controller(api, alone.terms, lambda _: None)
        with pytest.raises(client.StatusError) as refused:
            eventually(lambda: late.look() is None)
    assert woken
    assert refused.value.status == client.CONFLICT
    assert alone.named() == (digest(Q), digest(Q))


def refusal(release: Release) -> str:
    """The name of an honest pod, and why it is refused; empty if it is admitted."""
    made = honest()
    why = release.create(made, 0, "--dry-run=server")
    return f"{made['metadata']['name']}: {why}" if why else ""


def test_an_outage_is_told_apart_from_a_wrong_order(release: Release) -> None:
    release.in_force(Q)
    assert eventually(lambda: digest(P) not in str(versions(release)))  # it is forgotten some seconds after the change
    release.cluster.stop(release.controller)
    with ExitStack() as stack:
        for each in release.cluster.components:
            if each.name.startswith("replica-"):
                stack.enter_context(each.frozen())
        outage = [refusal(release) for _ in range(3)]
    assert all(outage)
    assert nightly.wrong(release, outage) == []
    release.apply(P)
    wrote = ""
    while wrote != f"revision {digest(P)}":
        wrote = one_write(release)
        assert wrote
    assert eventually(lambda: all(digest(P) in release.health_of(number, "policies")[1] for number in REPLICAS))
    changed = release.cluster.do("get", "mutatingwebhookconfiguration", "slicewarden", "--output=json")
    release.cluster.do("replace", "--filename=-", stdin=changed.replace(digest(Q), digest(P)))
    assert eventually(release.called)
    assert eventually(lambda: bool(nightly.wrong(release, [*filter(None, [refusal(release)])])))
    release.start_controller()
    assert eventually(lambda: release.ready(digest(P)))


def answer(release: Release, number: int, path: str) -> int:
    """The status with which a replica answers a review by a path."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(f"127.0.0.1:{release.reviews[number]}", context=context, timeout=60)
    value = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request_of(forbidden())}
    with closing(connection):
        connection.request("POST", path, json.dumps(value), {"Content-Type": "application/json"})
        return connection.getresponse().status


def request_of(pod: Object) -> Object:
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    metadata = pod["metadata"]
    about = {"uid": "u", "kind": kind, "resource": resource, "operation": "CREATE", "userInfo": {"username": "alice"}}
    return {**about, "name": metadata["name"], "namespace": metadata["namespace"], "object": pod}


def test_a_replica_that_lacks_a_policy_stops_a_change_is_named_and_answers_503(release: Release) -> None:
    release.in_force(P)
    way = Relay("127.0.0.1", 0, [urlsplit(release.cluster.url).port or 0])
    release.stop_replica(2)
    release.start_replica(2, server=way.url)
    assert eventually(lambda: release.health_of(2)[0] == HTTPStatus.OK)
    way.close()
    release.apply(Q)
    lacks = f"127.0.0.1:{release.health[2]} lacks {digest(Q)}"
    assert eventually(lambda: lacks in release.condition("Ready").get("message", ""))
    assert release.condition("Reconciling")["status"] == "True"
    assert release.named() == (digest(P), digest(P))
    assert answer(release, 2, f"/validate/{digest(P)}") == HTTPStatus.OK
    began = time.monotonic()
    assert answer(release, 2, f"/validate/{digest(Q)}") == HTTPStatus.SERVICE_UNAVAILABLE
    print(f"503 after {time.monotonic() - began:.2f} s")
    release.stop_replica(2)
    release.start_replica(2)
    assert eventually(lambda: release.ready(digest(Q)))


def test_a_frozen_replica_stops_a_change_and_is_named_until_it_is_woken(release: Release) -> None:
    release.in_force(P)
    (replica,) = [each for each in release.cluster.components if each.name == "replica-1"]
    with replica.frozen():
        release.apply(Q)
        says = f"127.0.0.1:{release.health[1]} does not answer"
        assert eventually(lambda: says in release.condition("Ready").get("message", ""))
        assert release.condition("Ready")["status"] == "False"
        assert release.condition("Reconciling")["status"] == "True"
        assert release.named() == (digest(P), digest(P))
    assert eventually(lambda: release.ready(digest(Q)))
    assert release.named() == (digest(Q), digest(Q))


def test_a_commit_changes_the_policy(release: Release, tmp_path: Path) -> None:
    """As people do with Git: a kustomization in a repository, and `kubectl apply -k` of a clone of each commit."""
    origin, clone = tmp_path / "origin", tmp_path / "clone"

    def git(folder: Path, *words: str | Path) -> None:
        author = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *author, *words], cwd=folder, check=True, capture_output=True)

    def committed(value: Object) -> None:
        (origin / "policy.yaml").write_text(yaml.safe_dump(value), "utf-8")
        git(origin, "add", "--all")
        git(origin, "commit", "--message=policy: change it")

    origin.mkdir()
    git(origin, "init", "--quiet")
    (origin / "kustomization.yaml").write_text("resources: [policy.yaml]\n", "utf-8")
    committed(P)
    git(tmp_path, "clone", "--quiet", origin, clone)
    release.in_force(P)
    for value in (P, Q):
        if value is Q:
            committed(value)
        git(clone, "pull", "--quiet")
        release.cluster.do("apply", f"--kustomize={clone}")
        release.cluster.do("wait", "--for=condition=Ready", "gpusharingpolicy/sample", "--timeout=300s")
        assert eventually(partial(release.ready, digest(value)))
        assert release.cluster.kubectl("diff", f"--kustomize={clone}").returncode == 0
    assert release.named() == (digest(Q), digest(Q))


REPLICA = User(f"system:serviceaccount:{HOME}:slicewarden", ("system:serviceaccounts",))


def test_the_token_of_a_replica_may_write_nothing_by_which_others_are_led(release: Release) -> None:
    release.in_force(P)
    writes = {
        "leases": ("patch", f"--namespace={HOME}"),
        "configmaps": ("create", f"--namespace={HOME}"),
        "endpointslices": ("patch", f"--namespace={HOME}"),
        "services": ("patch", f"--namespace={HOME}"),
        "pods": ("create", f"--namespace={HOME}"),
        "secrets": ("get", f"--namespace={HOME}"),
        "serviceaccounts/token": ("create", f"--namespace={HOME}"),
        "gpusharingpolicies/status": ("patch",),
        "validatingwebhookconfigurations": ("patch",),
        "validatingadmissionpolicies": ("patch",),
    }
    for resource, (verb, *where) in writes.items():
        said = release.cluster.kubectl("auth", "can-i", verb, resource, *where, user=REPLICA)
        assert said.stdout.strip() == "no", (verb, resource, said.stderr)
    read = release.cluster.kubectl("auth", "can-i", "list", "configmaps", f"--namespace={HOME}", user=REPLICA)
    assert read.stdout.strip() == "yes"  # the account is that of the replicas


@pytest.mark.parametrize(("mode", "then"), [("Audit", "Enforce"), ("Enforce", "Audit")])
def test_a_change_of_mode_refuses_nothing_that_is_allowed_and_comes_at_one_moment(
    release: Release, mode: str, then: str
) -> None:
    release.in_force(policy(mode))
    lets_in = then == "Audit"
    with Load(release) as load:
        assert eventually(lambda: load.enough)
        release.apply(policy(then))
        assert eventually(release.ready)
        assert eventually(lambda: all(each[-1] is lets_in for each in load.admitted))
        assert_only(release, load, policy(then))
    print(load)
    assert load.refused == []
    for admitted in load.admitted:  # an API server that lets in once what it refused never goes back, and so on
        assert admitted == sorted(admitted, reverse=not lets_in)
        assert {*admitted} == {True, False}


def test_another_release_waits_until_validate_forgives_and_no_pod_is_judged_wrongly(
    alone: Release, release_before: Path
) -> None:
    release = alone

    def replaced(number: int, more: Mapping[str, Any]) -> None:
        release.stop_replica(number)
        release.start_replica(number, *more.get("options", ()), environment=more.get("environment"))

    before: Mapping[str, Any] = {"options": ("--release", "before"), "environment": {"PYTHONPATH": release_before}}
    with Load(release) as load:
        replaced(0, before)
        assert eventually(lambda: release.health_of(0) == (503, "release before is not admitted yet\n"))
        wrote, honest = release.wrote(), load.honest
        assert eventually(lambda: load.honest > honest + 10)
        assert release.wrote() == wrote
        assert release.health_of(0)[0] == HTTPStatus.SERVICE_UNAVAILABLE
        release.start_controller()
        for other in (before, {}):
            for number in (0, 1, 2):
                if not (other and number == 0):
                    replaced(number, other)
                assert eventually(partial(serves, release, number))
            assert eventually(lambda: release.wrote()[-1] == f"validate {digest(P)}")
            assert eventually(release.ready)
            assert_only(release, load, P)
    print(load)
    assert load.wrong == []
    steps = release.wrote()[len(wrote) :]
    lenient, admits = f"validate {digest(P)}-lenient", [each for each in steps if each.startswith("releases")]
    assert steps == [
        lenient, admits[0], admits[1], f"validate {digest(P)}", lenient, admits[2], admits[3], f"validate {digest(P)}",
    ]  # fmt: skip


def serves(release: Release, number: int) -> bool:
    return release.health_of(number)[0] == HTTPStatus.OK


def a_day_passes(store: ClusterStore) -> None:
    """Write the times of a rotation into the store as they would stand there a day later."""
    kept = store.read()
    ours, day = kept.authorities, timedelta(days=1)
    published, replaced = (each and each - day for each in (ours.published, ours.replaced))
    store.write(replace(kept, authorities=replace(ours, published=published, replaced=replaced)))


def all_serve_what_is_stored(release: Release, store: ClusterStore) -> bool:
    """Bring the certificate of the Secret to the replicas, and say whether each serves it."""
    stored = store.read().serving
    assert isinstance(stored, certs.Pair)
    release.mount()
    served = [ssl.get_server_certificate(("127.0.0.1", port)).encode() for port in release.reviews]
    return [certificates(each) for each in served] == [certificates(stored.certificate_pem)] * len(served)


def test_a_new_ca_and_a_new_policy_at_once_fail_no_call(alone: Release) -> None:
    release = alone
    names = ObjectNames(HOME, "slicewarden-ca", "slicewarden-serving", "slicewarden")
    api = client.connect(str(release.cluster.kubeconfig()))
    store = ClusterStore(api, names, print)
    terms = certs.Terms(certs.service_names("slicewarden", HOME))
    (old,) = {*store.read().bundles.values()}
    began = life.rotate(store.read(), terms, datetime.now(UTC))
    assert began
    wrote = list[str]()
    with Load(release) as load:
        release.apply(Q)
        store.write(began.after)
        while len(wrote) < 3 or (wrote[-1] or store.read().authorities.retired or store.read().authorities.coming):
            wrote.append(one_write(release))
            assert eventually(lambda: all_serve_what_is_stored(release, store))
            if wrote[-1] in ("", f"validate {digest(P)}.{digest(Q)}", f"mutate {digest(Q)}"):
                a_day_passes(store)
        assert eventually(lambda: load.enough)
    print(f"{wrote}; {load}")
    assert load.wrong == []
    assert release.ready(digest(Q))
    (new,) = {*store.read().bundles.values()}
    api.rest_client.pool_manager.clear()
    assert len(blocks(new)) == 1
    assert new != old
    first, last = (wrote.index(each) for each in (f"validate {digest(P)}.{digest(Q)}", f"validate {digest(Q)}"))
    assert any("CA" in each or "bundle" in each for each in wrote[first:last]), "nothing of the rotation was in between"
