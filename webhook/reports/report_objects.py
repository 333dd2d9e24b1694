"""Makes the report objects that Kubernetes tools read: openreports.io, and its predecessor wgpolicyk8s.io.

The fields come from openreports/reports-api apis/openreports.io/v1alpha1/report_types.go. Those of
kubernetes-sigs/wg-policy-prototypes policy-report/pkg/api/wgpolicyk8s.io/v1alpha2 are nearly the same.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from webhook.model import Action, Result, dotted
from webhook.scan.results import Judged, Report
from webhook.text.words import sha256

SOURCE = "slicewarden"

_RESULTS = {Action.DENY: "fail", Action.WARN: "warn", Action.AUDIT: "warn"}
_SEVERITIES = {Action.DENY: "high", Action.WARN: "medium", Action.AUDIT: "low"}


class ReportKind(NamedTuple):
    """A kind of report: its apiVersion, and the kinds for namespaced and for cluster-scoped objects.

    `sourced` is true if the report has a field `source`.
    """

    api_version: str
    namespaced: str
    cluster: str
    sourced: bool


OPEN = ReportKind("openreports.io/v1alpha1", "Report", "ClusterReport", sourced=True)
OLDER = ReportKind("wgpolicyk8s.io/v1alpha2", "PolicyReport", "ClusterPolicyReport", sourced=False)


def write(report: Report, kind: ReportKind) -> str:
    """Write a List of the reports of all objects for `kubectl apply -f`. Problems are left out."""
    items = [of(judged, report.policy.name, kind, report.at) for judged in report.judged]
    return listed(items)


def listed(items: Sequence[Mapping[str, Any]]) -> str:
    """Write a List of reports."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1) + "\n"


def of(judged: Judged, policy: str, kind: ReportKind = OPEN, at: datetime | None = None) -> dict[str, Any]:
    """Make the report of one object: a result for each finding, or one result `pass`.

    An audited finding is a warning that is not scored. An exempted one has the result `skip`.
    """
    scope = {"apiVersion": judged.api_version, "kind": judged.kind, "name": judged.name}
    if judged.namespace:
        scope["namespace"] = judged.namespace
    stamp = {"timestamp": {"seconds": int(at.timestamp()), "nanos": 0}} if at else {}
    results = [{**_result(result, file, line, policy), **stamp} for result, file, line in judged.located]
    results = results or [{"source": SOURCE, "policy": policy, "result": "pass", "scored": True, **stamp}]
    return made(name(judged), scope, results, kind)


def made(
    name: str, scope: Mapping[str, str], results: Sequence[Mapping[str, Any]], kind: ReportKind = OPEN
) -> dict[str, Any]:
    """Make a report with its results, and count them. It lies in the namespace of the object that `scope` names."""
    namespace = scope.get("namespace", "")
    counted = Counter(value["result"] for value in results)
    return {
        "apiVersion": kind.api_version,
        "kind": kind.namespaced if namespace else kind.cluster,
        "metadata": {
            "name": name,
            **({"namespace": namespace} if namespace else {}),
            "labels": {"app.kubernetes.io/managed-by": SOURCE},
        },
        **({"source": SOURCE} if kind.sourced else {}),
        "scope": scope,
        "summary": {value: counted[value] for value in ("pass", "fail", "warn", "error", "skip")},
        "results": results,
    }


def name(judged: Judged) -> str:
    """Return the name of an object's report, the same in every run. It is a hash, since some names are invalid here."""
    what = "\0".join((judged.api_version, judged.kind, judged.namespace, judged.name))
    return f"{SOURCE}-{judged.kind.lower()[:20]}-{sha256(what)[:16]}"


def _result(result: Result, file: str, line: int, policy: str) -> Mapping[str, Any]:
    properties = {"path": dotted(result.finding.path)}
    if line:
        properties |= {"file": file, "line": str(line)}
    if result.exemption:
        properties["exemption"] = result.exemption
    if result.repaired:
        properties["repaired"] = "true"
    return {
        "source": SOURCE,
        "policy": policy,
        "rule": result.rule,
        "severity": _SEVERITIES[result.action],
        "result": "skip" if result.exemption else _RESULTS[result.action],
        "scored": result.action is not Action.AUDIT,
        "message": result.finding.message,
        "properties": properties,
    }
