"""The dashboard, the alerts and their page name only metrics that there are."""

import json
import os
import re
import time
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests import ROOT
from tests.support.api_server_metrics import METRICS as API_SERVERS
from webhook.agent import metrics as agent
from webhook.agent.observe.limited import LimitCounts
from webhook.agent.observe.look import CardUse, ContainerUse, ProcessUse
from webhook.agent.observe.nvml import CardReading, NvmlEvent
from webhook.agent.observe.pods import ContainerName
from webhook.agent.observe.processes import Process
from webhook.agent.observe.view import ContainerRow, NodeContainer
from webhook.agent.turns.turns import FrozenTime
from webhook.cgroups.places import ContainerCgroup
from webhook.cluster import watch
from webhook.memory.admitted import Admitted
from webhook.memory.driver.start import StartNeed
from webhook.model import Action, Finding, Mode, Request, Result, Verdict
from webhook.telemetry.metrics import Metrics

MONITORING, COMPONENT = ROOT / "manifests" / "monitoring", ROOT / "manifests" / "components" / "events"
PAGE = ROOT / "docs" / "operate.md"

TARGET = {"pod", "namespace"}
"""Labels that Prometheus adds to what it scrapes."""


@pytest.fixture(scope="module")
def said() -> dict[str, tuple[str, set[str]]]:
    """Every metric by name, with what it says and its labels, once all of it has happened."""
    metrics = Metrics()
    request = Request("u", "CREATE", "", "v1", "Pod", "", "a", "b", None, False, {}, None)
    metrics.count("/validate", request, Verdict((Result("r", Action.DENY, Finding((), "m")),)))
    metrics.heard("Node", time.monotonic())
    metrics.judging_by("0123456789abcdef", Mode.ENFORCE)
    metrics.fallback([("missing", 1)], unread=False)
    return {
        family.name + ("_total" if family.type == "counter" else ""): (
            family.documentation,
            {label for sample in family.samples for label in sample.labels} - {"le"},
        )
        for family in text_string_to_metric_families(metrics.text().decode())
    }


@pytest.fixture(scope="module")
def seen() -> dict[str, set[str]]:
    """Every metric of the agent on a node by name, with its labels, once all of it has happened."""
    metrics = agent.AgentMetrics(
        pauses=lambda: {ContainerName("a", "b", "c"): FrozenTime(True, 3.0)},
        limits=lambda: LimitCounts(needs={StartNeed.CGROUP: False}),
    )
    reading = CardReading("GPU-0", "0", "A10", 9000, 24576, 50, (), errors=("nvmlX: no",))
    event = NvmlEvent("GPU-0", "XID 79", fatal=True)
    place = ContainerCgroup("u", "c", "/c", 2)
    use = ContainerUse(place, (ProcessUse(Process(1, 1, "p", place), 9000, 10),))
    row = ContainerRow(
        reading, use, NodeContainer(ContainerName("a", "b", "c"), "u", Admitted(requests=True, allowance=100))
    )
    metrics.saw(agent.LastLook([CardUse(reading, (use,))], [row], time.monotonic(), 0.1, events=[event]))
    metrics.acted("Report", "done")
    return {
        family.name + ("_total" if family.type == "counter" else ""): {
            label for sample in family.samples for label in sample.labels
        }
        | {"instance"}
        for family in text_string_to_metric_families(metrics.text().decode())
    }


def read(name: str) -> Any:
    return yaml.safe_load((MONITORING / name).read_text("utf-8"))


