"""Record what an API server asks a webhook: `.venv/bin/python -m tests.e2e.record` fills tests/recorded.

A webhook that allows everything is called for every kind and operation; one AdmissionReview is kept of each variety,
as it came, except for what no two runs share. Replaced are, wherever they stand in a review:

- UUIDs, by numbers in the order in which they come up, so that what was the same stays the same;
- points in time, by the beginning of 2026;
- resource versions, by 1, and IPv4 addresses, by 10.0.0.1;
- the random ends of generated names and of `kube-api-access-` volumes, by zeros;
- the fingerprint of the client certificate, by zeros;
- the order of `managedFields`, which goes by the clock, by that of operation, manager and subresource.
"""

import json
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests import ROOT
from tests.e2e import binaries, control_plane
from tests.e2e.control_plane import Cluster
from tests.e2e.neighbour import answering
from tests.support.objects import Object

RECORDED = ROOT / "tests/recorded"
PATIENCE = 60
"""Seconds until a review has to have come."""
QUIET = 2.0
"""Seconds without a change after which an object counts as settled."""
TRUSTED = {"slicewarden.dev/trust": "trusted"}
PODS = ["", "/binding", "/ephemeralcontainers", "/eviction", "/exec", "/resize", "/status"]
RESOURCES = {
    "": [
        *(f"pods{each}" for each in PODS),
        *("configmaps", "namespaces", "nodes", "podtemplates", "replicationcontrollers"),
    ],
    "apps": ["daemonsets", "deployments", "deployments/scale", "replicasets", "statefulsets"],
    "batch": ["cronjobs", "jobs"],
}
SHARING = """version: v1
sharing:
  timeSlicing:
    failRequestsGreaterThanOne: true
    resources:
      - name: nvidia.com/gpu
        replicas: {replicas}
"""
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
REPLACED = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "2026-01-01T00:00:00Z"),
    (re.compile(r"\b\d{1,3}(\.\d{1,3}){3}\b"), "10.0.0.1"),
    (re.compile(r"kube-api-access-[a-z0-9]{5}"), "kube-api-access-00000"),
    (re.compile(r"X509SHA256=[0-9a-f]{64}"), f"X509SHA256={'0' * 64}"),
)

Wanted = Callable[[Object], bool]


class Recorder:
    """Every review that came, in order."""

    def __init__(self) -> None:
        self._reviews: list[Object] = []
        self._came = threading.Condition()

    def add(self, review: Object) -> None:
        """Keep a review."""
        with self._came:
            self._reviews.append(review)
            self._came.notify_all()

    def __len__(self) -> int:
        with self._came:
            return len(self._reviews)

    def first(self, wanted: Wanted, since: int) -> Object:
        """Wait for the first request that is wanted, of those after the first `since`; return its review."""

        def found() -> Object | None:
            return next((each for each in self._reviews[since:] if wanted(each["request"])), None)

        with self._came:
            review = self._came.wait_for(found, PATIENCE)
        if review is None:
            raise control_plane.Failed("an expected request never came")
        return review


class Session:
    """A cluster whose requests are recorded, and the reviews that were chosen so far, by name."""

    def __init__(self, cluster: Cluster, recorder: Recorder) -> None:
        self.cluster = cluster
        self.recorder = recorder
        self.taken: dict[str, Object] = {}

    @contextmanager
    def taking(self, *varieties: tuple[str, str, str], user: str = "admin") -> Iterator[None]:
        """Keep reviews that the block causes: of each variety a name, the user and a part of the object's name.

        A name is `<operation>-<kind>[-<subresource>][-<why>]`, and `user` stands for an empty one.
        """
        since = len(self.recorder)
        yield
        for name, who, about in varieties:
            self.taken[name] = self.recorder.first(_wanted(name, who or user, about), since)

    def make(self, item: Object, *name: str) -> None:
        """Create an object; keep the review under a name, if there is one."""
        with self.taking(*((each, "", item["metadata"]["name"]) for each in name)):
            self.cluster.do("create", "--filename=-", stdin=json.dumps(item))

    def change(self, name: str, *command: str, stdin: str | None = None) -> None:
        """Run a kubectl that asks for one thing, and keep it."""
        with self.taking((name, "", "")):
            self.cluster.do(*command, stdin=stdin)

    def label(self, name: str, item: str, *more: str) -> None:
        """Label an object that has settled."""
        self.settle(item, *more)
        self.change(name, "label", item, "tier=test", *more)

    def settle(self, item: str, *more: str) -> None:
        """Wait until the controllers are done with an object."""
        patience, version, since = time.monotonic() + PATIENCE, "", time.monotonic()
        while time.monotonic() - since < QUIET:
            now = self.cluster.get(item, *more)["metadata"]["resourceVersion"]
            if now != version:
                version, since = now, time.monotonic()
            if time.monotonic() > patience:
                raise control_plane.Failed(f"{item} keeps changing")
            time.sleep(0.1)


