"""The controller on a real etcd with two API servers and three replicas: from two commands to enforcement, and back.

The API servers call the installed Service, which a test makes one of an external name: a port of loopback behind which
the replicas take turns. Whatever the controller does, it does under the rights and the guard of the manifests.
"""

import base64
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
import yaml

from tests.e2e import control_plane, sending
from tests.e2e.access import served
from tests.e2e.control_plane import Cluster, User, eventually
from tests.e2e.guard import MANIFESTS
from tests.e2e.objects import pod
from tests.support.streams import Stream
from webhook import rules
from webhook.engine import filled
from webhook.engine.paths import MUTATE, VALIDATE, Manner, Name
from webhook.engine.paths import Path as EnginePath
from webhook.memory import frameworks
from webhook.policy import load, revisions
from webhook.policy.model import Policy
from webhook.serving import held

Object = dict[str, Any]
HOME, TEAM = "slicewarden-system", "team"
ACCOUNT = User(f"system:serviceaccount:{HOME}:slicewarden-controller", ("system:serviceaccounts",))
BOTH = "validatingwebhookconfigurations,mutatingwebhookconfigurations"
DRAIN = 2.0
"""Seconds; requests to programs on loopback take less."""


class Relay:
    """A port whose connections go to some other ports in turn, as those of a Service."""

    def __init__(self, host: str, port: int, targets: list[int]) -> None:
        self._listener = socket.create_server((host, port))
        self._targets, self._turn = targets, count()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                came, _ = self._listener.accept()
            except OSError:
                return
            for _ in self._targets:
                port = self._targets[next(self._turn) % len(self._targets)]
                try:
                    to = socket.create_connection(("127.0.0.1", port), 2)
                except OSError:
                    continue
                to.settimeout(None)
                for one, other in ((came, to), (to, came)):
                    threading.Thread(target=_copy, args=(one, other), daemon=True).start()
                break
            else:
                came.close()

    def close(self) -> None:
        self._listener.close()


def _copy(one: socket.socket, other: socket.socket) -> None:
    try:
        while data := one.recv(1 << 16):
            other.sendall(data)
    except OSError:
        pass
    for each in (one, other):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


