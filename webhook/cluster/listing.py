"""Lists a live cluster once, in pages: the objects of facts, and the objects to judge."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from webhook.api.devices import DEVICES
from webhook.api.objects import CONFIG_MAP
from webhook.api.pods import POD
from webhook.api.resources import Resource
from webhook.cluster import client, watch
from webhook.cluster.client import FORBIDDEN, GONE, NOT_FOUND, PAGE, Api, StatusError
from webhook.cluster.page_size import PageSize
from webhook.cluster.watch import READ_WITHIN
from webhook.facts import kinds, rights
from webhook.facts.kind import Reach
from webhook.facts.kinds import kept
from webhook.model import Object, Problem, Unusable
from webhook.policy.model import Policy
from webhook.telemetry.progress import Tell, quietly

LIVING = "status.phase!=Succeeded,status.phase!=Failed"
"""The field selector of pods that have not ended. A pod that has ended uses no resources."""

UNAUTHORIZED = 401

BUSY = frozenset({429, 500, 502, 503, 504})
"""HTTP statuses after which the API server may answer a moment later."""

TRIES = 3
"""Maximum requests for a page, and starts of a list, before the kind is given up."""

PAUSE = 1.0
"""Seconds between two tries."""


def connect(kubeconfig: str | None = None, context: str | None = None) -> Api:
    """Make a client, and check that the API server accepts its credentials. Raises Unusable."""
    try:
        api = client.connect(kubeconfig, context)
        client.ask(api, "/version")
    except client.Unreachable as error:
        raise Unusable((Problem(kubeconfig or "kubeconfig", 0, str(error)),)) from error
    except StatusError as error:
        why = "does not know you; has the token expired?" if error.status == UNAUTHORIZED else "refuses to be asked"
        message = f"{client.server(api)} {why} ({error.status}: {error})"
        raise Unusable((Problem(kubeconfig or "kubeconfig", 0, message),)) from error
    return api


# Kinds


def served(api: Api, wanted: Collection[tuple[str, str]]) -> tuple[list[Resource], tuple[Problem, ...]]:
    """Return those of the wanted kinds (group and kind) that the API server has, in its preferred versions.

    Raises Unusable if it does not answer.
    """
    found: list[Resource] = []
    problems: list[Problem] = []
    try:
        groups = {entry["name"]: entry for entry in client.ask(api, "/apis")["groups"]}
    except (client.Unreachable, StatusError) as error:
        raise Unusable((Problem("cluster", 0, f"its API groups cannot be read: {error}"),)) from error
    for group in sorted({group for group, _ in wanted}):
        if group and group not in groups:
            continue
        missing = {kind for entry, kind in wanted if entry == group}
        for version in _versions(groups[group]) if group else ("v1",):
            path = f"/apis/{group}/{version}" if group else f"/api/{version}"
            try:
                resources = client.ask(api, path)["resources"] if missing else ()
            except (client.Unreachable, StatusError) as error:
                problems.append(Problem("cluster", 0, f"the kinds of {group or 'v1'} cannot be read: {error}"))
                break
            for entry in resources:
                if entry["kind"] in missing and "/" not in entry["name"] and "list" in entry.get("verbs", ()):
                    missing.discard(entry["kind"])
                    namespaced = bool(entry.get("namespaced"))
                    found.append(Resource(group, version, entry["name"], entry["kind"], namespaced=namespaced))
    return found, tuple(problems)


def _versions(group: Mapping[str, Any]) -> list[str]:
    preferred = group["preferredVersion"]["version"]
    return [preferred, *(version["version"] for version in group["versions"] if version["version"] != preferred)]


# Objects, page by page


def pages(api: Api, resource: Resource, size: int = PAGE, labels: str = "") -> Iterator[list[Object]]:
    """Yield the objects of a kind in pages of at most `size`, with `apiVersion` and `kind` set.

    `labels` is a label selector.

    If the continue token expires, the list starts again and skips the objects that were yielded. Raises StatusError and
    Unreachable.
    """
    begun, token = 1, ""
    seen: set[str] = set()
    now = PageSize(size)
    while True:
        try:
            query = {"continue": token, "fieldSelector": resource.fields, "labelSelector": labels}
            page = _patiently(api, resource.path, query, now)
        except StatusError as error:
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


def _patiently(api: Api, path: str, query: Mapping[str, Any], size: PageSize) -> Any:
    for _ in range(TRIES - 1):
        try:
            return client.page(api, path, query, size)
        except StatusError as error:
            if error.status not in BUSY:
                raise
        time.sleep(PAUSE)
    return client.page(api, path, query, size)


def unread(resource: Resource, error: Exception) -> Problem:
    """Return the problem to report for a kind that could not be listed."""
    what = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    where = f" in namespace {resource.namespace}" if resource.namespace else ""
    forbidden = isinstance(error, StatusError) and error.status == FORBIDDEN
    return Problem("cluster", 0, f"{what}{where} {'may' if forbidden else 'can'} not be listed: {error}")


# The objects of facts


def resources(policy: Policy) -> tuple[Resource, ...]:
    """Return the resources that are listed in the whole cluster for a policy."""
    return kinds.needed(policy, Reach.EVERYWHERE, Reach.LISTED)


def facts(
    api: Api,
    policies: Collection[Policy],
    namespace: str | None = None,
    *,
    holders: bool = True,
    size: int = PAGE,
    tell: Tell = quietly,
) -> tuple[list[Object], tuple[Problem, ...]]:
    """List the objects of the facts for some policies (`Facts.of`), reduced to the parts that facts need and the uid.

    A kind that may not be listed in the whole cluster is listed in `namespace`, if one is given. A kind that cannot be
    listed at all is a problem. Without `holders` no pods are listed.
    """
    objects: list[Object] = []
    problems: list[Problem] = []
    within = (replace(resource, namespace=place) for place in _places(policies) for resource in READ_WITHIN)
    everywhere = dict.fromkeys(resource for policy in policies for resource in resources(policy))
    wanted = [resource for resource in (*everywhere, *within) if holders or resource.of != POD]
    for step, resource in enumerate(wanted):
        tell(step, 2 * len(wanted), f"facts: {resource.plural}")
        try:
            objects += _kept(api, resource, size)
        except (client.Unreachable, StatusError) as error:
            if _none(api, resource, error):
                continue
            instead = _instead(api, resource, namespace, size)
            if instead is None:
                problems.append(unread(resource, error))
            else:
                objects += instead
    return rights.needed(objects), tuple(problems)


def dump(
    api: Api,
    policy: Policy,
    slim: Callable[[Object], Object | None],
    *,
    size: int = PAGE,
    tell: Tell = quietly,
) -> tuple[list[Object], tuple[Problem, ...]]:
    """List all objects of the kinds that facts come from, each reduced by `slim`, so that a large cluster fits.

    ConfigMaps and DaemonSets that may not be listed in the whole cluster are listed in the sharing namespaces of the
    policy. A kind that cannot be listed at all is a problem.
    """
    objects: list[Object] = []
    problems: list[Problem] = []
    wanted = [*resources(policy), *READ_WITHIN]
    for step, resource in enumerate(wanted):
        tell(step, len(wanted), resource.plural)
        try:
            objects += _slimmed(api, resource, slim, size)
        except (client.Unreachable, StatusError) as error:
            if _none(api, resource, error):
                continue
            places = _places([policy]) if resource in READ_WITHIN else []
            try:
                objects += [
                    item for place in places for item in _slimmed(api, replace(resource, namespace=place), slim, size)
                ]
            except (client.Unreachable, StatusError):
                places = []
            if not places:
                problems.append(unread(resource, error))
    return rights.needed(objects), tuple(problems)


def _slimmed(api: Api, resource: Resource, slim: Callable[[Object], Object | None], size: int) -> list[Object]:
    return [small for page in pages(api, resource, size) for item in page if (small := slim(item)) is not None]


def _places(policies: Iterable[Policy]) -> list[str]:
    """Return the namespaces of sharing configurations under any of the policies."""
    return sorted({place for policy in policies for place in watch.namespaces(policy)})


def _kept(api: Api, resource: Resource, size: int) -> list[Object]:
    return _slimmed(api, resource, trimmed, size)


def _none(api: Api, resource: Resource, error: Exception) -> bool:
    """Return whether an error means that the kind or its namespace does not exist."""
    if not isinstance(error, StatusError) or error.status not in (FORBIDDEN, NOT_FOUND):
        return False
    if error.status == NOT_FOUND:
        return True
    try:
        if resource.namespace:
            return not _there(api, resource.namespace)
        client.ask(api, f"/apis/{resource.api_version}" if resource.group else "/api/v1")
    except (client.Unreachable, StatusError) as other:
        return isinstance(other, StatusError) and other.status == NOT_FOUND
    return False


def _there(api: Api, namespace: str) -> bool:
    """Return whether a namespace exists, using the right to list namespaces or the right to get one."""
    try:
        page = client.ask(api, "/api/v1/namespaces", {"fieldSelector": f"metadata.name={namespace}"})
        return any(item["metadata"]["name"] == namespace for item in page["items"] or ())
    except StatusError:
        client.ask(api, f"/api/v1/namespaces/{namespace}")
        return True


def _instead(api: Api, resource: Resource, namespace: str | None, size: int) -> list[Object] | None:
    """List a kind in one namespace instead of all. None if it does not exist there, or if that is refused too."""
    if namespace is None or resource.kind not in ("Namespace", "Pod"):
        return None
    try:
        if resource.kind == "Pod":
            return _kept(api, replace(resource, namespace=namespace), size)
        item = client.ask(api, f"{resource.path}/{namespace}")
    except (client.Unreachable, StatusError):
        return None
    small = trimmed(item)
    return [] if small is None else [small]


def trimmed(item: Object) -> Object | None:
    """Return the part of an object that facts need, with its uid; None if they need nothing."""
    small = kept(item)
    if small is None:
        return None
    return {**small, "metadata": {**small["metadata"], "uid": item["metadata"].get("uid", "")}}


# The objects to judge


def judged(
    api: Api, policies: Collection[Policy], namespace: str | None = None
) -> tuple[list[Resource], tuple[Problem, ...]]:
    """Return the resources to judge in addition to the objects of `facts`, owners before the objects that they own.

    They are the workloads of every kind that the API server has, device claims, pods and sharing configurations; only
    those in `namespace` if one is given.
    """
    found, problems = served(api, (*_workloads(policies), *DEVICES, POD))
    resources = [
        replace(resource, namespace=namespace or "", fields=LIVING if resource.of == POD else "")
        for resource in found
        if resource.namespaced or namespace is None
    ]
    resources.sort(key=lambda kind: (kind.of == POD, kind.of))
    places = [kind for kind in _places(policies) if namespace in (None, kind)]
    resources += [replace(kind, namespace=place) for place in places for kind in READ_WITHIN if kind.of == CONFIG_MAP]
    return resources, problems


def _workloads(policies: Iterable[Policy]) -> set[tuple[str, str]]:
    return {kind for policy in policies for kind in policy.workloads}


class ObjectReader:
    """Yields the objects to judge under some policies, one by one.

    A kind that cannot be read to its end is a problem. At the end of the iteration `problems` is complete, and so is
    `unread`, the kinds with objects missing.
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
            except (client.Unreachable, StatusError) as error:
                if not _none(self._api, resource, error):
                    self.problems.append(unread(resource, error))
                    self.unread.add(resource.kind)
