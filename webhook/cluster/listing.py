"""A live cluster read once, in pages: what facts are made of, and every object that is judged."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from webhook.api.objects import CONFIG_MAP, DEVICES, POD
from webhook.cluster import watch
from webhook.cluster.watch import FORBIDDEN, GONE, NOT_FOUND, PAGE, READ, READ_WITHIN, Api, Refused, Resource
from webhook.facts.snapshot import kept
from webhook.model import Object, Problem, Unusable
from webhook.policy.model import Policy
from webhook.telemetry.progress import Tell, quietly

LIVING = "status.phase!=Succeeded,status.phase!=Failed"
"""Pods that run or will; what has ended holds nothing."""

UNAUTHORIZED = 401

BUSY = frozenset({429, 500, 502, 503, 504})
"""Statuses of an API server that may answer a moment later."""

TRIES = 3
"""How often a page is asked for, and a list is begun, before its kind is given up."""

PAUSE = 1.0
"""Seconds between two tries."""


def connect(kubeconfig: str | None = None, context: str | None = None) -> Api:
    """Make a client and see that the API server knows us. Raises Unusable."""
    try:
        api = watch.connect(kubeconfig, context)
        watch.ask(api, "/version")
    except watch.Unreachable as error:
        raise Unusable((Problem(kubeconfig or "kubeconfig", 0, str(error)),)) from error
    except Refused as error:
        why = "does not know you; has the token expired?" if error.status == UNAUTHORIZED else "refuses to be asked"
        said = f"{api.configuration.host} {why} ({error.status}: {error})"
        raise Unusable((Problem(kubeconfig or "kubeconfig", 0, said),)) from error
    return api


# Which kinds there are


@dataclass(frozen=True, slots=True)
class Served:
    """A kind that the API server has, where it is listed; `namespaced` tells whether its objects are in namespaces."""

    resource: Resource
    namespaced: bool


def served(api: Api, wanted: Collection[tuple[str, str]]) -> tuple[list[Served], tuple[Problem, ...]]:
    """Ask which of some kinds, by group and name, the API server has; of several versions the one it prefers.

    Raises Unusable where it says nothing at all.
    """
    found: list[Served] = []
    problems: list[Problem] = []
    try:
        groups = {each["name"]: each for each in watch.ask(api, "/apis")["groups"]}
    except (watch.Unreachable, Refused) as error:
        raise Unusable((Problem("cluster", 0, f"the kinds it has cannot be read: {error}"),)) from error
    for group in sorted({group for group, _ in wanted}):
        if group and group not in groups:
            continue
        missing = {kind for each, kind in wanted if each == group}
        for version in _versions(groups[group]) if group else ("v1",):
            path = f"/apis/{group}/{version}" if group else f"/api/{version}"
            try:
                resources = watch.ask(api, path)["resources"] if missing else ()
            except (watch.Unreachable, Refused) as error:
                problems.append(Problem("cluster", 0, f"the kinds of {group or 'v1'} cannot be read: {error}"))
                break
            for each in resources:
                if each["kind"] in missing and "/" not in each["name"] and "list" in each.get("verbs", ()):
                    missing.discard(each["kind"])
                    resource = Resource(group, version, each["name"], each["kind"])
                    found.append(Served(resource, bool(each.get("namespaced"))))
    return found, tuple(problems)


def _versions(group: Mapping[str, Any]) -> list[str]:
    preferred = group["preferredVersion"]["version"]
    return [preferred, *(each["version"] for each in group["versions"] if each["version"] != preferred)]


# Objects, page by page


def pages(api: Api, resource: Resource, size: int = PAGE, labels: str = "") -> Iterator[list[Object]]:
    """Yield every object of a kind, with its kind, a page at a time; with `labels` those that have them.

    Raises Refused and Unreachable.

    A list that grows too old on the way is begun again, and what was yielded is passed over.
    """
    begun, token = 1, ""
    seen: set[str] = set()
    while True:
        try:
            query = {"limit": size, "continue": token, "fieldSelector": resource.fields, "labelSelector": labels}
            page = _patiently(api, resource.path, query)
        except Refused as error:
            if error.status != GONE or begun == TRIES:
                raise
            begun, token = begun + 1, ""
            continue
        items = [item for item in page["items"] or () if item["metadata"].get("uid", "") not in seen]
        seen.update(uid for item in items if (uid := item["metadata"].get("uid")))
        yield [{**item, "apiVersion": resource.api_version, "kind": resource.kind} for item in items]
        token = page["metadata"].get("continue") or ""
        if not token:
            return


def _patiently(api: Api, path: str, query: Mapping[str, Any]) -> Any:
    for _ in range(TRIES - 1):
        try:
            return watch.ask(api, path, query)
        except Refused as error:
            if error.status not in BUSY:
                raise
        time.sleep(PAUSE)
    return watch.ask(api, path, query)


def unread(resource: Resource, error: Exception) -> Problem:
    """Say that a kind cannot be read, in one line."""
    what = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    where = f" in namespace {resource.namespace}" if resource.namespace else ""
    forbidden = isinstance(error, Refused) and error.status == FORBIDDEN
    return Problem("cluster", 0, f"{what}{where} {'may' if forbidden else 'can'} not be listed: {error}")


# What facts are made of


def facts(
    api: Api,
    policies: Collection[Policy],
    namespace: str | None = None,
    *,
    holders: bool = True,
    size: int = PAGE,
    tell: Tell = quietly,
) -> tuple[list[Object], tuple[Problem, ...]]:
    """Read what facts for some policies are made of (`Facts.of`), and no more of each object but its uid.

    What may not be read of the whole cluster is read of `namespace`, where one is given. What cannot be read at all
    is a problem, and facts are made of the rest. Without `holders` no pods are read.
    """
    objects: list[Object] = []
    problems: list[Problem] = []
    within = (replace(each, namespace=place) for place in _places(policies) for each in READ_WITHIN)
    resources = [each for each in (*READ, *within) if holders or each.of != POD]
    for step, resource in enumerate(resources):
        tell(step, 2 * len(resources), f"facts: {resource.plural}")
        try:
            objects += _kept(api, resource, size)
        except (watch.Unreachable, Refused) as error:
            if _none(api, resource, error):
                continue
            instead = _instead(api, resource, namespace, size)
            if instead is None:
                problems.append(unread(resource, error))
            else:
                objects += instead
    return objects, tuple(problems)


def _places(policies: Iterable[Policy]) -> list[str]:
    """The namespaces that hold sharing configurations by any of some policies."""
    return sorted({place for policy in policies for place in watch.namespaces(policy)})


def _kept(api: Api, resource: Resource, size: int) -> list[Object]:
    return [small for page in pages(api, resource, size) for item in page if (small := trimmed(item)) is not None]


def _none(api: Api, resource: Resource, error: Exception) -> bool:
    """Tell whether there is none of a kind, for want of the kind or of its namespace."""
    if not isinstance(error, Refused) or error.status not in (FORBIDDEN, NOT_FOUND):
        return False
    if error.status == NOT_FOUND:
        return True
    try:
        if resource.namespace:
            return not _there(api, resource.namespace)
        watch.ask(api, f"/apis/{resource.api_version}" if resource.group else "/api/v1")
    except (watch.Unreachable, Refused) as other:
        return isinstance(other, Refused) and other.status == NOT_FOUND
    return False


def _there(api: Api, namespace: str) -> bool:
    """Tell whether a namespace is there, with whichever of the two powers we have."""
    try:
        page = watch.ask(api, "/api/v1/namespaces", {"fieldSelector": f"metadata.name={namespace}"})
        return any(each["metadata"]["name"] == namespace for each in page["items"] or ())
    except Refused:
        watch.ask(api, f"/api/v1/namespaces/{namespace}")
        return True


def _instead(api: Api, resource: Resource, namespace: str | None, size: int) -> list[Object] | None:
    """Read of one namespace what may not be read of all; None where that makes no sense, or is refused too."""
    if namespace is None or resource.kind not in ("Namespace", "Pod"):
        return None
    try:
        if resource.kind == "Pod":
            return _kept(api, replace(resource, namespace=namespace), size)
        item = watch.ask(api, f"{resource.path}/{namespace}")
    except (watch.Unreachable, Refused):
        return None
    small = trimmed(item)
    return [] if small is None else [small]


def trimmed(item: Object) -> Object | None:
    """Keep of an object what facts are made of, and its uid; None when that is nothing."""
    small = kept(item)
    if small is None:
        return None
    return {**small, "metadata": {**small["metadata"], "uid": item["metadata"].get("uid", "")}}


# What is judged


def judged(
    api: Api, policies: Collection[Policy], namespace: str | None = None
) -> tuple[list[Resource], tuple[Problem, ...]]:
    """Find what is to be judged beside the objects of `facts`, in the order to read it: what owns before what is owned.

    Workloads of every kind that the API server has, claims for devices, pods, and the sharing configurations; of
    `namespace` alone where one is given.
    """
    found, problems = served(api, (*_workloads(policies), *DEVICES, POD))
    resources = [
        replace(each.resource, namespace=namespace or "", fields=LIVING if each.resource.of == POD else "")
        for each in found
        if each.namespaced or namespace is None
    ]
    resources.sort(key=lambda each: (each.of == POD, each.of))
    places = [each for each in _places(policies) if namespace in (None, each)]
    resources += [replace(each, namespace=place) for place in places for each in READ_WITHIN if each.of == CONFIG_MAP]
    return resources, problems


def _workloads(policies: Iterable[Policy]) -> set[tuple[str, str]]:
    return {kind for policy in policies for kind in policy.workloads}


class Reading:
    """Yields what is to be judged by some policies, an object at a time.

    A kind that cannot be read to its end is a problem of its own. `problems` and `unread`, the kinds of which some are
    missing, are complete when all is read.
    """

    def __init__(
        self,
        api: Api,
        policies: Collection[Policy],
        namespace: str | None = None,
        size: int = PAGE,
        tell: Tell = quietly,
    ) -> None:
        self._api = api
        self._size = size
        self._tell = tell
        self._resources, problems = judged(api, policies, namespace)
        self.problems = [*problems]
        self.unread: set[str] = set() if not problems else {kind for _, kind in _workloads(policies)}

    def __iter__(self) -> Iterator[Object]:
        steps = len(self._resources)
        for step, resource in enumerate(self._resources):
            count = 0
            self._tell(steps + step, 2 * steps, resource.plural)
            try:
                for page in pages(self._api, resource, self._size):
                    yield from page
                    count += len(page)
                    self._tell(steps + step, 2 * steps, f"{resource.plural}: {count:,}")
            except (watch.Unreachable, Refused) as error:
                if not _none(self._api, resource, error):
                    self.problems.append(unread(resource, error))
                    self.unread.add(resource.kind)