class Release:
    """An installed release: what the kubelets would run of it, and what people do with it."""

    def __init__(self, cluster: Cluster, second: str, host: str) -> None:
        self.cluster, self.servers, self.host = cluster, (cluster.url, second), host
        self.reviews, self.health = [free_port() for _ in range(3)], [free_port() for _ in range(3)]
        self.manifests = cluster.do("kustomize", str(MANIFESTS / "controller"))
        self.tls = cluster.folder / "tls"

    def install(self) -> None:
        self.cluster.do("apply", "--filename=-", stdin=self.manifests)

    def run(self) -> None:
        """Do what nodes would do: start the controllers, mount the certificate, and start the replicas."""
        service: Object = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "slicewarden", "namespace": HOME},
        }
        service["spec"] = {"type": "ExternalName", "externalName": self.host, "ports": [{"port": 443}]}
        self.cluster.do("replace", "--force", "--filename=-", stdin=json.dumps(service))
        self.start_controller("controller-a")
        assert eventually(self._mounted)
        for number in range(3):
            self.start_replica(number)

    def start_replica(self, number: int) -> None:
        account = self.cluster.kubeconfig_of_account("slicewarden", HOME)
        command: list[str | Path] = [sys.executable, "-m", "webhook", "serve", "--live", "--revisions", HOME]
        command += ["--kubeconfig", account, "--workers", "1", "--listen", f"127.0.0.1:{self.reviews[number]}"]
        command += ["--health-listen", f"127.0.0.1:{self.health[number]}"]
        command += ["--tls-cert", self.tls / "tls.crt", "--tls-key", self.tls / "tls.key"]
        self.cluster.start(f"replica-{number}", *command, orphaned=signal.SIGTERM)

    def health_of(self, number: int, page: str = "readyz") -> tuple[int, str]:
        """The status (0: none) and the text of a page of a replica's health port."""
        return sending.page(f"127.0.0.1:{self.health[number]}", page)

    def revisions(self) -> set[str]:
        """The digests of the revisions."""
        found = self.cluster.get("configmaps", f"--namespace={HOME}", f"--selector={revisions.LABEL}")["items"]
        return {revisions.label_of(each) for each in found} - {revisions.RELEASES}

    def _mounted(self) -> bool:
        data = self.cluster.get("secret", "slicewarden-serving", f"--namespace={HOME}").get("data") or {}
        if not {"tls.crt", "tls.key"} <= data.keys():
            return False
        self.tls.mkdir(exist_ok=True)
        for name in ("tls.crt", "tls.key"):
            (self.tls / name).write_bytes(base64.b64decode(data[name]))
        return True

    def start_controller(self, name: str) -> None:
        account = self.cluster.kubeconfig_of_account("slicewarden-controller", HOME)
        command: list[str | Path] = [sys.executable, "-m", "webhook", "controller", "--kubeconfig", account]
        command += ["--identity", name, "--drain", str(DRAIN), "--listen", f"127.0.0.1:{free_port()}"]
        command += [word for port in self.health for word in ("--replica", f"127.0.0.1:{port}")]
        command += [word for url in self.servers for word in ("--api-server", url)]
        self.cluster.start(name, *command, orphaned=signal.SIGTERM)

    def apply(self, value: Object) -> None:
        self.cluster.do("apply", "--filename=-", stdin=json.dumps(value))

    def policy(self, name: str = "sample") -> Object:
        return dict(self.cluster.get("gpusharingpolicy", name))

    def condition(self, kind: str, name: str = "sample") -> Object:
        found = self.policy(name).get("status", {}).get("conditions", ())
        return next((dict(each) for each in found if each["type"] == kind), {})

    def ready(self, digest: str = "", name: str = "sample") -> bool:
        """Whether the policy, as it is now, is in force."""
        value = self.policy(name)
        status = value.get("status", {})  # a policy that was just created has none
        found = {each["type"]: each for each in status.get("conditions", ())}
        seen = found.get("Ready", {}).get("observedGeneration") == value["metadata"]["generation"]
        of = not digest or status.get("digest") == digest
        return bool(seen and of and found["Ready"]["status"] == "True")

    def named(self) -> tuple[str, str]:
        """What `/validate` and `/mutate` name."""
        found = self.cluster.get(BOTH, "--selector=app.kubernetes.io/part-of=slicewarden")["items"]
        names = {each["kind"]: each for each in found if each["metadata"]["name"] == "slicewarden"}
        kinds = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
        return tuple(".".join(map(str, filled.named(names[kind]))) for kind in kinds)  # type: ignore[return-value]

    def create(self, value: Object, server: int = 0, *options: str) -> str:
        """Create an object at an API server. Returns the error; empty for none."""
        url = f"--server={self.servers[server]}"
        return self.cluster.kubectl("create", url, "--filename=-", *options, stdin=json.dumps(value)).stderr

    def wrote(self) -> list[str]:
        """What controllers wrote into the registration, in their words."""
        lines = [line for name in ("controller-a", "controller-b") for line in self.log(name).splitlines()]
        return [json.loads(line)["now"] for line in lines if '"wrote"' in line]

    def looks(self) -> float:
        """The age of a lease tells that a controller works; its renewals are counted by the version."""
        lease = self.cluster.get("lease", "slicewarden-controller", f"--namespace={HOME}")
        return float(lease["metadata"]["resourceVersion"])

    def log(self, name: str) -> str:
        file = self.cluster.folder / f"{name}.log"
        return file.read_text("utf-8", "replace") if file.exists() else ""


def honest() -> Object:
    return pod(f"honest-{token_hex(4)}", TEAM)