def _wanted(name: str, user: str, about: str) -> Wanted:
    operation, kind, *rest = name.split("-")
    subresources = {each.partition("/")[2] for each in RESOURCES[""] + RESOURCES["apps"]}
    subresource = rest[0] if rest and rest[0] in subresources else ""

    def wanted(request: Object) -> bool:
        item = request["object"] or request["oldObject"] or {}
        metadata = item.get("metadata", {})
        return (
            request["operation"] == operation.upper()
            and request["kind"]["kind"].lower() == kind
            and request.get("subResource", "") == subresource
            and request["userInfo"]["username"].endswith(user)
            and about in (request.get("name") or metadata.get("name") or metadata.get("generateName") or "")
        )

    return wanted


@contextmanager
def recording(folder: Path) -> Iterator[tuple[Recorder, str, str]]:
    """Serve a webhook that allows and records everything: the records, its address, and the bundle to trust it by."""
    recorder = Recorder()

    def answer(review: Object) -> Object:
        recorder.add(review)
        return {"allowed": True}

    with answering(folder, answer) as (url, bundle):
        yield recorder, url, bundle


def register(cluster: Cluster, recorder: Recorder, url: str, bundle: str) -> None:
    """Have the API server call the recorder, and wait until it does."""
    rules = [
        {"apiGroups": [group], "apiVersions": ["v1"], "resources": resources, "operations": ["*"]}
        for group, resources in RESOURCES.items()
    ]
    hook = {
        "name": "recorder.slicewarden.dev",
        "clientConfig": {"url": url, "caBundle": bundle},
        "rules": rules,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "recorder"},
        "webhooks": [hook],
    }
    cluster.do("create", "--filename=-", stdin=json.dumps(configuration))

    def in_force() -> bool:
        cluster.do("create", "configmap", "probe", "--dry-run=server")
        return len(recorder) > 0

    cluster.wait_until("the API server calls the recorder", in_force)


