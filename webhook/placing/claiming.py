"""Finds the claims of pods for a simulation: claims that exist, and claims to be made from templates."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from webhook.api.devices import CLAIM, CLASS, GROUP, TEMPLATE
from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings, string
from webhook.api.metadata import name_of, namespace_of
from webhook.catalog.gpu_requests import IMPLICIT
from webhook.facts.kinds.resource_slice import SLICE
from webhook.model import Object
from webhook.placing.scheduling import selectors
from webhook.placing.scheduling.allocation import Stock
from webhook.placing.scheduling.devices import ResourceClaim, allocated, claim_of, pools_of

NO_SLICES = "no ResourceSlice is among the facts"
NO_READER = f"install the extra that reads the selectors of device classes: pip install '{selectors.EXTRA}'"


@dataclass(eq=False)
class Claims:
    """The claims of a simulation by namespace and name, the templates, and the devices.

    If claims are not simulated, `unplayed` is the reason. `by_resource` has the device class that is offered under the
    name of a resource.
    """

    stock: Stock
    unplayed: str = ""
    named: dict[tuple[str, str], ResourceClaim] = field(default_factory=dict)
    templates: dict[tuple[str, str], Object] = field(default_factory=dict)
    by_resource: dict[str, str] = field(default_factory=dict)

    def of(self, spec: Mapping[str, Any], namespace: str, pod: str) -> tuple[tuple[ResourceClaim, ...], str]:
        """Return the claims of a new pod, and the reason why no node can run it.

        The reason is empty if all its claims exist.
        """
        found, missing = list[ResourceClaim](), ""
        for entry in mappings(spec.get("resourceClaims")):
            name, template = string(entry.get("resourceClaimName")), string(entry.get("resourceClaimTemplateName"))
            claim = self.named.get((namespace, name)) if name else self._made(namespace, template, pod)
            if claim is None:
                missing = f'{"resourceclaim" if name else "resourceclaimtemplate"} "{name or template}" not found'
                continue
            found.append(claim)
            unknown = [
                one.device_class
                for ones in claim.requests
                for one in ones
                if one.device_class not in self.stock.classes
            ]
            if unknown:
                missing = f"device class {unknown[0]} does not exist"
        return tuple(found), missing

    def _made(self, namespace: str, template: str, pod: str) -> ResourceClaim | None:
        item = self.templates.get((namespace, template))
        return claim_of(item, f"template {template}, for {pod}") if item is not None else None

    def held_by(self, pod: Object, namespace: str) -> tuple[ResourceClaim, ...]:
        """Return the claims whose devices a running pod has."""
        status, spec = mapping(pod.get("status")), mapping(pod.get("spec"))
        names = [string(each.get("resourceClaimName")) for each in mappings(status.get("resourceClaimStatuses"))]
        names += [string(each.get("resourceClaimName")) for each in mappings(spec.get("resourceClaims"))]
        names.append(string(mapping(status.get("extendedResourceClaimStatus")).get("resourceClaimName")))
        found = (self.named.get((namespace, name)) for name in dict.fromkeys(filter(None, names)))
        return tuple(claim for claim in found if claim is not None and claim.held is not None)

    def classes_for(self, asks: Iterable[str]) -> Mapping[str, str]:
        """Return the device classes that are offered under the names of the resources a pod requests, by resource."""
        return {name: self.by_resource[name] for name in asks if name in self.by_resource}


def claims_among(objects: Iterable[Object]) -> Claims:
    """Read classes, slices, claims and templates among objects."""
    by_kind: dict[tuple[str, str], dict[tuple[str, str], Object]] = {}
    for item in objects:
        by_kind.setdefault(group_kind(item), {})[namespace_of(item), name_of(item)] = item
    slices = by_kind.get(SLICE, {})
    reads = selectors.reader()
    if not slices or reads is None:
        return Claims(Stock(), NO_SLICES if not slices else NO_READER)
    classes = sorted(by_kind.get((GROUP, CLASS), {}).items(), key=lambda each: _age(each[1]))
    stock = Stock(pools_of(slices.values()), {name: tuple(_selectors(item)) for (_, name), item in classes}, reads)
    found = Claims(stock, templates=by_kind.get((GROUP, TEMPLATE), {}))
    for (_, name), item in classes:
        resource = string(mapping(item.get("spec")).get("extendedResourceName"))
        found.by_resource |= {IMPLICIT + name: name, **({resource: name} if resource else {})}
    devices = {device.id: device for pool in stock.pools for device in pool.devices}
    for (namespace, name), item in by_kind.get((GROUP, CLAIM), {}).items():
        claim = claim_of(item, f"claim {name}")
        if claim is not None:
            found.named[namespace, name] = claim
            if holding := allocated(item, devices):
                stock.take(claim, *holding)
    return found


def _age(item: Object) -> str:
    """The time of a class: of two for one resource the later one counts (extended/deviceclass_cache)."""
    return string(mapping(item.get("metadata")).get("creationTimestamp"))


def _selectors(item: Object) -> Iterator[str]:
    for each in mappings(mapping(item.get("spec")).get("selectors")):
        yield string(mapping(each.get("cel")).get("expression"))
