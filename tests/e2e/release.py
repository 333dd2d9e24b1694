"""A release on a real etcd with two API servers and three replicas, and what people do with it.

The API servers call the installed Service, which is made one of an external name: a port of loopback behind which the
replicas that are ready take turns. Whatever the controller does, it does under the rights and the guard of the
manifests.
"""

import base64
import http.client
import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cached_property, partial
from http import HTTPStatus
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
from tests.support import policies
from tests.support.streams import Stream
from webhook import rules
from webhook.cluster import client
from webhook.controller import reach
from webhook.controller.controller import Controller, Round
from webhook.controller.order import Place
from webhook.controller.terms import CONFIGURATIONS, MANAGER, Terms
from webhook.engine import filled, probe
from webhook.engine.paths import MUTATE, VALIDATE
from webhook.engine.registration import NAME
from webhook.memory import frameworks
from webhook.policy import load, revisions
from webhook.policy.model import Policy

Object = dict[str, Any]
HOME, TEAM = "slicewarden-system", "team"
ACCOUNT = User(f"system:serviceaccount:{HOME}:slicewarden-controller", ("system:serviceaccounts",))
BOTH = "validatingwebhookconfigurations,mutatingwebhookconfigurations"
DRAIN = 2.0
"""Seconds; requests to programs on loopback take less."""


