"""Claims for slices of a GPU: judged by the webhook, and allocated by the real scheduler from ResourceSlices."""

import json
from collections.abc import Iterator

import pytest

from tests.e2e import offered
from tests.e2e.conftest import Space, granted
from tests.e2e.control_plane import Cluster, eventually
from tests.e2e.guard import Guard, policy_of
from tests.e2e.objects import TRUSTED, Object, pod, resource
from tests.support import policies
from webhook.engine.registration import configurations

pytestmark = pytest.mark.needs(offered.DEVICES)

NODE, DRIVER, CLASS = "t4-shared", "gpu.example.com", "shared-gpu.example.com"
IMPLICIT = f"deviceclass.resource.kubernetes.io/{CLASS}"


DEVICE_CLASS = resource("DeviceClass", CLASS, {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]})
MEMORY = {"value": "16Gi", "requestPolicy": {"default": "4Gi", "validRange": {"min": "1Gi"}}}
SLICE = resource(
    "ResourceSlice",
    NODE,
    {
        "driver": DRIVER,
        "nodeName": NODE,
        "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {
                "name": "gpu-0",
                "allowMultipleAllocations": True,
                "attributes": {"uuid": {"string": "GPU-0"}, "productName": {"string": "Tesla T4"}},
                "capacity": {"memory": MEMORY},
            }
        ],
    },
)
"""One card of 16 GiB, as a driver publishes it that lets claims share it."""


@pytest.fixture(scope="module")
def sharing(guard: Guard) -> Iterator[Guard]:
    """The webhook by a policy whose shared pool has a device class, and the driver's objects."""
    cluster = guard.cluster
    words = f"      deviceClasses: [{CLASS}]\n      maxMemory: 8Gi\n"
    text = policy_of(cluster).replace("    - name: mig\n", f"{words}\n    - name: mig\n", 1)
    guard.registered_for = [dict(each) for each in configurations(policies.policy_of(text))]
    guard.judge_by(text)
    guard.register()
    guard.install(DEVICE_CLASS, SLICE)
    yield guard
    cluster.do("delete", "--wait=false", "--filename=-", stdin="---\n".join(map(json.dumps, (DEVICE_CLASS, SLICE))))
    guard.unregister()
    guard.registered_for = []
    guard.judge_by()


@pytest.fixture
def vision(sharing: Guard, space: Space) -> str:
    """A namespace whose pods and claims may be trusted, as the webhook knows already."""
    return granted(sharing, space(TRUSTED))


def template(namespace: str, memory: str | None = "4Gi", annotations: dict[str, str] | None = None) -> Object:
    capacity = {"capacity": {"requests": {"memory": memory}}} if memory is not None else {}
    request = {"name": "gpu", "exactly": {"deviceClassName": CLASS, **capacity}}
    metadata = {"annotations": TRUSTED if annotations is None else annotations}
    spec = {"metadata": metadata, "spec": {"devices": {"requests": [request]}}}
    return resource("ResourceClaimTemplate", "quarter", spec, namespace)


