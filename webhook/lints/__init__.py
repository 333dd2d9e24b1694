"""Likely mistakes in a policy: one file for each family of lints.

Each lint is a generator over a policy and what is known of its cluster, in the file of its family. Its function's name
is its id, its docstring its page, whose last paragraph begins `Way out:`; its action says how bad it is: Deny for what
will hurt, Warn for what is likely a mistake, Audit for what is only worth knowing. A lint that needs facts is silent
where there are none.
"""

import inspect
from collections.abc import Mapping
from datetime import date, timedelta

from webhook.documents.documents import Document
from webhook.facts.snapshot import Facts
from webhook.lints import eased, grants, limits, pools, scopes
from webhook.lints.base import Lint, Linted, Table
from webhook.model import Action, Finding, Result, Verdict
from webhook.policy.model import Policy
from webhook.scan.results import Judged, Report

FAMILIES = (pools, limits, scopes, grants, eased)
"""The files of this folder, in the order of the page."""

LINTS: Table = {each: action for family in FAMILIES for each, action in family.LINTS.items()}
"""Every lint, and how bad what it finds is."""


def lint(policy: Policy, document: Document, facts: Facts, today: date, soon: timedelta) -> Report:
    """Lint a policy, which stands in this document. The report has one object, the policy itself."""
    of = Linted(policy, document.value["spec"], facts, today, soon)
    results = [
        (Result(name(each), action, Finding(found.path, found.message)), document.line(found.path))
        for each, action in LINTS.items()
        for found in each(of)
    ]
    results.sort(key=lambda each: each[1])
    judged = Judged(
        file=document.file,
        line=document.line(),
        document=document.index,
        api_version=document.value["apiVersion"],
        kind=document.value["kind"],
        namespace="",
        name=policy.name,
        verdict=Verdict(tuple(result for result, _ in results)),
        lines=tuple(line for _, line in results),
    )
    return Report((judged,), pages=pages(), policy=policy.name, digest=policy.digest)


def name(check: Lint) -> str:
    """The id of a lint."""
    return check.__name__.replace("_", "-")


def pages() -> Mapping[str, str]:
    """The page of each lint by its id."""
    return {name(each): inspect.cleandoc(each.__doc__ or "") for each in LINTS}


_SEVERITIES = {Action.DENY: "error", Action.WARN: "warning", Action.AUDIT: "note"}


def markdown() -> str:
    """Write the page of all lints."""
    lines = [
        "# What `slicewarden policy lint` finds",
        "",
        "Written by `slicewarden policy lints --markdown` from the docstrings in `webhook/lints/`. In reports an",
        "error is `Deny`, a warning `Warn` and a note `Audit`. Two pools that a node could both be in, and all else",
        "that makes a policy unusable, are refused wherever the policy is read. What speaks of nodes and namespaces",
        "needs `--facts`.",
    ]
    for each, action in LINTS.items():
        page = inspect.cleandoc(each.__doc__ or "")
        lines += ["", f"## {name(each)}", "", f"*{_SEVERITIES[action]}*", "", page]
    return "\n".join(lines) + "\n"