def forbidden() -> Object:
    """It takes every GPU of its node past the device plugin."""
    made = pod(f"forbidden-{token_hex(4)}", TEAM, limits={})
    made["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    return made


def policy(mode: str = "Enforce", **spec: Any) -> Object:
    value = yaml.safe_load((MANIFESTS.parent / "policies" / "sample.yaml").read_text("utf-8"))
    value["metadata"] = {"name": "sample"}
    return {**value, "spec": {**value["spec"], "mode": mode, **spec}}


def read(value: Object) -> Policy:
    return load.of_object(value, rules.releases(), frameworks=frameworks.names())


def digest(value: Object) -> str:
    return read(value).digest


MORE: Object = {"leaveAlone": ["gpu-operator", "elsewhere"]}
P, Q = policy(), policy(**MORE)


@contextmanager
def _listening(host: str, targets: list[int]) -> Iterator[None]:
    try:
        relay = Relay(host, 443, targets)
    except PermissionError:
        pytest.skip("needs to listen on port 443, where API servers call a Service of an external name")
    try:
        yield
    finally:
        relay.close()


@pytest.fixture(scope="module")
def release(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """A cluster of two API servers without anything of ours."""
    with ExitStack() as stack:
        cluster = stack.enter_context(control_plane.serving(tmp_path_factory.mktemp("controller"), programs))
        second = stack.enter_context(control_plane.another_server(cluster))
        for name in (TEAM, "gpu-operator"):
            cluster.do("create", "namespace", name)
        cluster.do("create", "serviceaccount", "default", f"--namespace={TEAM}")
        number = int(cluster.url.rpartition(":")[2])  # an address of its own, where tests run side by side
        made = Release(cluster, second, f"127.{64 + number // 62500}.{number % 62500 // 250}.{number % 250 + 1}")
        stack.enter_context(_listening(made.host, made.reviews))
        yield made


# One after the other: from nothing to enforcement, changes, and back


def test_two_commands_lead_from_nothing_to_ready(release: Release) -> None:
    began = time.monotonic()
    release.install()
    release.run()
    served(release.cluster, "gpusharingpolicies.slicewarden.dev")
    release.apply(P)
    release.cluster.do("wait", "--for=condition=Ready", "gpusharingpolicy", "--all", "--timeout=300s")
    print(f"ready after {time.monotonic() - began:.1f} s")
    assert release.named() == (digest(P), digest(P))
    status = release.policy()["status"]
    assert (status["digest"], status["mode"], status["replicas"]) == (digest(P), "Enforce", "3/3")
    wrote = [json.loads(line)["now"] for line in release.log("controller-a").splitlines() if '"wrote"' in line]
    p = digest(P)
    steps = [f"validate {p}-audit", f"mutate {p}-audit", f"validate {p}-audit.{p}", f"mutate {p}", f"validate {p}"]
    assert [each for each in wrote if not each.startswith("releases")] == steps


def test_the_policy_is_enforced_through_both_api_servers(release: Release) -> None:
    for server in (0, 1):
        assert release.create(honest(), server) == ""
        assert "NVIDIA_VISIBLE_DEVICES" in release.create(forbidden(), server)


def test_a_diff_of_what_is_installed_is_empty(release: Release) -> None:
    service = [each for each in yaml.safe_load_all(release.manifests) if each["kind"] != "Service"]
    shown = json.dumps({"apiVersion": "v1", "kind": "List", "items": service})
    for options in ([], ["--server-side", "--force-conflicts", "--field-manager=argocd-controller"]):
        found = release.cluster.kubectl("diff", *options, "--filename=-", stdin=shown)
        assert (found.returncode, found.stdout) == (0, ""), found.stderr


class Load(Stream):
    """Creates honest and forbidden pods at both API servers for show, until the block ends."""

    def __init__(self, release: Release, makes: Sequence[Callable[[], Object]] | None = None) -> None:
        makes = makes or (honest, forbidden)
        super().__init__(*(partial(self._make, server, make) for server in (0, 1) for make in makes))
        self.release = release
        self.honest, self.forbidden = 0, 0
        self.wrong: list[str] = []

    def _make(self, server: int, make: Callable[[], Object]) -> None:
        error = self.release.create(make(), server, "--dry-run=server")
        if make is honest:
            self.honest += 1
            self.wrong += [error] if error else []
        else:
            self.forbidden += 1
            self.wrong += [] if error else ["a forbidden pod was admitted"]


def test_a_change_of_policy_under_load_refuses_and_admits_nothing_wrongly(release: Release) -> None:
    with Load(release) as load:
        release.apply(Q)
        assert eventually(lambda: release.ready(digest(Q)))
        assert eventually(lambda: min(load.honest, load.forbidden) > 5)
    print(f"{load.honest} honest pods, {load.forbidden} forbidden ones, {len(load.wrong)} wrong")
    assert load.wrong == []
    assert release.named() == (digest(Q), digest(Q))


def test_any_number_of_quick_changes_ends_in_the_newest(release: Release) -> None:
    for number in range(3 * held.MOST):
        release.apply(policy(leaveAlone=[f"elsewhere-{number}"]))
    release.apply(Q)
    assert eventually(lambda: release.ready(digest(Q)))
    assert release.named() == (digest(Q), digest(Q))
    assert eventually(lambda: release.revisions() == {digest(Q)})


def test_a_new_replica_loads_first_what_the_registration_names(release: Release) -> None:
    release.cluster.stop("controller-a")
    others = [policy(leaveAlone=[f"elsewhere-{number}"]) for number in range(2 * held.MOST)]
    made = [revisions.revision(read(each), HOME) for each in others]
    release.apply({"apiVersion": "v1", "kind": "List", "items": made})
    release.cluster.stop("replica-0")
    release.start_replica(0)
    assert eventually(lambda: release.health_of(0)[0] == 200)
    assert digest(Q) in json.loads(release.health_of(0, "policies")[1])["held"]
    release.start_controller("controller-a")
    assert eventually(lambda: release.revisions() == {digest(Q)})


def stopped_in_the_middle(release: Release, name: str) -> bool:
    """Change Q to P, and stop the controller between the steps; if it was faster, go back to Q and return False."""
    (controller,) = [each for each in release.cluster.components if each.name == name]
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


def test_killed_in_the_middle_of_a_change_another_controller_finishes(release: Release) -> None:
    assert any(stopped_in_the_middle(release, "controller-a") for _ in range(20))
    release.cluster.stop("controller-a")
    assert "." in release.named()[0]
    release.start_controller("controller-b")
    assert eventually(lambda: release.ready(digest(P)))
    assert release.named() == (digest(P), digest(P))


def test_a_frozen_api_server_stops_a_change_and_is_named(release: Release) -> None:
    (frozen,) = [each for each in release.cluster.components if each.name == "kube-apiserver-2"]
    frozen.process.send_signal(signal.SIGSTOP)
    try:
        release.apply(Q)
        assert eventually(lambda: release.servers[1] in release.condition("Ready").get("message", ""))
        assert release.named() == (digest(P), digest(P))
        assert release.condition("Reconciling")["status"] == "True"
    finally:
        frozen.process.send_signal(signal.SIGCONT)
    assert eventually(lambda: release.ready(digest(Q)))


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


def test_a_change_that_an_api_server_would_refuse_changes_nothing(release: Release) -> None:
    wrote = release.wrote()
    with refusing(release, f"/mutate/{digest(P)}"):
        release.apply(P)
        assert eventually(lambda: release.condition("Stalled").get("reason") == "Refused")
        assert "not today (the policy before stays in force)" in release.condition("Ready")["message"]
        assert release.wrote() == wrote
        assert release.named() == (digest(Q), digest(Q))
        release.apply(Q)
        assert eventually(lambda: release.ready(digest(Q)))
    assert release.wrote() == wrote


def test_a_change_that_is_refused_half_way_goes_back_under_load(release: Release) -> None:
    with refusing(release, f"/mutate/{digest(P)}", "!request.dryRun"), Load(release) as load:
        release.apply(P)
        assert eventually(lambda: release.condition("Stalled").get("reason") == "Refused")
        assert eventually(lambda: release.named() == (digest(Q), digest(Q)))
        assert eventually(lambda: min(load.honest, load.forbidden) > 5)
        release.apply(Q)
        assert eventually(lambda: release.ready(digest(Q)))
    assert load.wrong == []
    assert f"validate {digest(Q)}.{digest(P)}" in release.wrote()


def test_a_policy_that_cannot_be_used_leaves_the_one_before_in_force(release: Release) -> None:
    wrong = policy()
    wrong["spec"]["pools"] = [*wrong["spec"]["pools"], {**wrong["spec"]["pools"][0], "name": "overlapping"}]
    check = release.cluster.kubectl("apply", "--filename=-", stdin=json.dumps(wrong))
    if check.returncode == 0:  # it slipped past the check, which never stands in the way
        assert eventually(lambda: release.condition("Stalled").get("status") == "True")
        assert release.policy()["status"]["problems"]
    else:
        assert "overlap" in check.stderr
    assert release.named() == (digest(Q), digest(Q))
    release.apply(Q)


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


def test_a_second_policy_says_what_it_would_deny_and_takes_over_when_the_first_is_deleted(release: Release) -> None:
    plain = pod("reader", TEAM, limits={})
    plain["spec"]["hostPID"] = True
    for value in (honest(), honest(), plain):
        assert release.create(value) == ""
    stricter = policy(**MORE)
    stricter["metadata"] = {"name": "stricter"}
    shared = [{**each, "tenants": {"namespaces": ["nobody"]}} for each in stricter["spec"]["pools"]]
    stricter["spec"]["pools"] = shared
    release.apply(stricter)
    said = shown_diff(release, Q, stricter)["denied"]
    assert said >= 2
    assert eventually(lambda: release.policy("stricter").get("status", {}).get("wouldDeny") == said)
    status = release.policy("stricter")["status"]
    assert release.condition("Ready", "stricter")["reason"] == "NotInForce"
    assert len(status["wouldDenySample"]) == said
    assert all(line.startswith(f"Pod {TEAM}/honest-") for line in status["wouldDenySample"])
    assert release.named() == (digest(Q), digest(Q))
    with Load(release, makes=(forbidden,)) as load:
        release.cluster.do("delete", "gpusharingpolicy", "sample")
        assert eventually(lambda: release.ready(name="stricter"))
    assert load.wrong == []
    assert load.forbidden > 0
    assert "wouldDeny" not in release.policy("stricter")["status"]
    assert release.named() == (digest(stricter), digest(stricter))
    release.apply(Q)
    release.cluster.do("delete", "gpusharingpolicy", "stricter")
    assert eventually(lambda: release.ready(digest(Q)))


def test_a_label_changes_no_digest_and_writes_nothing(release: Release) -> None:
    before, wrote = release.policy()["status"], release.wrote()
    release.cluster.do("label", "gpusharingpolicy", "sample", "argocd.argoproj.io/instance=app")
    release.cluster.do("annotate", "gpusharingpolicy", "sample", "example.com/note=new")
    looked = release.looks()
    assert eventually(lambda: release.looks() > looked + 1, pause=1)
    assert release.policy()["status"] == before
    assert release.wrote() == wrote


def test_a_namespace_that_may_not_be_read_is_named_and_the_policy_before_stays(release: Release) -> None:
    elsewhere = policy(**MORE)
    elsewhere["spec"]["sharing"] = {**elsewhere["spec"]["sharing"], "namespaces": ["gpu-operator", "team-x"]}
    release.cluster.do("create", "namespace", "team-x")
    release.apply(elsewhere)
    assert eventually(lambda: release.condition("Stalled").get("reason") == "FactsUnreadable")
    assert "of team-x" in release.condition("Ready")["message"]
    assert release.named() == (digest(Q), digest(Q))
    release.apply(Q)
    assert eventually(lambda: release.ready(digest(Q)))


def test_a_change_of_mode_changes_no_digest_and_an_event_tells_of_it(release: Release) -> None:
    release.apply(policy(mode="Audit", **MORE))
    assert eventually(lambda: release.ready() and release.named()[0].endswith("-audit"))
    assert release.policy()["status"]["digest"] == digest(Q)
    release.apply(Q)
    assert eventually(lambda: release.ready(digest(Q)))

    def told() -> set[str]:
        found = release.cluster.get("events.events.k8s.io", "--namespace=default")["items"]
        return {each["reason"] for each in found if each["regarding"]["kind"] == "GPUSharingPolicy"}

    assert eventually(lambda: {"InForce", "NotInForce", "FactsUnreadable"} <= told())


def test_the_role_allows_no_creation_and_no_other_names(release: Release) -> None:
    def may(*words: str) -> bool:
        return release.cluster.kubectl("auth", "can-i", *words, user=ACCOUNT).stdout.strip() == "yes"

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
    release: Release, which: str, name: str, change: Change, why: str
) -> None:
    def changed(configuration: Object) -> None:
        (one,) = (each for each in configuration["webhooks"] if each["name"] == f"{name}.slicewarden.dev")
        change(one)

    tried = try_to_write(release, which, changed)
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
    release: Release, metadata: Object
) -> None:
    tried = try_to_write(release, "validate", lambda found: found["metadata"].update(metadata))
    assert tried.returncode != 0
    assert "no labels, finalizers or owners" in tried.stderr


