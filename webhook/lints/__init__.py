"""Lints: likely mistakes in a policy, in one file for each topic.

A lint is a generator that takes a policy and the facts. Its function's name is its id. Its docstring is its page, and
the last paragraph begins with `Way out:`. Its action is its severity: Deny for a setting that will do harm, Warn for a
likely mistake, Audit for information. A lint that needs facts reports nothing without them.
"""

import inspect
from collections.abc import Mapping
from datetime import date, timedelta

from webhook.documents.documents import Document
from webhook.facts.snapshot import Facts
from webhook.lints import agents, devices, eased, grants, limits, pools, queues, scopes
from webhook.lints.base import Lint, Linted, Table
from webhook.model import Action, Finding, Result, Verdict
from webhook.policy.model import Policy
from webhook.scan.results import Judged, Report

FAMILIES = (pools, limits, scopes, grants, eased, devices, queues, agents)
"""The files of this folder, in the order of the page."""

LINTS: Table = {each: action for family in FAMILIES for each, action in family.LINTS.items()}
"""Every lint with its severity."""


def lint(policy: Policy, document: Document, facts: Facts, today: date, soon: timedelta) -> Report:
    """Lint the policy in this document. The report has one object, the policy itself."""
    of = Linted(policy, document.value["spec"], facts, today, soon)
    results = [
        (Result(name(each), action, Finding(found.path, found.message)), *document.where(found.path))
        for each, action in LINTS.items()
        for found in each(of)
    ]
    results.sort(key=lambda each: each[1:])
    judged = Judged(
        file=document.file,
        line=document.line(),
        document=document.index,
        api_version=document.value["apiVersion"],
        kind=document.value["kind"],
        namespace="",
        name=policy.name,
        verdict=Verdict(tuple(result for result, _, _ in results)),
        lines=tuple(line for _, _, line in results),
        files=tuple(file for _, file, _ in results),
    )
    return Report((judged,), pages=pages(), policy=policy)


def name(check: Lint) -> str:
    """The id of a lint."""
    return check.__name__.replace("_", "-")


def pages() -> Mapping[str, str]:
    """Return the page of each lint by its id."""
    return {name(each): inspect.cleandoc(each.__doc__ or "") for each in LINTS}


_SEVERITIES = {Action.DENY: "error", Action.WARN: "warning", Action.AUDIT: "note"}


def markdown() -> str:
    """Write the page of all lints."""
    lines = [
        "# What `slicewarden policy lint` finds",
        "",
        "Written by `slicewarden policy lints --markdown` from the docstrings in `webhook/lints/`. Two pools that",
        "share a node, and all else that makes a policy unusable, are refused wherever the policy is read. Lints",
        "about nodes and namespaces need `--facts`.",
    ]
    for each, action in LINTS.items():
        page = inspect.cleandoc(each.__doc__ or "")
        lines += ["", f"## {name(each)}", "", f"*{_SEVERITIES[action]}*", "", page]
    return "\n".join(lines) + "\n"
