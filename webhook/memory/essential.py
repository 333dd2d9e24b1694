"""The part of a pod on which its allowance and its slices depend. A tenant may write any amount of the rest."""

from typing import Any

from webhook.api.lenient import mapping, sequence, string
from webhook.api.pods import CONTAINER_LISTS
from webhook.catalog import gangs
from webhook.gpu import pauses
from webhook.memory.driver.variables import HARD
from webhook.model import Object

_VARIABLES = ("env[].name", "env[].value", "env[].valueFrom")

OWN = ("labels", "annotations", "ownerReferences")
"""The metadata that a tenant may write, and that is read."""

FIELDS = (
    *("metadata.uid", "metadata.deletionTimestamp", "metadata.labels", "metadata.annotations"),
    *(f"metadata.ownerReferences[].{field}" for field in ("controller", "kind", "name")),
    *("spec.nodeName", "spec.nodeSelector", "spec.resourceClaims", "spec.resources", "spec.overhead"),
    *("spec.serviceAccount", "spec.serviceAccountName"),
    *(f"spec.{field}" for field in pauses.FIELDS),
    *(
        f"spec.{containers}[].{field}"
        for containers in CONTAINER_LISTS
        for field in ("name", "resources", "restartPolicy", *_VARIABLES, *pauses.CONTAINER_FIELDS)
    ),
)
"""The fields of a pod that `webhook.memory.admitted` and `webhook.usage.held` read, next to its names."""

_READ = HARD | gangs.VARIABLES


def essential(spec: Object) -> Object:
    """Return a spec with only those variables of its containers that are read."""
    return {
        key: [_container(each) for each in sequence(value)] if key in CONTAINER_LISTS else value
        for key, value in spec.items()
    }


def _container(container: Any) -> Any:
    env = sequence(mapping(container).get("env"))
    if not env:
        return container
    last = {name: each for each in env if (name := string(mapping(each).get("name"))) in _READ}
    return {**container, "env": [*last.values()]}