def test_the_guard_lets_the_controller_write_what_any_policy_registers(release: Release) -> None:
    for which in CONFIGURATIONS:
        done = try_to_write(release, which, lambda found: found["webhooks"].reverse())
        assert done.returncode == 0, done.stderr
        done = try_to_write(release, which, lambda found: found["webhooks"].clear())
        assert done.returncode == 0, done.stderr
    found = {each["name"] for each in release.cluster.get(*CONFIGURATIONS["validate"])["webhooks"]}
    full = read(everything())
    paths = (
        EnginePath(VALIDATE, (Name(full.digest), Name(full.digest, Manner.AUDIT))),
        EnginePath(MUTATE, (Name(full.digest),)),
    )
    registered: set[str] = set()
    for path in paths:
        hooks = filled.webhooks(path, {full.digest: full}, "")
        registered |= {each["name"] for each in hooks}
        done = try_to_write(release, path.half, partial(dict.update, webhooks=hooks))
        assert done.returncode == 0, done.stderr
    assert {
        "revisions.slicewarden.dev",
        "named-configmaps.slicewarden.dev",
        "groups.slicewarden.dev",
    } <= registered - found


def test_a_kind_that_a_policy_adds_is_refused_until_the_guard_has_it(release: Release) -> None:
    added = {"group": "example.com", "kind": "Training", "resource": "trainings", "templates": ["spec.template"]}
    more = policy(**MORE, workloads=[added])
    release.apply(more)
    assert eventually(lambda: release.condition("Stalled").get("reason") == "Refused")
    assert "variable `added`" in release.condition("Ready")["message"]
    assert release.named() == (digest(Q), digest(Q))
    objects = [
        each for each in yaml.safe_load_all(release.manifests) if each["metadata"]["name"] == "slicewarden-guard"
    ]
    guard = {each["kind"]: each for each in objects}["ValidatingAdmissionPolicy"]
    wider = json.dumps(guard).replace("['']", "['example.com/trainings']")
    assert wider != json.dumps(guard)
    release.cluster.do("apply", "--filename=-", stdin=wider)
    assert eventually(lambda: release.ready(digest(more)))
    release.apply(Q)
    assert eventually(lambda: release.ready(digest(Q)))
    release.apply(guard)


