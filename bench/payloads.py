"""Makes the AdmissionReviews to measure, as kube-apiserver sends them when a ReplicaSet creates a pod."""

from dataclasses import dataclass
from typing import Any

import orjson

TOLERANCE = 0.05
"""How far a payload's size may be from its nominal one."""

_CREATED = "2025-03-04T05:06:07Z"
_CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"
_PAUSE = {"resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}}}
_GPU = {
    "resources": {
        "requests": {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "1"},
        "limits": {"memory": "8Gi", "nvidia.com/gpu": "1"},
    }
}


@dataclass(frozen=True, slots=True)
class Payload:
    """The bytes of one review. `gpu` is whether the pod requests a GPU, so that it is patched."""

    name: str
    body: bytes
    gpu: bool


def small() -> Payload:
    """Return the review of a trusted pod with one container that requests a GPU: 4 KB."""
    pod = _pod("inference", [_container("server", 0, env=4, **_GPU)], trusted=True)
    return _payload("4 KB", pod, 4096, gpu=True)


def large() -> Payload:
    """Return the review of a trusted pod with ten containers, of which one requests a GPU: 40 KB."""
    containers = [_container("trainer", 0, env=22, **_GPU)]
    containers += [_container(f"sidecar-{index}", index, env=22, **_PAUSE) for index in range(1, 10)]
    return _payload("40 KB", _pod("training", containers, trusted=True), 40960, gpu=True)


def plain() -> Payload:
    """Return the review of a pod with one container without a GPU: 4 KB. Most pods of a cluster are like this."""
    pod = _pod("storefront", [_container("server", 0, env=4, **_PAUSE)], trusted=False)
    return _payload("4 KB, no GPU", pod, 4096, gpu=False)


def _payload(name: str, pod: dict[str, Any], size: int, *, gpu: bool) -> Payload:
    body = orjson.dumps(_review(pod))
    if abs(len(body) - size) > TOLERANCE * size:
        raise AssertionError(f"payload {name} has {len(body)} bytes, not about {size}")
    return Payload(name, body, gpu)


def _review(pod: dict[str, Any]) -> dict[str, Any]:
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "0b4c7f0e-5d1c-4b8a-9a52-6f1f1c0f7a11",
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "namespace": "vision",
            "operation": "CREATE",
            "userInfo": {
                "username": _CONTROLLER,
                "uid": "3c1b9c56-1b0e-44c2-9e7c-0f6f4f3f3c90",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
            },
            "object": pod,
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    }


def _pod(name: str, containers: list[dict[str, Any]], *, trusted: bool) -> dict[str, Any]:
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": "8000"}
    if trusted:
        annotations["slicewarden.dev/trust"] = "trusted"
    labels = {
        "app.kubernetes.io/name": name,
        "app.kubernetes.io/part-of": "vision",
        "app.kubernetes.io/version": "2.3.1",
        "pod-template-hash": "6d5f7c9b8d",
    }
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "generateName": f"{name}-6d5f7c9b8d-",
            "namespace": "vision",
            "creationTimestamp": None,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"{name}-6d5f7c9b8d",
                    "uid": "7f9a2f0c-86b5-4d5a-8a2c-0b8a7e3d9b55",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [_managed(labels, containers)],
        },
        "spec": {
            "volumes": [
                *_volumes(len(containers)),
                {
                    "name": "kube-api-access-x7k2p",
                    "projected": {
                        "sources": [
                            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                            {
                                "configMap": {
                                    "name": "kube-root-ca.crt",
                                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                                }
                            },
                        ],
                        "defaultMode": 420,
                    },
                },
            ],
            "containers": containers,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "serviceAccount": "default",
            "securityContext": {"runAsNonRoot": True, "fsGroup": 1000},
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{condition}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for condition in ("not-ready", "unreachable")
            ],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {},
    }


def _managed(labels: dict[str, str], containers: list[dict[str, Any]]) -> dict[str, Any]:
    """List the fields of the pod that kube-controller-manager owns, as in `managedFields`."""
    fields: dict[str, Any] = {
        f'k:{{"name":"{container["name"]}"}}': {
            ".": {},
            "f:env": {
                ".": {},
                **{
                    f'k:{{"name":"{each["name"]}"}}': {".": {}, "f:name": {}, "f:value": {}}
                    for each in container["env"]
                    if "value" in each
                },
            },
            "f:image": {},
            "f:name": {},
        }
        for container in containers
    }
    return {
        "manager": "kube-controller-manager",
        "operation": "Update",
        "apiVersion": "v1",
        "time": _CREATED,
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:labels": {".": {}, **{f"f:{key}": {} for key in labels}}},
            "f:spec": {"f:containers": fields},
        },
    }


def _volumes(count: int) -> list[dict[str, Any]]:
    return [
        volume
        for index in range(count)
        for volume in (
            {"name": f"config-{index}", "configMap": {"name": f"settings-{index}", "defaultMode": 420}},
            {"name": f"scratch-{index}", "emptyDir": {"sizeLimit": "10Gi"}},
        )
    ]


def _container(name: str, index: int, *, env: int, resources: dict[str, Any]) -> dict[str, Any]:
    variables: list[dict[str, Any]] = [
        {"name": f"SETTING_{number:02d}", "value": f"value-{number:02d}-of-{name}"} for number in range(env - 2)
    ]
    variables.append(
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}
    )
    variables.append(
        {
            "name": "API_TOKEN",
            "valueFrom": {"secretKeyRef": {"name": f"{name}-credentials", "key": "token", "optional": True}},
        }
    )
    return {
        "name": name,
        "image": f"registry.example.com/vision/{name}:2.3.1",
        "args": ["--listen=0.0.0.0:8000", "--log-level=info"],
        "ports": [{"name": "http", "containerPort": 8000 + index, "protocol": "TCP"}],
        "env": variables,
        "resources": resources,
        "volumeMounts": [
            {"name": f"config-{index}", "mountPath": "/etc/settings", "readOnly": True},
            {"name": f"scratch-{index}", "mountPath": "/scratch"},
            {
                "name": "kube-api-access-x7k2p",
                "readOnly": True,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            },
        ],
        "livenessProbe": _probe("/healthz", 8000 + index, 10),
        "readinessProbe": _probe("/readyz", 8000 + index, 3),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def _probe(path: str, port: int, period: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": port, "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": period,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
