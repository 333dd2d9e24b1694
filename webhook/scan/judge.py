"""Judges the objects of files as if an API server sent them."""

from dataclasses import replace
from typing import Any

from webhook.api import admission, jsonpatch
from webhook.api.fields import group_kind, section, text
from webhook.api.objects import CONFIG_MAP, judges
from webhook.api.pods import Pod
from webhook.api.templates import PARAMETER
from webhook.documents import goyaml_writer
from webhook.documents.files import Item
from webhook.engine.engine import Engine, RuleBroke
from webhook.facts.kinds import CLUSTER_SCOPED
from webhook.facts.snapshot import Facts
from webhook.memory import explain
from webhook.model import Malformed, Object, Path, Problem, Request, Verdict
from webhook.review import Review
from webhook.scan import live
from webhook.scan.results import REVIEW, Judged, LeftAlone
from webhook.text.words import unquoted


class Broke(RuntimeError):
    """A rule raised an exception. This is a bug, and the run stops so that it is not overlooked."""


def judge(
    item: Item, engine: Engine, facts: Facts, *, diffs: bool = False, system: bool = False, written: bool = False
) -> Judged | Problem | LeftAlone | None:
    """Judge an object as if it were created, or an AdmissionReview as its request.

    An object of a live cluster is judged as it was created. If its author may have `written` the file, it is judged as
    a manifest, because an API server drops the uid and the status that a manifest has. Returns None for a kind that is
    not judged, and a Problem for a malformed object, which an API server would not send. Objects that are never sent to
    the webhook are skipped, unless `system` is set. Raises Broke.
    """
    value, policy = item.value, engine.policy
    reviewed = group_kind(value) == REVIEW
    if not (reviewed or judges(*group_kind(value), policy.workloads)):
        return None
    seems_live = not reviewed and live.is_live(value)
    recreated = seems_live and not written
    if not reviewed and (error := _name_error(value)):
        return _malformed(item, error)
    try:
        if recreated:
            request = live.request(value, policy, facts, assume=True)
        else:
            request = admission.decode(admission.encoded(value) if reviewed else admission.wrap(value))
    except admission.NotAReview as error:
        line = item.line(() if reviewed else ("metadata",))
        return Problem(item.source, line, f"{'' if reviewed else 'metadata: '}{error}")
    if reviewed and not judges(request.group, request.kind, policy.workloads):
        return None
    alone = not (reviewed or system) and live.passed_over(value, policy)
    if alone and group_kind(value) != CONFIG_MAP:
        return LeftAlone(live.namespace_of(value))
    base: Path = ("request", "oldObject" if request.object is None else "object") if reviewed else ()
    result = _answer(request, item, engine, facts, base=base, diffs=diffs)
    if alone and isinstance(result, Judged) and not result.verdict.results:  # the plugin reads its own in any namespace
        return LeftAlone(live.namespace_of(value))
    if seems_live and isinstance(result, Judged):
        return replace(result, live=recreated, unproven=written, assumed=recreated and live.assumed(value))
    return result


def _answer(request: Request, item: Item, engine: Engine, facts: Facts, *, base: Path, diffs: bool) -> Judged | Problem:
    """Judge the request for an object at the path `base` of the item. Raises Broke."""
    reviews: list[Review[Any]] = []
    try:
        verdict = engine.marked(request, facts, engine.judge(request, facts, seen=reviews.append))
    except RuleBroke as error:
        raise Broke(str(Problem(item.source, item.line(), str(error)))) from error.__cause__
    malformed = verdict.malformed or _container_error(reviews)
    if malformed is not None:
        return _malformed(item, malformed, base)
    judged = request.object or request.old_object or {}
    places = [item.where((*base, *r.finding.path), r.finding.text_line) for r in verdict.results]
    if item.under:
        placed = (
            r._replace(finding=r.finding._replace(path=(*item.base, *item.place(r.finding.path))))
            for r in verdict.results
        )
        verdict = verdict._replace(results=tuple(placed))
    return Judged(
        file=item.document.file,
        line=item.line(base),
        document=item.document.index,
        api_version=f"{request.group}/{request.version}" if request.group else request.version,
        kind=request.kind,
        namespace="" if (request.group, request.kind) in CLUSTER_SCOPED else request.namespace or "default",
        name=request.name or _generate_name(judged),
        verdict=verdict,
        lines=tuple(line for _, line in places),
        files=tuple(file for file, _ in places) if any(file != item.document.file for file, _ in places) else (),
        root=item.root,
        landings=tuple(explain.landings(reviews, capped=diffs)),
        diff=_diff(judged, verdict) if diffs and verdict.patch else "",
        operation=request.operation,
        parameters=sum(isinstance(r.subject, Pod) and r.subject.unread == PARAMETER for r in reviews),
        agent="" if verdict.allowed else _agent(reviews),
        owner=live.owner(judged) if request.kind == "Pod" else ("", ""),
    )


def _malformed(item: Item, error: Malformed, base: Path = ()) -> Problem:
    """Return the problem that an object is malformed, with the way to write text that YAML takes for another type."""
    value: Any = item.value
    try:
        for key in (*base, *error.path):
            value = value[key]
    except (KeyError, IndexError, TypeError):  # the place is in a text
        value = None
    hint = unquoted(value) if "must be a string" in error.message else ""
    return Problem(item.source, item.line((*base, *error.path)), f"{error}{hint}")


def _name_error(value: Object) -> Malformed | None:
    """Return the error if the name or the namespace of an object is no text."""
    try:
        metadata = section(value, "metadata", ())
        for key in ("name", "namespace"):
            text(metadata, key, ("metadata",))
    except Malformed as error:
        return error
    return None


def _container_error(reviews: list[Review[Any]]) -> Malformed | None:
    """Return the error if the name of a container is no text, although no rule reads it.

    YAML takes `name: n` for false. No API server stores such a pod, so it does not count as allowed.
    """
    for pod in (review.subject for review in reviews if isinstance(review.subject, Pod)):
        try:
            for container in pod.containers:
                text(container.spec, "name", container.path)
        except Malformed as error:
            return pod.malformed(error)
    return None


def _agent(reviews: list[Review[Any]]) -> str:
    """Return the service account of a DaemonSet's pods; empty for other objects."""
    return next((r.subject.service_account for r in reviews if isinstance(r.subject, Pod) and r.subject.daemon), "")


def _diff(value: Object, verdict: Verdict) -> str:
    import difflib  # only for reports with diffs

    before, after = (goyaml_writer.write(text).splitlines() for text in (value, jsonpatch.apply(value, verdict.patch)))
    return "\n".join(list(difflib.unified_diff(before, after, n=2, lineterm=""))[2:])


def _generate_name(value: Object) -> str:
    metadata = value.get("metadata")
    name = metadata.get("generateName") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""