class Relay:
    """A port whose connections go to some other ports in turn, as those of a Service, or to the one of a server.

    `ready` says which of them may be asked. While the network is `parted`, nothing arrives; it arrives late.
    """

    def __init__(
        self, host: str, port: int, targets: Sequence[int], ready: Callable[[int], bool] = lambda _: True
    ) -> None:
        self._listener = socket.create_server((host, port))
        self._targets, self._ready, self._turn = targets, ready, count()
        self._open: list[socket.socket] = []
        self._whole = threading.Event()
        self._whole.set()
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                came, _ = self._listener.accept()
            except OSError:
                return
            for _ in self._targets:
                port = self._targets[next(self._turn) % len(self._targets)]
                if not self._ready(port):
                    continue
                try:
                    to = socket.create_connection(("127.0.0.1", port), 2)
                except OSError:
                    continue
                to.settimeout(None)
                self._open += (came, to)
                for one, other in ((came, to), (to, came)):
                    threading.Thread(target=_copy, args=(one, other, self._whole), daemon=True).start()
                break
            else:
                came.close()

    @property
    def url(self) -> str:
        """The URL of a server behind it."""
        return f"https://127.0.0.1:{self.port}"

    @contextmanager
    def parted(self) -> Iterator[None]:
        """Hold back all that is sent, in both directions, until the block ends."""
        self._whole.clear()
        try:
            yield
        finally:
            self._whole.set()

    def close(self) -> None:
        """Accept nothing more, and end every connection."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def _copy(one: socket.socket, other: socket.socket, whole: threading.Event) -> None:
    try:
        while data := one.recv(1 << 16):
            whole.wait()
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

    def __init__(self, cluster: Cluster, second: str, host: str, drain: float = DRAIN) -> None:
        """`drain` is in seconds."""
        self.cluster, self.servers, self.host, self.drain = cluster, (cluster.url, second), host, drain
        self._controllers = count(1)
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
        self.start_controller()
        assert eventually(self.mount)
        for number in range(3):
            self.start_replica(number)

    def works(self) -> None:
        """Have it installed, with a controller that works, whatever was before."""
        if not self.tls.exists():
            self.install()
            self.run()
            served(self.cluster, "gpusharingpolicies.slicewarden.dev")
        if not self.controller:
            self.start_controller()

    def in_force(self, value: Object) -> None:
        """Have a policy in force, whatever was before: installed, and with a controller that works."""
        self.works()
        found = self.cluster.get("gpusharingpolicies")["items"]
        if [each["spec"] for each in found] != [value["spec"]]:
            for each in found:
                if each["metadata"]["name"] != value["metadata"]["name"]:
                    self.cluster.do("delete", "gpusharingpolicy", each["metadata"]["name"])
            self.apply(value)
        assert eventually(lambda: self.ready(digest(value)))

    def start_replica(
        self, number: int, *more: str, server: str = "", environment: Mapping[str, str | Path] | None = None
    ) -> None:
        """Start a replica, with more options and variables. It may reach the API server at another URL."""
        account = self.cluster.kubeconfig_of_account("slicewarden", HOME)
        if server:
            account = self._through(account, server, f".{number}")
        command: list[str | Path] = [sys.executable, "-m", "webhook", "serve", "--live", "--revisions", HOME, *more]
        command += ["--kubeconfig", account, "--workers", "1", "--listen", f"127.0.0.1:{self.reviews[number]}"]
        command += ["--health-listen", f"127.0.0.1:{self.health[number]}", "--stop-delay", "2"]
        command += ["--tls-cert", self.tls / "tls.crt", "--tls-key", self.tls / "tls.key"]
        self.cluster.start(f"replica-{number}", *_variables(environment or {}), *command, orphaned=signal.SIGTERM)

    def _through(self, account: Path, server: str, suffix: str) -> Path:
        """A file by which an account reaches the API server at another URL."""
        other = account.with_suffix(suffix)
        other.write_text(account.read_text("utf-8").replace(self.cluster.url, server), "utf-8")
        return other

    def health_of(self, number: int, page: str = "readyz") -> tuple[int, str]:
        """The status (0: none) and the text of a page of a replica's health port."""
        return sending.page(f"127.0.0.1:{self.health[number]}", page)

    def revisions(self) -> set[str]:
        """The digests of the revisions."""
        found = self.cluster.get("configmaps", f"--namespace={HOME}", f"--selector={revisions.LABEL}")["items"]
        return {revisions.label_of(each) for each in found} - {revisions.RELEASES}

    def stop_replica(self, number: int) -> None:
        """End a replica as a kubelet does."""
        (replica,) = [each for each in self.cluster.components if each.name == f"replica-{number}"]
        self.cluster.components.remove(replica)
        replica.process.terminate()
        replica.process.wait()

    def mount(self) -> bool:
        """Bring the certificate to the replicas as a kubelet does; False if there is none."""
        data = self.cluster.get("secret", "slicewarden-serving", f"--namespace={HOME}").get("data") or {}
        if not {"tls.crt", "tls.key"} <= data.keys():
            return False
        self.tls.mkdir(exist_ok=True)
        for name in ("tls.crt", "tls.key"):
            (self.tls / name).write_bytes(base64.b64decode(data[name]))
        return True

    @property
    def controller(self) -> str:
        """The name of the controller that runs; empty for none."""
        return next((each.name for each in self.cluster.components if each.name.startswith("controller-")), "")

    @property
    def terms(self) -> Terms:
        """What a controller in the test's own process works by."""
        replicas = tuple(f"127.0.0.1:{port}" for port in self.health)
        return Terms(namespace=HOME, drain=self.drain, servers=self.servers, replicas=replicas)

    @cached_property
    def account_of_the_controller(self) -> Path:
        """A file by which the controller's account reaches the API server."""
        return self.cluster.kubeconfig_of_account("slicewarden-controller", HOME)

    def start_controller(
        self, servers: Sequence[str] = (), environment: Mapping[str, str | Path] | None = None
    ) -> None:
        """Start a controller under a new name. It may reach the API servers at other URLs."""
        name, account = f"controller-{next(self._controllers)}", self.account_of_the_controller
        if servers:
            account = self._through(account, servers[0], ".controller")
        command: list[str | Path] = [sys.executable, "-m", "webhook", "controller", "--kubeconfig", account]
        command += ["--identity", name, "--drain", str(self.drain), "--listen", f"127.0.0.1:{free_port()}"]
        command += [word for port in self.health for word in ("--replica", f"127.0.0.1:{port}")]
        command += [word for url in servers or self.servers for word in ("--api-server", url)]
        self.cluster.start(name, *_variables(environment or {}), *command, orphaned=signal.SIGTERM)

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

    def place(self) -> Place:
        """What `/validate` and `/mutate` name."""
        found = self.cluster.get(BOTH, "--selector=app.kubernetes.io/part-of=slicewarden")["items"]
        names = {each["kind"]: each for each in found if each["metadata"]["name"] == "slicewarden"}
        validate, mutate = (filled.named(names[CONFIGURATIONS[half][0]]) for half in (VALIDATE, MUTATE))
        return Place(validate, mutate)

    def named(self) -> tuple[str, str]:
        """What `/validate` and `/mutate` name, as their paths do."""
        validate, mutate, _ = self.place()
        return ".".join(map(str, validate)), ".".join(map(str, mutate))

    def called(self) -> bool:
        """Whether each API server calls what the registration names, and a replica answers it."""
        with connected(self) as api:
            lease = f"{self.terms.lease}/{probe.LEASE}"
            return not [*reach.called(api, self.servers, lease, self.place())]

    def create(self, value: Object, server: int = 0, *options: str) -> str:
        """Create an object at an API server. Returns the error; empty for none."""
        url = f"--server={self.servers[server]}"
        return self.cluster.kubectl("create", url, "--filename=-", *options, stdin=json.dumps(value)).stderr

    def wrote(self) -> list[str]:
        """What controllers wrote into the registration, in their words."""
        files = sorted(self.cluster.folder.glob("controller-*.log"), key=lambda file: int(file.stem.partition("-")[2]))
        lines = [line for file in files for line in file.read_text("utf-8", "replace").splitlines()]
        return [json.loads(line)["now"] for line in lines if '"wrote"' in line]

    def judged_by(self) -> list[str]:
        """The policies by which the replicas judged, of all reviews so far."""
        files = self.cluster.folder.glob("replica-*.log")
        lines = [line for file in files for line in file.read_text("utf-8", "replace").splitlines()]
        return [json.loads(line)["policy"] for line in lines if '"endpoint":"/validate"' in line]


