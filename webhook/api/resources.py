"""Names kinds of objects that an API server serves, and the paths at which it lists them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object in the API, in all namespaces or in one. `fields` and `labels` are selectors for a list."""

    group: str
    version: str
    plural: str
    kind: str
    fields: str = ""
    namespace: str = ""
    namespaced: bool = False
    """Whether its objects are in namespaces. One that is not is cluster-scoped."""
    labels: str = ""

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def of(self) -> tuple[str, str]:
        """The group and the kind of the objects."""
        return self.group, self.kind

    @property
    def path(self) -> str:
        """The path at which the API server lists it."""
        root = "/apis" if self.group else "/api"
        within = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"{root}/{self.api_version}{within}/{self.plural}"