def claiming(name: str, namespace: str) -> Object:
    made = pod(name, namespace, {}, TRUSTED, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "quarter"}])
    made["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    return made


def known(guard: Guard, namespace: str) -> bool:
    """Tell whether the webhook has seen the template: a pod for show is capped by it."""
    asks = json.dumps(claiming("probe", namespace))
    made = guard.cluster.kubectl("create", "--dry-run=server", "--output=json", "--filename=-", stdin=asks)
    return made.returncode == 0 and "template quarter" in made.stdout


def allocated(cluster: Cluster, namespace: str) -> list[str]:
    """The devices of the claims of a namespace."""
    claims = cluster.get("resourceclaims", f"--namespace={namespace}")["items"]
    results = [
        each["status"]["allocation"]["devices"]["results"] for each in claims if each["status"].get("allocation")
    ]
    return [result["device"] for found in results for result in found]


def waits(cluster: Cluster, name: str, namespace: str) -> bool:
    conditions = cluster.get("pod", name, f"--namespace={namespace}")["status"].get("conditions", ())
    return any(each["type"] == "PodScheduled" and each.get("reason") == "Unschedulable" for each in conditions)


@pytest.mark.needs(offered.CAPACITY)
def test_pods_share_a_card_by_claims_until_its_memory_is_taken(sharing: Guard, vision: str) -> None:
    """Each is capped by its template, is held to the pool, and gets the card from the scheduler; a fifth one waits."""
    cluster = sharing.cluster
    assert cluster.apply(template(vision)).returncode == 0
    assert eventually(lambda: known(sharing, vision))
    for number in range(4):
        applied = cluster.apply(claiming(f"share-{number}", vision))
        assert applied.returncode == 0, applied.stderr
        assert cluster.node_of(f"share-{number}", vision) == NODE
    stored = cluster.get("pod", "share-0", f"--namespace={vision}")
    record = json.loads(stored["metadata"]["annotations"]["slicewarden.dev/memory-caps"])
    # 4 GiB less the 512 MiB that a process takes on a T4 outside its allocator.
    assert (record["claim"], record["mib"]) == ("template quarter", 3584)
    assert allocated(cluster, vision) == ["gpu-0"] * 4
    assert cluster.apply(claiming("fifth", vision)).returncode == 0
    assert eventually(lambda: waits(cluster, "fifth", vision))


@pytest.mark.needs(offered.CLASSES)
def test_a_class_that_is_asked_for_as_a_resource_is_claimed_by_the_scheduler(sharing: Guard, vision: str) -> None:
    """The claim that the scheduler makes passes the webhook: its pod was judged by the resource."""
    cluster = sharing.cluster
    assert cluster.apply(pod("implicit", vision, {IMPLICIT: 1}, TRUSTED)).returncode == 0
    assert cluster.node_of("implicit", vision) == NODE
    (made,) = cluster.get("resourceclaims", f"--namespace={vision}")["items"]
    assert made["metadata"]["annotations"]["resource.kubernetes.io/extended-resource-claim"] == "true"
    assert allocated(cluster, vision) == ["gpu-0"]


@pytest.mark.parametrize(
    ("item", "rule"),
    [
        (lambda vision, _: template(vision, None), "unsized-claim"),
        (lambda vision, _: template(vision, "9Gi"), "unsized-claim"),
        (lambda vision, _: template(vision, annotations={}), "claimed-gpu"),
        (lambda _, visitors: template(visitors), "claimed-gpu"),
    ],
    ids=["no memory", "too much", "no trust", "no grant"],
)
def test_a_template_that_the_pool_does_not_take_is_refused(
    sharing: Guard, vision: str, space: Space, item: object, rule: str
) -> None:
    assert callable(item)
    made = sharing.cluster.apply(item(vision, space()))
    assert made.returncode != 0
    assert f"{rule}: " in made.stderr


def of_a_network_card(namespace: str) -> Object:
    requests = [{"name": "nic", "exactly": {"deviceClassName": "netdev.google.com"}}]
    return resource("ResourceClaim", "device", {"devices": {"requests": requests}}, namespace)


def gated(name: str, namespace: str, **container: object) -> Object:
    """A pod that waits, with the claim for the network card and without a toleration."""
    claims = [{"name": "device", "resourceClaimName": "device"}]
    made = pod(name, namespace, {}, {}, resourceClaims=claims, schedulingGates=[{"name": "example.com/wait"}])
    made["spec"]["containers"][0] |= {"resources": {"claims": [{"name": "device"}]}, **container}
    return made


TOLERATIONS = json.dumps({"spec": {"tolerations": [{"key": "slicewarden.dev/pool", "operator": "Exists"}]}})


def test_no_claim_that_is_gone_brings_a_privileged_pod_to_gpus(sharing: Guard, space: Space) -> None:
    cluster, namespace = sharing.cluster, space()
    privileged = {"securityContext": {"privileged": True}}
    probe = json.dumps(gated("probe", namespace, **privileged))

    def passes() -> bool:
        """Tell whether a webhook that knows the claim takes the pod for one that the guard keeps off."""
        return cluster.kubectl("create", "--dry-run=server", "--filename=-", stdin=probe).returncode == 0

    assert cluster.apply(of_a_network_card(namespace)).returncode == 0
    assert eventually(passes)
    closed = {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]}
    for name, container in (("late", privileged), ("honest", closed)):
        assert cluster.apply(gated(name, namespace, **container)).returncode == 0
    cluster.do("delete", "resourceclaim", "device", f"--namespace={namespace}")
    assert eventually(lambda: not passes())
    late, honest = (
        cluster.kubectl("patch", "pod", name, f"--namespace={namespace}", "--type=merge", f"--patch={TOLERATIONS}")
        for name in ("late", "honest")
    )
    assert late.returncode
    assert "privileged-container: " in late.stderr
    assert honest.returncode == 0, honest.stderr