@contextmanager
def connected(release: Release) -> Iterator[client.Api]:
    """A connection by the controller's account, under its rights."""
    api = client.connect(str(release.account_of_the_controller), program=MANAGER)
    try:
        yield api
    finally:
        api.rest_client.pool_manager.clear()


def one_write(release: Release) -> str:
    """Let a new controller look until it has written once, or nothing is left to do. Returns what it wrote."""
    looks = list[Round]()
    with connected(release) as api:
        one = Controller(api, release.terms, lambda _: None)

        def ends() -> bool:
            looks.append(one.look())
            return bool(looks[-1].wrote) or looks[-1] == Round()

        assert eventually(ends), looks[-1].waits
    return looks[-1].wrote


@contextmanager
def recorded(release: Release) -> Iterator[list[Object]]:
    """Every version of both configurations that is written, in their order, beginning with those that are there.

    The list is filled at the end of the block.
    """
    cluster, made = release.cluster, list[Object]()
    command: list[str | Path] = [cluster.binaries / "kubectl", f"--kubeconfig={cluster.kubeconfig()}"]
    command += ["get", "--watch", "--output=json"]
    plurals = [plural for _, plural in CONFIGURATIONS.values()]
    watches = {each: cluster.start(f"watch-{each}-{token_hex(4)}", *command, each, NAME) for each in plurals}

    def newest_is_seen(plural: str) -> bool:
        newest = cluster.get(plural, NAME)["metadata"]["resourceVersion"]
        return any(each["metadata"]["resourceVersion"] == newest for each in _printed(watches[plural].log))

    try:
        assert all(eventually(partial(newest_is_seen, each)) for each in plurals)
        yield made
        assert all(eventually(partial(newest_is_seen, each)) for each in plurals)
        found = [each for watch in watches.values() for each in _printed(watch.log)]
        made += sorted(found, key=lambda each: int(each["metadata"]["resourceVersion"]))
    finally:
        for each in watches.values():
            cluster.stop(each.name)


def _printed(file: Path) -> Iterator[Object]:
    """The objects that kubectl has written into a file in full so far, one after the other."""
    text = file.read_text("utf-8")
    while text := text.lstrip():
        try:
            item, end = json.JSONDecoder().raw_decode(text)
        except ValueError:
            return
        yield item
        text = text[end:]


def bundles(configurations: Iterable[Object]) -> set[str]:
    """The caBundles of all webhooks in some configurations; the empty text for a webhook without one."""
    hooks = (hook for each in configurations for hook in each.get("webhooks") or ())
    return {hook["clientConfig"].get("caBundle") or "" for hook in hooks}


def versions(release: Release) -> dict[str, str]:
    """The versions of all objects that a controller writes, but for the status of policies."""
    found = release.cluster.get(f"{BOTH},validatingadmissionpolicies")["items"]
    found += release.cluster.get("configmaps,secrets", f"--namespace={HOME}")["items"]
    return {f"{each['kind']} {each['metadata']['name']}": each["metadata"]["resourceVersion"] for each in found}


def _variables(environment: Mapping[str, str | Path]) -> list[str]:
    """The words before a command that give it more variables."""
    return ["/usr/bin/env", *(f"{name}={value}" for name, value in environment.items())] if environment else []


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


def relabelled(pool: Object) -> Object:
    """A pool whose nodes are selected by one label more."""
    labels = {**pool["nodes"].get("matchLabels", {}), "example.com/more": "x"}
    return {**pool, "nodes": {**pool["nodes"], "matchLabels": labels}}


