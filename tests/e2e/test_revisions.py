"""Read what a StatefulSet was: its controller makes pods of a ControllerRevision as it stands, whoever wrote it.

So a grant that names users would hear a stranger after all. Shown on Kubernetes' own controller, with the webhook
before it: once with nobody asked about revisions, and once as it is registered.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e import control_plane
from tests.e2e.access import allowed, bound, definition, refusal, role, served
from tests.e2e.control_plane import Cluster, User, eventually
from tests.e2e.guard import Guard, policy_of
from tests.e2e.objects import ONE, TRUSTED, Object, template, workload
from tests.support import policies
from webhook.catalog.workloads import WORKLOADS
from webhook.engine.registration import configurations

OWNER, STRANGER = User("mia"), User("eve")
"""The one whom the grant names, and one who was given more than the role `edit` has."""
HERE = "--namespace=studio"


@pytest.fixture(scope="module")
def guard(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guard]:
    """A cluster whose policy lets pods of the namespace studio be trusted where one user asks for it."""
    with control_plane.running(tmp_path_factory.mktemp("revisions"), programs) as cluster:
        cluster.add_nodes()
        cluster.add_namespace("studio")
        revisions = {"apiGroups": ["apps"], "resources": ["controllerrevisions"], "verbs": ["*"]}
        cluster.apply(
            role("revisions", revisions),
            bound("RoleBinding", "owner", "edit", OWNER.name, namespace="studio"),
            bound("RoleBinding", "stranger", "edit", STRANGER.name, namespace="studio"),
            bound("RoleBinding", "more", "revisions", STRANGER.name, namespace="studio"),
        )
        allowed(cluster, OWNER, "create", "statefulsets.apps", "studio")
        for resource in ("pods", "controllerrevisions.apps"):
            allowed(cluster, STRANGER, "delete", resource, "studio")
        guard = Guard(cluster)
        guard.start(text := policy(cluster))
        guard.registered_for = made(text)
        guard.register()
        yield guard


def policy(cluster: Cluster) -> str:
    value = yaml.safe_load(policy_of(cluster))
    value["spec"]["trust"]["grants"] = [{"namespaces": ["studio"], "users": [OWNER.name]}]
    return yaml.safe_dump(value)


def made(text: str) -> list[Object]:
    return [*configurations(policies.policy_of(text))]


def test_a_stranger_writes_no_revision_of_a_trusted_stateful_set(guard: Guard) -> None:
    cluster = guard.cluster
    body = workload(
        "StatefulSet",
        "render",
        "studio",
        template(ONE, TRUSTED),
        replicas=1,
        updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 1}},
    )
    cluster.do("create", "--filename=-", stdin=json.dumps(body), user=OWNER)
    assert cluster.node_of("render-0", "studio") == "t4-shared"
    assert image(cluster) == "i"
    assert eventually(lambda: "currentRevision" in cluster.get("statefulset", "render", HERE)["status"])
    # As it is registered.
    forged = revision(cluster)
    cluster.do("delete", "controllerrevision", forged["metadata"]["name"], HERE, user=STRANGER)
    assert "unearned-trust:" in refusal(cluster, STRANGER, "create", "--filename=-", item=forged)
    # A controller's own, and one that is labelled, are nobody's affair.
    cluster.do("scale", "statefulset/render", "--replicas=2", HERE, user=STRANGER)
    assert eventually(lambda: names(cluster) != [])
    cluster.do("label", "controllerrevision", *names(cluster), "reviewed=yes", HERE, user=STRANGER)
    # With nobody asked it happens: a trusted pod of the stranger's.
    forged = revision(cluster)
    guard.without(
        "revisions.slicewarden.dev", lambda: "unearned-trust:" not in written(cluster, forged, "--dry-run=server")
    )
    assert eventually(lambda: replaced(cluster, forged))
    assert eventually(lambda: remade(cluster) == "miner")
    assert cluster.get("pod", "render-0", HERE)["metadata"]["annotations"]["slicewarden.dev/trust"] == "trusted"


def test_a_stranger_writes_no_status_that_says_what_trusted_pods_run(guard: Guard) -> None:
    """An API server takes a status that is a subresource out of an update before it asks. A Workflow has none."""
    cluster = guard.cluster
    kinds = {"Workflow": WORKLOADS["argoproj.io", "Workflow"], "JobSet": WORKLOADS["jobset.x-k8s.io", "JobSet"]}
    definitions = {kind: definition(each, ["v1"], status=kind == "JobSet") for kind, each in kinds.items()}
    cluster.apply(
        *definitions.values(),
        *(
            role(name, {"apiGroups": [each.group], "resources": [each.resource], "verbs": ["*"]})
            for name, each in (("workflows", kinds["Workflow"]), ("jobsets", kinds["JobSet"]))
        ),
        *(
            bound("RoleBinding", f"{user.name}-{name}", name, user.name, namespace="studio")
            for user in (OWNER, STRANGER)
            for name in ("workflows", "jobsets")
        ),
    )
    served(cluster, *(each["metadata"]["name"] for each in definitions.values()))
    spec = template(ONE, TRUSTED)
    job = {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": spec}}}]}
    flow = {"podMetadata": spec["metadata"], "workflowTemplateRef": {"name": "render"}}
    for kind, body in (("JobSet", job), ("Workflow", flow)):
        one = kinds[kind]
        for user in (OWNER, STRANGER):
            for verb in ("create", "patch"):
                allowed(cluster, user, verb, f"{one.resource}.{one.group}", "studio")
        item = {"apiVersion": f"{one.group}/v1", "kind": kind, "metadata": {"name": "render", "namespace": "studio"}}
        cluster.do("create", "--filename=-", stdin=json.dumps({**item, "spec": body}), user=OWNER)
    status = json.dumps(
        {"status": {"storedWorkflowTemplateSpec": {"templates": [template()]}}, "spec": {"suspend": True}}
    )
    patch = ("--type=merge", f"--patch={status}", HERE)
    cluster.do("patch", "jobset/render", *patch, user=STRANGER)
    found = cluster.get("jobset", "render", HERE)
    assert (found["spec"]["suspend"], found.get("status")) == (True, None)
    assert "unearned-trust:" in refusal(cluster, STRANGER, "patch", "workflow/render", *patch)
    cluster.do("patch", "workflow/render", "--type=merge", '--patch={"spec":{"suspend":true}}', HERE, user=STRANGER)
    cluster.do("patch", "workflow/render", *patch, user=OWNER)


def revision(cluster: Cluster) -> Object:
    """The one that the StatefulSet calls its current one, with another image."""
    name = cluster.get("statefulset", "render", HERE)["status"]["currentRevision"]
    found = cluster.get("controllerrevision", name, HERE)
    labels, data = found["metadata"]["labels"], found["data"]
    data["spec"]["template"]["spec"]["containers"][0]["image"] = "miner"
    metadata = {"name": name, "namespace": "studio", "labels": labels}
    return {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata, "revision": 1, "data": data}


def written(cluster: Cluster, item: Object, *options: str) -> str:
    """Why an object of the stranger's is not created; empty if it is."""
    return cluster.kubectl("create", *options, "--filename=-", stdin=json.dumps(item), user=STRANGER).stderr


def replaced(cluster: Cluster, item: Object) -> bool:
    """Let the stranger write a revision in place of the one that is there, unless its controller is faster."""
    gone = ("delete", "controllerrevision", item["metadata"]["name"], "--ignore-not-found", HERE)
    cluster.do(*gone, user=STRANGER)
    return written(cluster, item) == ""


def remade(cluster: Cluster) -> str:
    """Let the stranger delete the pod, and return the image of the next one.

    The controller may make it of the revision before, until it has heard of the new one.
    """
    cluster.do("delete", "pod", "render-0", "--ignore-not-found", HERE, user=STRANGER)
    cluster.wait_until("the pod is made again", lambda: image(cluster) != "")
    return image(cluster)


def names(cluster: Cluster) -> list[str]:
    return [each["metadata"]["name"] for each in cluster.get("controllerrevisions", HERE)["items"]]


def image(cluster: Cluster) -> str:
    made = cluster.kubectl("get", "pod", "render-0", HERE, "--output=jsonpath={.spec.containers[0].image}")
    return made.stdout