def template(limits: dict[str, int], annotations: dict[str, str], **spec: object) -> Object:
    """A pod template with one container."""
    container = {"name": "main", "image": "registry.example/train:1", "resources": {"limits": limits}}
    return {
        "metadata": {"annotations": annotations, "labels": {"app": "train"}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }


def pod(name: str, limits: dict[str, int], annotations: dict[str, str], namespace: str = "research") -> Object:
    """A pod with one container."""
    made = template(limits, annotations)
    made["metadata"] |= {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", **made}


def workload(version: str, kind: str, name: str, **spec: object) -> Object:
    """An object of namespace research with a spec."""
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": "research"},
        **({"spec": spec} if spec else {}),
    }


def sharing(replicas: int) -> Object:
    """A configuration of the device plugin."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "time-slicing-config", "namespace": "gpu-operator"},
        "data": {"any": SHARING.format(replicas=replicas)},
    }


ONE = {"nvidia.com/gpu": 1}
SELECTOR = {"matchLabels": {"app": "train"}}


def record(session: Session) -> None:
    """Do everything once."""
    _cluster_objects(session)
    _pods(session)
    _subresources(session)
    _workloads(session)
    _deployment(session)
    _deletions(session)


def _cluster_objects(session: Session) -> None:
    for name, labels, taken in (
        ("research", TRUSTED, ["create-namespace"]),
        ("visitors", {}, []),
        ("gpu-operator", {}, []),
    ):
        session.make({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}, *taken)
        session.cluster.do("wait", "--for=create", "serviceaccount/default", f"--namespace={name}")
    session.label("update-namespace", "namespace/visitors")
    node = {"name": "spare", "labels": {"nvidia.com/gpu.product": "Tesla-T4-SHARED", "nvidia.com/gpu.replicas": "4"}}
    session.make({"apiVersion": "v1", "kind": "Node", "metadata": node}, "create-node")
    session.cluster.do("delete", "node", "spare")
    session.label("update-node", "node/t4-shared")
    session.make(sharing(4), "create-configmap")
    session.change("update-configmap-replicas", "replace", "--filename=-", stdin=json.dumps(sharing(16)))
    session.change("delete-configmap", "delete", "configmap/time-slicing-config", "--namespace=gpu-operator")
    session.make(sharing(16), "create-configmap-replicas")


def _pods(session: Session) -> None:
    cluster = session.cluster
    here = "--namespace=research"
    with session.taking(
        ("create-pod-trusted", "", "trusted"),
        ("create-binding-binding", "system:kube-scheduler", "trusted"),
        ("update-pod-status", "kwok", "trusted"),
    ):
        session.make(pod("trusted", ONE, TRUSTED))
    session.make(pod("untrusted", ONE, {}), "create-pod-untrusted")
    session.make(pod("slices", {"nvidia.com/gpu.shared": 2}, TRUSTED), "create-pod-two-slices")
    session.make(pod("unearned", ONE, TRUSTED, "visitors"), "create-pod-unearned")
    session.make(pod("visitor", ONE, {}, "visitors"))
    sidecar = pod("sidecar", {}, TRUSTED)
    served = {"name": "server", "image": "registry.example/serve:1", "resources": {"limits": ONE}}
    sidecar["spec"]["initContainers"] = [{**served, "restartPolicy": "Always"}]
    session.make(sidecar, "create-pod-sidecar")
    session.change("create-pod-cpu", "run", "web", "--image=registry.example/web:1", here)
    tried = json.dumps(pod("tried", ONE, TRUSTED))
    session.change("create-pod-dry-run", "create", "--dry-run=server", "--filename=-", stdin=tried)
    applied = pod("applied", ONE, TRUSTED)
    apply = ("apply", "--server-side", "--filename=-")
    session.change("create-pod-apply", *apply, stdin=json.dumps(applied))
    applied["metadata"]["labels"]["tier"] = "test"
    session.settle("pod/applied", here)
    session.change("update-pod-apply", *apply, stdin=json.dumps(applied))
    session.settle("pod/untrusted", here)
    cluster.do("wait", "--for=jsonpath={.status.phase}=Running", "pod/untrusted", here)
    session.change("update-pod-trusted", "annotate", "pod/untrusted", "slicewarden.dev/trust=trusted", here)
    session.settle("pod/visitor", "--namespace=visitors")
    trust = "slicewarden.dev/trust=trusted"
    session.change("update-pod-unearned", "annotate", "pod/visitor", trust, "--namespace=visitors")
    pods = [f"pod/{each}" for each in ("untrusted", "slices", "sidecar", "applied")]
    cluster.do("delete", *pods, here)
    cluster.do("delete", "pods", "--all", "--namespace=visitors")


def _subresources(session: Session) -> None:
    here = "--namespace=research"
    session.label("update-pod-label", "pod/trusted", here)
    session.change(
        "update-pod-ephemeralcontainers",
        *("debug", "trusted", "--image=registry.example/debug:1", "--container=look", here),
    )
    more = {"name": "main", "resources": {"limits": {"cpu": "2"}}}
    busy = pod("busy", {**ONE, "cpu": 1}, TRUSTED)
    session.make(busy)
    session.settle("pod/busy", here)
    resize = json.dumps({"spec": {"containers": [more]}})
    session.change("update-pod-resize", "patch", "pod/busy", "--subresource=resize", f"--patch={resize}", here)
    with session.taking(("connect-podexecoptions-exec", "", "trusted")):
        session.cluster.kubectl("exec", "trusted", here, "--", "true")  # which no kubelet answers
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "busy", "namespace": "research"}}
    raw = "--raw=/api/v1/namespaces/research/pods/busy/eviction"
    session.change("create-eviction-eviction", "create", raw, "--filename=-", stdin=json.dumps(eviction))
    session.settle("pod/trusted", here)
    session.change("delete-pod", "delete", "pod/trusted", here)


def _workloads(session: Session) -> None:
    cluster = session.cluster
    here = "--namespace=research"
    shared, never = template(ONE, TRUSTED), template(ONE, TRUSTED, restartPolicy="Never")
    session.make({**workload("v1", "PodTemplate", "kept"), "template": shared}, "create-podtemplate")
    session.label("update-podtemplate", "podtemplate/kept", here)
    replicated = workload("v1", "ReplicationController", "old", replicas=0, template=shared)
    session.make(replicated, "create-replicationcontroller")
    session.label("update-replicationcontroller", "replicationcontroller/old", here)
    stateful = workload(
        "apps/v1", "StatefulSet", "notebook", replicas=0, serviceName="notebook", selector=SELECTOR, template=shared
    )
    session.make(stateful, "create-statefulset")
    session.label("update-statefulset", "statefulset/notebook", here)
    cron = workload("batch/v1", "CronJob", "nightly", schedule="0 3 1 1 *", jobTemplate={"spec": {"template": never}})
    session.make(cron, "create-cronjob")
    session.label("update-cronjob", "cronjob/nightly", here)

    own = template(ONE, {}, nodeSelector={"kubernetes.io/hostname": "a100-exclusive"})
    with session.taking(("create-pod-daemonset", "daemon-set-controller", "probe-")):
        session.make(workload("apps/v1", "DaemonSet", "probe", selector=SELECTOR, template=own), "create-daemonset")
    cluster.do("rollout", "status", "daemonset/probe", "--timeout=300s", here)
    session.label("update-daemonset", "daemonset/probe", here)
    cluster.do("delete", "daemonset/probe", here)

    with session.taking(("create-pod-job", "job-controller", "once-"), ("update-pod-job", "job-controller", "once-")):
        session.make(workload("batch/v1", "Job", "once", template=never), "create-job")
    cluster.do("wait", "--for=condition=Complete", "--timeout=300s", "job/once", here)
    session.label("update-job", "job/once", here)


def _deployment(session: Session) -> None:
    here = "--namespace=research"
    shared = template(ONE, TRUSTED)
    with session.taking(
        ("create-replicaset-deployment", "deployment-controller", "web-"),
        ("create-pod-replicaset", "replicaset-controller", "web-"),
    ):
        made = workload("apps/v1", "Deployment", "web", replicas=1, selector=SELECTOR, template=shared)
        session.make(made, "create-deployment")
    session.cluster.do("rollout", "status", "deployment/web", "--timeout=300s", here)
    session.settle("deployment/web", here)
    with session.taking(("update-replicaset-deployment", "deployment-controller", "web-")):
        session.change("update-scale-scale", "scale", "deployment/web", "--replicas=2", here)
    session.cluster.do("rollout", "status", "deployment/web", "--timeout=300s", here)
    session.settle("deployment/web", here)
    image = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "registry.example/train:2"}]}}}}
    session.change("update-deployment-patch", "patch", "deployment/web", f"--patch={json.dumps(image)}", here)
    session.cluster.do("rollout", "status", "deployment/web", "--timeout=300s", here)
    session.settle("deployment/web", here)
    limits = {"limits": {"nvidia.com/gpu": None, "nvidia.com/gpu.shared": "2"}, "requests": None}
    container = {"name": "main", "resources": limits}
    grown = json.dumps({"spec": {"replicas": 0, "template": {"spec": {"containers": [container]}}}})
    session.change("update-deployment-two-slices", "patch", "deployment/web", f"--patch={grown}", here)


def _deletions(session: Session) -> None:
    here = "--namespace=research"
    idle = workload("apps/v1", "Deployment", "idle", replicas=0, selector=SELECTOR, template=template(ONE, TRUSTED))
    session.make(idle)
    session.settle("deployment/idle", here)
    session.change("delete-deployment", "delete", "deployment/idle", "--cascade=background", here)
    session.settle("namespace/visitors")
    session.change("delete-namespace", "delete", "namespace/visitors", "--wait=false")


def normalised(review: Object) -> Object:
    """The review with everything replaced that no two runs share."""
    request = review["request"]
    items = (request["object"] or {}, request["oldObject"] or {})
    prefixes = {item.get("metadata", {}).get("generateName") for item in items} - {None}
    ends = [(re.compile(rf"\b{re.escape(each)}[a-z0-9]{{5}}\b"), f"{each}00000") for each in prefixes]
    uuids: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        return uuids.setdefault(match[0], f"00000000-0000-4000-8000-{len(uuids) + 1:012}")

    def walk(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {text(name): walk(each, name) for name, each in value.items()}
        if isinstance(value, list):
            if key == "managedFields":
                value = sorted(value, key=lambda each: [each.get(k, "") for k in MANAGED_BY])
            return [walk(each) for each in value]
        if key == "resourceVersion":
            return "1"
        return text(value) if isinstance(value, str) else value

    def text(value: str) -> str:
        for pattern, replacement in (*REPLACED, *ends):
            value = pattern.sub(replacement, value)
        return UUID.sub(number, value)

    return {key: walk(value) for key, value in review.items()}


MANAGED_BY = ("operation", "manager", "subresource")


def main() -> int:
    """Record, and replace what was recorded before; 2 after one line on what is missing."""
    try:
        programs = binaries.find()
    except binaries.Missing as missing:
        print(missing, file=sys.stderr)
        return 2
    with (
        tempfile.TemporaryDirectory() as scratch,
        recording(Path(scratch)) as (recorder, url, bundle),
        control_plane.running(Path(scratch), programs) as cluster,
    ):
        cluster.add_nodes()
        # Where everything runs, unsteered, with a GPU for each.
        cluster.do("taint", "node", "a100-exclusive", "slicewarden.dev/pool-")
        register(cluster, recorder, url, bundle)
        session = Session(cluster, recorder)
        record(session)
    RECORDED.mkdir(exist_ok=True)
    for old in RECORDED.glob("*.json"):
        old.unlink()
    for name, review in sorted(session.taken.items()):
        file = RECORDED / f"{name}.json"
        file.write_text(json.dumps(normalised(review), indent=1) + "\n", "utf-8")
    print(f"{len(session.taken)} reviews in {RECORDED.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
