"""Views of the objects of dynamic resource allocation: classes, claims and their templates.

Source: k8s.io/api resource/v1 types.go, and resource/v1beta1 for requests without `exactly`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, NamedTuple

from webhook.api import quantity
from webhook.api.fields import MAX_NAME, as_kind, as_map, entries, items, section, text, texts
from webhook.model import Malformed, Object, Path, Request, Requester, immutable

CLASS, CLAIM, TEMPLATE = "DeviceClass", "ResourceClaim", "ResourceClaimTemplate"
GROUP = "resource.k8s.io"

DEVICES: Mapping[tuple[str, str], Path] = {
    (GROUP, CLASS): ("spec",),
    (GROUP, CLAIM): ("spec", "devices"),
    (GROUP, TEMPLATE): ("spec", "spec", "devices"),
}
"""The kinds of dynamic resource allocation, with the paths of their requests and configurations."""

MEMORY = "memory"
"""The capacity of GPUs that claims share, as NVIDIA's driver names it. Another driver may put its domain before it."""

UNIQUE = frozenset(("uuid", "parentUUID", "pciBusID"))
"""The last parts of attributes whose value differs from card to card (dra-driver-nvidia-gpu, deviceinfo.go)."""


_ENTRY = frozenset(("name", "resourceClaimName", "resourceClaimTemplateName"))
"""The fields of a pod's entry for a claim in Kubernetes 1.37."""


def source(entry: Object) -> tuple[str, str] | None:
    """Return the kind and the name of the claim or template to which an entry of a pod's `resourceClaims` refers.

    Returns None for an entry that names both, or that has any other source, which a later Kubernetes may add
    (k8s.io/api core/v1, PodResourceClaim).
    """
    claim, template = entry.get("resourceClaimName"), entry.get("resourceClaimTemplateName")
    if (claim is None) is (template is None) or any(entry[key] is not None for key in entry.keys() - _ENTRY):
        return None
    kind, name = (CLAIM, claim) if template is None else (TEMPLATE, template)
    return (kind, name) if isinstance(name, str) else None