P = policy()
MORE: Object = {"leaveAlone": ["gpu-operator", "elsewhere"], "pools": [*map(relabelled, P["spec"]["pools"])]}
"""By it Q patches pods otherwise than P. So a pod that P patched is denied where only Q judges."""
Q = policy(**MORE)


@contextmanager
def _listening(release: Release) -> Iterator[None]:
    health = dict(zip(release.reviews, release.health, strict=True))
    try:
        relay = Relay(
            release.host,
            443,
            release.reviews,
            lambda port: sending.page(f"127.0.0.1:{health[port]}", "readyz")[0] == HTTPStatus.OK,
        )
    except PermissionError:
        pytest.skip("needs to listen on port 443, where API servers call a Service of an external name")
    try:
        yield
    finally:
        relay.close()


PAUSE = 0.05
"""Seconds between two pods of one kind at one API server."""


class Load(Stream):
    """Creates honest and forbidden pods at both API servers for show, until the block ends."""

    def __init__(self, release: Release, makes: Sequence[Callable[[], Object]] | None = None) -> None:
        makes = makes or (honest, forbidden)
        self.honest, self.forbidden, self.unanswered = 0, 0, 0
        self._drain = release.drain
        self.refused: list[str] = []
        """The honest pods that were refused: the name of each, and why."""
        self.admitted: tuple[list[bool], ...] = ([], [])
        """Whether the forbidden pods were admitted, by API server, in their order."""
        self._stack = ExitStack()
        works = [
            partial(self._create, self._stack.enter_context(closing(sending.Sender(release.cluster, url))), make, one)
            for url, one in zip(release.servers, self.admitted, strict=True)
            for make in makes
        ]
        super().__init__(*works)

    def __exit__(self, *given: object) -> None:
        super().__exit__(*given)
        self._stack.close()

    @property
    def wrong(self) -> list[str]:
        """What was answered wrongly, where forbidden pods may not be admitted at any time."""
        return [*self.refused, *("a forbidden pod was admitted" for each in self.admitted for one in each if one)]

    @property
    def enough(self) -> bool:
        """Whether some of each kind were answered at each API server since it began."""
        return self.honest > 10 and all(len(each) > 5 for each in self.admitted)

    def __str__(self) -> str:
        admitted = sum(map(sum, self.admitted))
        asked = (
            f"{self.honest} honest pods, {len(self.refused)} refused; {self.forbidden} forbidden, {admitted} admitted"
        )
        return f"{asked}; {self.unanswered} requests without an answer"

    def _create(self, sender: sending.Sender, make: Callable[[], Object], admitted: list[bool]) -> None:
        try:
            self._ask(sender, make, admitted)
        except (OSError, ValueError, http.client.HTTPException):
            self.unanswered += 1
            sender.close()
        self.done.wait(PAUSE)

    def _ask(self, sender: sending.Sender, make: Callable[[], Object], admitted: list[bool]) -> None:
        began, item = time.monotonic(), make()
        status, answer = sender.send("POST", f"/api/v1/namespaces/{TEAM}/pods?{sending.DRY}", item)
        if make is honest and status != HTTPStatus.CREATED and time.monotonic() - began >= self._drain:
            self.unanswered += 1  # it took longer than a request may: on a busy machine a webhook was too late
        elif make is honest:
            self.honest += 1
            if status != HTTPStatus.CREATED:
                self.refused.append(f"{item['metadata']['name']}: {answer.get('message', '')}")
        else:
            self.forbidden += 1
            admitted.append(status == HTTPStatus.CREATED)


@contextmanager
def releasing(folder: Path, programs: Path, drain: float = DRAIN, flags: Sequence[str] = ()) -> Iterator[Release]:
    """Run a cluster of two API servers without anything of ours, until the block ends. `flags` are more of theirs."""
    with ExitStack() as stack:
        cluster = stack.enter_context(control_plane.serving(folder, programs, flags=flags))
        second = stack.enter_context(control_plane.another_server(cluster, flags))
        for name in (TEAM, "gpu-operator"):
            cluster.do("create", "namespace", name)
        cluster.do("apply", f"--filename={policies.SHARING}")
        cluster.do("create", "serviceaccount", "default", f"--namespace={TEAM}")
        number = int(cluster.url.rpartition(":")[2])  # an address of its own, where tests run side by side
        made = Release(cluster, second, f"127.{64 + number // 62500}.{number % 62500 // 250}.{number % 250 + 1}", drain)
        stack.enter_context(_listening(made))
        yield made