RULES = [rule for group in read("alerts.yaml")["spec"]["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text("utf-8"))
QUERIES = [
    *(rule["expr"] for rule in RULES),
    *(target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())),
]


CONTROLLERS = {
    "slicewarden_controller_leads": (),
    "slicewarden_policy_standing": ("digest", "mode", "ready", "reason"),
}
"""The metrics of a controller that alerts read (webhook/controller/health.py)."""


KUBE_STATE = {
    "kube_cronjob_status_last_schedule_time": ("namespace", "cronjob"),
    "kube_cronjob_status_last_successful_time": ("namespace", "cronjob"),
}
"""The metrics of kube-state-metrics that alerts read (its docs/metrics/workload/cronjob-metrics.md)."""


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_names_only_what_there_is(
    said: dict[str, tuple[str, set[str]]], seen: dict[str, set[str]], query: str
) -> None:
    known = {name: labels for name, (_, labels) in said.items()} | {
        name: set(labels) for name, labels in API_SERVERS.items()
    }
    known |= seen
    known |= {name: set(labels) for name, labels in (CONTROLLERS | KUBE_STATE).items()}
    query = re.sub(r"#.*", "", query)
    found = re.findall(r"\b((?:slicewarden|apiserver|kube)_\w+)(\{[^}]*\})?", query)
    assert found
    labels = set()
    for name, selector in found:
        name = name if name in known else name.removesuffix("_bucket")
        assert name in known
        assert {*re.findall(r"(\w+)(?:=|!=|=~|!~)\"", selector)} <= known[name] | TARGET
        labels |= known[name] | TARGET | {"le"}
    for grouped in re.findall(r"\bby \(([^)]*)\)", query):
        assert set(grouped.split(", ")) <= labels


def test_the_dashboard_shows_every_metric(said: dict[str, tuple[str, set[str]]], seen: dict[str, set[str]]) -> None:
    shown = "\n".join(target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ()))
    assert {name for name in (*said, *seen, *API_SERVERS) if name not in shown} <= {
        "apiserver_admission_match_condition_evaluation_errors_total",  # of which an alert tells
    }


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_says_what_is_wrong_and_the_page_what_to_do(rule: Any) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert {"summary", "description", "runbook"} == rule["annotations"].keys()
    assert rule["annotations"]["runbook"] == f"docs/operate.md#{rule['alert'].lower()}"
    assert f"\n### {rule['alert']}\n" in PAGE.read_text("utf-8")


def test_the_page_has_no_alert_that_is_gone() -> None:
    assert re.findall(r"^### (\w+)$", PAGE.read_text("utf-8"), re.MULTILINE) == [rule["alert"] for rule in RULES]


def test_the_page_has_every_metric(said: dict[str, tuple[str, set[str]]]) -> None:
    rows = [
        f"| `{name}` | {', '.join(f'`{label}`' for label in sorted(labels))} | {text.rstrip('.')} |"
        for name, (text, labels) in sorted(said.items())
    ]
    table = "\n".join(["| metric | labels | says |", "| --- | --- | --- |", *rows])
    start, end = "<!-- metrics -->\n", "\n<!-- end -->"
    before, _, rest = PAGE.read_text("utf-8").partition(start)
    _, found, after = rest.partition(end)
    assert found
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(before + start + table + end + after, "utf-8")
    assert rest == table + end + after, "UPDATE_GOLDEN=1 writes it"
    for name in API_SERVERS:
        assert f"| `{name}` |" in before + after


def test_the_agents_page_names_every_metric_of_its_own(seen: dict[str, set[str]]) -> None:
    page = (ROOT / "docs" / "agent.md").read_text("utf-8")
    for name in seen:
        assert f"`{name}`" in page, name


def test_the_alert_on_old_facts_allows_every_normal_age() -> None:
    (rule,) = [rule for rule in RULES if rule["alert"] == "SlicewardenFactsOld"]
    limit = int(rule["expr"].rpartition("> ")[2])
    assert limit > watch.WATCH_SECONDS + 30 + watch.LAST_PAUSE
    assert limit > watch.ABSENT_PAUSE


def test_the_component_may_write_events_and_nothing_else() -> None:
    objects = list(yaml.safe_load_all((COMPONENT / "rbac.yaml").read_text("utf-8")))
    role, binding = objects
    assert role["rules"] == [{"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]}]
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": role["metadata"]["name"],
    }
    account = {"kind": "ServiceAccount", "name": "slicewarden", "namespace": "slicewarden-system"}
    assert binding["subjects"] == [account]


def test_every_file_is_applied() -> None:
    for folder in (MONITORING, COMPONENT):
        kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))
        generated = [file for each in kustomization.get("configMapGenerator", ()) for file in each["files"]]
        files = {file.name for file in folder.iterdir()} - {"kustomization.yaml"}
        assert {*kustomization["resources"], *generated} == files


def test_the_pods_own_port_is_scraped() -> None:
    (deployment,) = [
        each
        for each in yaml.safe_load_all((ROOT / "manifests/base/deployment.yaml").read_text("utf-8"))
        if each["kind"] == "Deployment"
    ]
    monitor = read("podmonitor.yaml")["spec"]
    pod = deployment["spec"]["template"]
    assert monitor["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    ports = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}
    assert {each["port"] for each in monitor["podMetricsEndpoints"]} <= ports
