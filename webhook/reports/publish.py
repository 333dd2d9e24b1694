"""Writes the findings of an audit into the cluster: a report for each object, which is deleted with the object."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from webhook.api.resources import Resource
from webhook.cluster import client, listing
from webhook.cluster.client import NOT_FOUND, Api, StatusError
from webhook.cluster.watch import SMALL_PAGE
from webhook.model import Problem, Unusable
from webhook.reports import report_objects
from webhook.scan.audit import Audited
from webhook.telemetry.progress import Tell
from webhook.text.words import listed, shown

LABEL, COMPONENT = "app.kubernetes.io/component", "audit"
"""The label that marks our reports."""

MOST_NAMED = 3
"""The most namespaces that the problem names. It has the first one's reason."""


@dataclass(frozen=True, slots=True)
class ReportForm:
    """A report API, with its resources for namespaced and for cluster-scoped objects."""

    kind: report_objects.ReportKind
    within: Resource
    outside: Resource
    source: str

    def resource(self, namespace: str) -> Resource:
        """Return the resource of a report on an object in a namespace, or on a cluster-scoped one."""
        return self.within if namespace else self.outside


def _form(kind: report_objects.ReportKind, source: str) -> ReportForm:
    group, _, version = kind.api_version.partition("/")
    within, outside = (Resource(group, version, f"{name.lower()}s", name) for name in (kind.namespaced, kind.cluster))
    return ReportForm(kind, within, outside, source)


FORMS: Mapping[str, ReportForm] = {
    "openreports": _form(report_objects.OPEN, "https://github.com/openreports/reports-api"),
    "policyreport": _form(report_objects.OLDER, "https://github.com/kubernetes-sigs/wg-policy-prototypes"),
}
"""The forms of reports, by the name of the format that writes them to a file."""


def installed(api: Api, form: ReportForm) -> None:
    """Check that the cluster has the kinds of a form. Raises Unusable if not."""
    try:
        served = {resource["name"] for resource in client.ask(api, f"/apis/{form.within.api_version}")["resources"]}
    except StatusError as error:
        if error.status != NOT_FOUND:
            raise Unusable((Problem("cluster", 0, str(error)),)) from error
        served = set()
    except client.Unreachable as error:
        raise Unusable((Problem("cluster", 0, str(error)),)) from error
    if missing := [resource.plural for resource in (form.within, form.outside) if resource.plural not in served]:
        named = " and ".join(f"{plural}.{form.within.group}" for plural in missing)
        message = f"the cluster has no {named} {form.within.version}; install the definitions from {form.source}"
        raise Unusable((Problem("--write-reports", 0, message),))


def name_of(uid: str) -> str:
    """Return the name of the report on an object."""
    return f"{report_objects.SOURCE}-{uid}"


def report(audited: Audited, policy: str, form: ReportForm) -> dict[str, Any]:
    """Make the report on an object. Its content is the same in each run as long as the findings are."""
    made = report_objects.of(audited, policy, form.kind)
    owner = {"apiVersion": audited.api_version, "kind": audited.kind, "name": audited.name, "uid": audited.uid}
    labels = {**made["metadata"]["labels"], LABEL: COMPONENT}
    made["metadata"] |= {"name": name_of(audited.uid), "labels": labels, "ownerReferences": [owner]}
    made["scope"] |= {"uid": audited.uid}
    return made


def _has_findings(audited: Audited) -> bool:
    """Whether there is a finding without an exemption."""
    return any(not result.exemption for result in audited.verdict.results)


def publish(
    api: Api,
    form: ReportForm,
    policy: str,
    judged: Iterable[Audited],
    unread: Collection[str],
    namespace: str | None,
    tell: Tell,
) -> list[Problem]:
    """Write a report for each object with findings, and delete ours on other objects, except of `unread` kinds.

    A refusal concerns one namespace, such as one that is being deleted, which its tenant may delay. So the others get
    their reports, and nothing more is tried there. Stops if the API server does not answer.
    """
    concerned = [audited for audited in judged if audited.uid and _has_findings(audited)]
    refused: dict[str, str] = {}
    try:
        for step, audited in enumerate(concerned):
            tell(step, len(concerned), f"reports: {step:,}")
            if audited.namespace not in refused:
                _try(refused, audited.namespace, partial(_write, api, form, policy, audited))
        _remove(api, form, {name_of(audited.uid) for audited in concerned}, unread, namespace, refused)
    except (client.Unreachable, StatusError) as error:
        return [_problem(form, "", str(error))]
    places = [shown(place, quotes=False) or "objects without a namespace" for place in refused]
    return [_problem(form, f" in {listed(places, MOST_NAMED)}", why) for why in [*refused.values()][:1]]


def _problem(form: ReportForm, where: str, why: str) -> Problem:
    return Problem("--write-reports", 0, f"{form.within.plural}.{form.within.group} cannot be written{where}: {why}")


def _try(refused: dict[str, str], namespace: str, request: Callable[[], object]) -> None:
    """Send a request, and record the refusal of its namespace, unless what it is about has just been deleted."""
    try:
        request()
    except StatusError as error:
        if error.status != NOT_FOUND:
            refused[namespace] = str(error)


def _write(api: Api, form: ReportForm, policy: str, audited: Audited) -> None:
    path = _path(form.resource(audited.namespace), audited.namespace, name_of(audited.uid))
    query = {"fieldManager": report_objects.SOURCE, "force": "true"}
    client.ask(api, path, query, method="PATCH", body=report(audited, policy, form))


def _remove(
    api: Api,
    form: ReportForm,
    kept: Collection[str],
    unread: Collection[str],
    namespace: str | None,
    refused: dict[str, str],
) -> None:
    places = [form.within] if namespace else [form.within, form.outside]
    for resource in places:
        where = Resource(resource.group, resource.version, resource.plural, resource.kind, namespace=namespace or "")
        for page in listing.pages(api, where, SMALL_PAGE, f"{LABEL}={COMPONENT}"):
            for item in page:
                metadata, about = item["metadata"], item.get("scope") or {}
                place = metadata.get("namespace", "")
                if metadata["name"] in kept or about.get("kind") in unread or place in refused:
                    continue
                path = _path(resource, place, metadata["name"])
                _try(refused, place, partial(client.ask, api, path, method="DELETE"))


def _path(resource: Resource, namespace: str, name: str) -> str:
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{resource.api_version}{within}/{resource.plural}/{name}"
