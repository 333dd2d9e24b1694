"""Defines the settings of a controller: where its objects are, and how long requests take."""

from dataclasses import dataclass

from webhook.engine.paths import MUTATE, VALIDATE
from webhook.engine.registration import API_VERSION, NAME

POLICIES = "/apis/slicewarden.dev/v1alpha1/gpusharingpolicies"
ADMISSION = f"/apis/{API_VERSION}"
CONFIGURATIONS = {
    VALIDATE: ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    MUTATE: ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
}
MANAGER = "slicewarden-controller"
"""The field manager of all that the controller writes."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The settings of a controller: where the webhook is, and how long requests take.

    `servers` are URLs that replace those in EndpointSlice `default/kubernetes`; `replicas` are HOST:PORT of health
    ports that replace those in the Service's EndpointSlices. `url` is the origin of a webhook outside the cluster.
    `drain` is in seconds. With `ca_secret` the CA is in `ca.crt` of that Secret, and no certificate is issued.
    """

    namespace: str = "slicewarden-system"
    health_port: int = 8080
    drain: float = 15.0
    servers: tuple[str, ...] = ()
    replicas: tuple[str, ...] = ()
    url: str | None = None
    ca_secret: str = ""
    dns: tuple[str, ...] = ()

    @property
    def lease(self) -> str:
        """The path of the namespace's leases."""
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    @property
    def config_maps(self) -> str:
        """The path of the namespace's ConfigMaps."""
        return f"/api/v1/namespaces/{self.namespace}/configmaps"

    @property
    def slices(self) -> str:
        """The path of the namespace's EndpointSlices."""
        return f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices"

    @property
    def watched(self) -> tuple[tuple[str, str], ...]:
        """The paths to watch, each with a field selector. A change under one of them starts a look."""
        own = f"metadata.name={NAME}"
        return (
            (POLICIES, ""),
            *((f"{ADMISSION}/{plural}", own) for _, plural in CONFIGURATIONS.values()),
            (self.config_maps, ""),
            (self.slices, ""),
        )