def test_an_emergency_stays_in_force_and_an_install_brings_all_back_through_audit(release: Release) -> None:
    release.cluster.do("delete", BOTH, "--selector=app.kubernetes.io/part-of=slicewarden")
    assert eventually(lambda: release.condition("Ready").get("reason") == "RegistrationGone")
    assert release.condition("Stalled")["status"] == "True"
    by_fallback = "ValidatingAdmissionPolicy 'slicewarden-pods'"  # it is what the fallback is for
    assert eventually(lambda: by_fallback in release.create(forbidden(), 0, "--dry-run=server"))
    items = [each for each in yaml.safe_load_all(release.manifests) if each["kind"].endswith("WebhookConfiguration")]
    release.cluster.do("apply", "--filename=-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert eventually(lambda: release.ready(digest(Q)))
    wrote = [json.loads(line)["now"] for line in release.log("controller-b").splitlines() if '"wrote"' in line]
    assert wrote[-5] == f"validate {digest(Q)}-audit"


def test_off_judges_nothing_and_audit_denies_nothing(release: Release) -> None:
    release.apply(policy(mode="Audit", **MORE))
    assert eventually(lambda: release.ready() and release.named()[0].endswith("-audit"))
    # The API server reads that the fallback is empty a moment after the controller wrote it.
    assert eventually(lambda: release.create(forbidden(), 0, "--dry-run=server") == "")
    release.apply(policy(mode="Off"))
    assert eventually(lambda: release.ready() and release.named() == ("", ""))
    release.cluster.do("delete", "gpusharingpolicy", "sample")


def test_nothing_is_written_while_nothing_changes(release: Release) -> None:
    before = release.log("controller-b").count('"wrote"')
    (one,) = [each for each in release.cluster.components if each.name == "controller-b"]
    memory = Path(f"/proc/{one.process.pid}/status").read_text("utf-8")
    (resident,) = [int(line.split()[1]) for line in memory.splitlines() if line.startswith("VmRSS")]
    print(f"the controller takes {resident / 1024:.0f} MiB")
    assert release.log("controller-b").count('"wrote"') == before
