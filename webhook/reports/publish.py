"""Writes what an audit found into the cluster: a report for each object, which goes when the object goes."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from webhook.cluster import listing, watch
from webhook.cluster.watch import NOT_FOUND, Api, Refused, Resource
from webhook.model import Problem, Unusable
from webhook.reports import report_objects
from webhook.scan.audit import Audited
from webhook.telemetry.progress import Tell

LABEL, COMPONENT = "app.kubernetes.io/component", "audit"
"""By which our reports are known among others."""


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of reports, and where it is kept: in a namespace, and for what is in none."""

    kind: report_objects.Kind
    within: Resource
    outside: Resource
    source: str

    def resource(self, namespace: str) -> Resource:
        """The kind of report for an object of a namespace, or of none."""
        return self.within if namespace else self.outside


def _form(kind: report_objects.Kind, source: str) -> Form:
    group, _, version = kind.api_version.partition("/")
    within, outside = (Resource(group, version, f"{each.lower()}s", each) for each in (kind.namespaced, kind.cluster))
    return Form(kind, within, outside, source)


FORMS: Mapping[str, Form] = {
    "openreports": _form(report_objects.OPEN, "https://github.com/openreports/reports-api"),
    "policyreport": _form(report_objects.OLDER, "https://github.com/kubernetes-sigs/wg-policy-prototypes"),
}
"""The kinds of reports, by the names that the formats of files have too."""


def installed(api: Api, form: Form) -> None:
    """See that the cluster has the kinds of a form. Raises Unusable where it has not."""
    try:
        has = {each["name"] for each in watch.ask(api, f"/apis/{form.within.api_version}")["resources"]}
    except Refused as error:
        if error.status != NOT_FOUND:
            raise Unusable((Problem("cluster", 0, str(error)),)) from error
        has = set()
    except watch.Unreachable as error:
        raise Unusable((Problem("cluster", 0, str(error)),)) from error
    if missing := [each.plural for each in (form.within, form.outside) if each.plural not in has]:
        named = " and ".join(f"{plural}.{form.within.group}" for plural in missing)
        said = f"the cluster has no {named} {form.within.version}; install the definitions from {form.source}"
        raise Unusable((Problem("--write-reports", 0, said),))


def name_of(uid: str) -> str:
    """What the report on an object is called."""
    return f"{report_objects.SOURCE}-{uid}"


def report(audited: Audited, policy: str, form: Form) -> dict[str, Any]:
    """Make the report on an object; nothing in it changes as long as the findings stay the same."""
    made = report_objects.of(audited, policy, form.kind)
    owner = {"apiVersion": audited.api_version, "kind": audited.kind, "name": audited.name, "uid": audited.uid}
    labels = {**made["metadata"]["labels"], LABEL: COMPONENT}
    made["metadata"] |= {"name": name_of(audited.uid), "labels": labels, "ownerReferences": [owner]}
    made["scope"] |= {"uid": audited.uid}
    return made


def _told(audited: Audited) -> bool:
    """Whether there is a finding that somebody has to see to."""
    return any(not each.exemption for each in audited.verdict.results)


def publish(
    api: Api,
    form: Form,
    policy: str,
    judged: Iterable[Audited],
    unread: Collection[str],
    namespace: str | None,
    tell: Tell,
) -> list[Problem]:
    """Write a report for each object with findings, and remove ours on objects without, but of kinds not all read.

    The first refusal ends it: the next would be no other.
    """
    found = [each for each in judged if each.uid and _told(each)]
    try:
        for step, each in enumerate(found):
            tell(step, len(found), f"reports: {step:,}")
            resource = form.resource(each.namespace)
            query = {"fieldManager": report_objects.SOURCE, "force": "true"}
            path = _path(resource, each.namespace, name_of(each.uid))
            try:
                watch.ask(api, path, query, method="PATCH", body=report(each, policy, form))
            except Refused as error:
                if error.status != NOT_FOUND:  # its namespace went while we read
                    raise
        _remove(api, form, {name_of(each.uid) for each in found}, unread, namespace)
    except (watch.Unreachable, Refused) as error:
        return [Problem("--write-reports", 0, f"{form.within.plural}.{form.within.group} cannot be written: {error}")]
    return []


def _remove(api: Api, form: Form, kept: Collection[str], unread: Collection[str], namespace: str | None) -> None:
    places = [form.within] if namespace else [form.within, form.outside]
    for resource in places:
        where = Resource(resource.group, resource.version, resource.plural, resource.kind, namespace=namespace or "")
        for page in listing.pages(api, where, labels=f"{LABEL}={COMPONENT}"):
            for item in page:
                metadata, about = item["metadata"], item.get("scope") or {}
                if metadata["name"] in kept or about.get("kind") in unread:
                    continue
                try:
                    watch.ask(api, _path(resource, metadata.get("namespace", ""), metadata["name"]), method="DELETE")
                except Refused as error:
                    if error.status != NOT_FOUND:
                        raise


def _path(resource: Resource, namespace: str, name: str) -> str:
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{resource.api_version}{within}/{resource.plural}/{name}"