class DeviceRequest(NamedTuple):
    """A request for devices, or one alternative in a request (`firstAvailable`).

    `place` is the index of the request. `number` is how many devices it requests, and `everything` is true if it takes
    all. `capacity` is how much it takes of a device that several requests may share, as written. `apart` is the index
    of a constraint by which all requests under it get different cards; None if there is none.
    """

    path: Path
    device_class: str
    everything: bool
    admin: bool
    selectors: tuple[str, ...]
    place: int = 0
    name: str = ""
    number: int = 1
    capacity: Mapping[str, Any] = {}
    tolerations: tuple[tuple[Path, Object], ...] = ()
    apart: int | None = None

    @property
    def memory(self) -> tuple[str, object] | None:
        """The name and the quantity of the memory that the request takes of a device; None if it names no memory.

        If it names several, the one without a domain counts, else the first.
        """
        named = (one for one in self.capacity.items() if one[0].rpartition("/")[2] == MEMORY)
        return min(named, key=lambda one: one[0] != MEMORY, default=None)

    @property
    def mib(self) -> int | None:
        """The memory that the request takes of a device, in MiB, rounded down; None if it names no readable amount."""
        if self.memory is None:
            return None
        try:
            return int(quantity.parse(self.memory[1]) // 2**20)
        except ValueError:
            return None


class DeviceConfig(NamedTuple):
    """A configuration of devices for a driver. Only that driver knows the meaning of `parameters`."""

    path: Path
    driver: str
    parameters: Any


@immutable
class DeviceClaim:
    """A ResourceClaim, a ResourceClaimTemplate or a DeviceClass (`kind`). A DeviceClass has no requests.

    `resource` is the extended resource by which pods can request a class's devices; empty if none (KEP-5004).
    `annotations` are the claim's own, at `metadata_path`. For a template they are the ones that its claims get: the
    controller copies no others (kubernetes pkg/controller/resourceclaim/controller.go).
    """

    kind: str
    name: str
    namespace: str
    requests: tuple[DeviceRequest, ...]
    configs: tuple[DeviceConfig, ...]
    resource: str = ""
    annotations: Mapping[str, Any] = field(default_factory=dict)
    metadata_path: Path = ("metadata",)
    base: Path = ("spec", "devices")
    devices: Object = field(default_factory=dict)
    """Everything at `base`: for a DeviceClass its whole spec."""
    requester: Requester | None = None
    old: "DeviceClaim | None" = None


def device_claim(item: Object, request: Request) -> DeviceClaim:
    """Return the view of a DeviceClass, a claim or a template. Raises Malformed for a value of a wrong type."""
    base = DEVICES[request.group, request.kind]
    metadata, devices = section(item, "metadata", ()), item
    for depth, key in enumerate(base):
        devices = section(devices, str(key), base[:depth])
    namespaced = request.kind != CLASS
    namespace = request.namespace or text(metadata, "namespace", ("metadata",)) or "default"
    of_claims: Path = ("spec", "metadata") if request.kind == TEMPLATE else ("metadata",)
    own = section(section(item, "spec", ()), "metadata", ("spec",)) if request.kind == TEMPLATE else metadata
    return DeviceClaim(
        kind=request.kind,
        name=request.name or text(metadata, "name", ("metadata",)),
        namespace=namespace if namespaced else "",
        requests=tuple(device_requests(devices, base)) if namespaced else (),
        configs=tuple(_device_configs(devices, base)),
        resource="" if namespaced else text(devices, "extendedResourceName", base),
        annotations=section(own, "annotations", of_claims),
        metadata_path=of_claims,
        base=base,
        devices=devices,
        requester=request.requester,
    )


def device_requests(devices: Object, base: Path) -> Iterator[DeviceRequest]:
    """Yield the requests of a claim's `devices`, at the path `base`, with all alternatives."""
    apart = _kept_apart(devices, base)
    for index, item in enumerate(items(devices, "requests", base)):
        path = (*base, "requests", index)
        asked = as_map(item, path)
        name = text(asked, "name", path)
        if len(name) > MAX_NAME:  # each alternative has it in its own name
            raise Malformed((*path, "name"), f"must have at most {MAX_NAME} characters, as every name")
        # Up to v1beta1 the fields of `exactly` were in the request itself.
        yield _device_request(asked, path, index, name, apart)
        yield _device_request(section(asked, "exactly", path), (*path, "exactly"), index, name, apart)
        for number, alternative in enumerate(items(asked, "firstAvailable", path)):
            at = (*path, "firstAvailable", number)
            one = as_map(alternative, at)
            yield _device_request(one, at, index, f"{name}/{text(one, 'name', at)}", apart)


def _kept_apart(devices: Object, base: Path) -> Mapping[str, int]:
    """Return the first constraint that puts the devices of a request on different cards, by the request's name.

    An empty name stands for all requests. A constraint on an attribute that the claim itself derives keeps nothing
    apart: its expression replaces what the driver says of a device (feature gate DRADerivedAttributes). A derived name
    without a domain counts for every domain; Kubernetes 1.37 refuses such names.
    """
    found: dict[str, int] = {}
    derived = frozenset(_derived(devices, base))
    for index, constraint in entries(devices, "constraints", base):
        path = (*base, "constraints", index)
        attribute = text(constraint, "distinctAttribute", path)
        last = attribute.rpartition("/")[2]
        if last in UNIQUE and derived.isdisjoint((attribute, last)):
            for name in [name for _, name in texts(constraint, "requests", path)] or [""]:
                found.setdefault(name, index)
    return found


def _derived(devices: Object, base: Path) -> Iterator[str]:
    """Yield the names of the attributes that the requests of a claim compute from those of a device."""
    for index, asked in entries(devices, "requests", base):
        path = (*base, "requests", index)
        # Up to v1beta1 the fields of `exactly` were in the request itself.
        holders: list[tuple[Path, Object]] = [(path, asked), ((*path, "exactly"), section(asked, "exactly", path))]
        holders += [((*path, "firstAvailable", number), one) for number, one in entries(asked, "firstAvailable", path)]
        for at, holder in holders:
            for number, each in entries(holder, "derivedAttributes", at):
                yield text(each, "name", (*at, "derivedAttributes", number))


def _device_request(asked: Object, path: Path, place: int, name: str, apart: Mapping[str, int]) -> DeviceRequest:
    selectors = [
        text(section(as_map(item, at), "cel", at), "expression", (*at, "cel"))
        for index, item in enumerate(items(asked, "selectors", path))
        for at in [(*path, "selectors", index)]
    ]
    return DeviceRequest(
        path=path,
        device_class=text(asked, "deviceClassName", path),
        everything=text(asked, "allocationMode", path) == "All",
        admin=as_kind(bool, asked.get("adminAccess"), (*path, "adminAccess")),
        selectors=tuple(selectors),
        place=place,
        name=name,
        number=as_kind(int, asked.get("count"), (*path, "count")) or 1,
        capacity=section(section(asked, "capacity", path), "requests", (*path, "capacity")),
        tolerations=tuple(((*path, "tolerations", index), each) for index, each in entries(asked, "tolerations", path)),
        apart=next((apart[each] for each in ("", name.partition("/")[0], name) if each in apart), None),
    )


def _device_configs(devices: Object, base: Path) -> Iterator[DeviceConfig]:
    for index, item in enumerate(items(devices, "config", base)):
        path = (*base, "config", index)
        opaque = section(as_map(item, path), "opaque", path)
        if opaque:
            at = (*path, "opaque")
            yield DeviceConfig((*at, "parameters"), text(opaque, "driver", at), opaque.get("parameters"))
