"""Try what an administrator applies with promtool: alerts on series made up for them, the dashboard's queries."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.monitoring import grafana
from tests.monitoring.conftest import Promtool
from webhook.telemetry.metrics import Metrics

HERE = Path(__file__).resolve().parent
MONITORING = ROOT / "manifests" / "monitoring"
CASES: dict[str, Any] = yaml.safe_load((HERE / "cases.yaml").read_text("utf-8"))
TRIED = [each for test in CASES["tests"] for each in test["alert_rule_test"]]
RULES = [
    rule
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text("utf-8"))["spec"]["groups"]
    for rule in group["rules"]
]


DASHBOARD = MONITORING / "dashboard.json"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """The alerts as a Prometheus without the Operator reads them."""
    file = tmp_path / "rules.yaml"
    spec = yaml.safe_load((MONITORING / "alerts.yaml").read_text("utf-8"))["spec"]
    file.write_text(yaml.safe_dump(spec), "utf-8")
    return file


def test_prometheus_takes_the_alerts(promtool: Promtool, rules: Path) -> None:
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", rules)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(RULES)} rules found" in checked.stdout


def test_prometheus_takes_the_metrics(promtool: Promtool) -> None:
    checked = promtool("check", "metrics", stdin=Metrics().text().decode())
    assert (checked.returncode, checked.stderr) == (0, "")


def test_prometheus_takes_every_query_of_the_dashboard(promtool: Promtool, tmp_path: Path) -> None:
    queries = [
        target["expr"]
        for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]
        for target in panel.get("targets", ())
    ]
    assert len(queries) > 20
    recorded = [
        {"record": f"query:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(queries)
    ]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]}), "utf-8")
    checked = promtool("check", "rules", "--lint=none", file)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_fires_and_stays_quiet_where_it_should(promtool: Promtool, rules: Path) -> None:
    bare = yaml.safe_load(rules.read_text("utf-8"))
    for rule in (rule for group in bare["groups"] for rule in group["rules"]):
        del rule["annotations"]  # a case would have to repeat them word for word
    rules.write_text(yaml.safe_dump(bare), "utf-8")
    cases = rules.with_name("cases.yaml")
    cases.write_text(yaml.safe_dump({"rule_files": [rules.name], "evaluation_interval": "1m", **CASES}), "utf-8")
    tried = promtool("test", "rules", cases)
    assert tried.returncode == 0, tried.stdout + tried.stderr


def test_a_text_names_only_labels_that_its_alert_has() -> None:
    fired = {each["alertname"]: each["exp_alerts"] for each in TRIED if each.get("exp_alerts")}
    for rule in RULES:
        named = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
        for case in fired[rule["alert"]]:
            assert named <= case["exp_labels"].keys(), rule["alert"]


def test_every_alert_has_both_cases() -> None:
    names = {rule["alert"] for rule in RULES}
    assert {each["alertname"] for each in TRIED if each.get("exp_alerts")} == names
    assert {each["alertname"] for each in TRIED if not each.get("exp_alerts")} == names


def test_grafana_s_schema_knows_every_key_and_every_value_of_the_dashboard() -> None:
    assert list(grafana.faults(json.loads(DASHBOARD.read_text("utf-8")))) == []


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (["panels", 1, "gridPos", "h"], "4"),
        (["panels", 1, "gridpos"], {}),
        (["panels", 1, "targets", 0, "range"], "yes"),
        (["panels", 1, "fieldConfig", "defaults", "unity"], "s"),
        (["templating", "list", 0, "refresh"], 7),
        (["refresh"], 30),
    ],
)
def test_the_schema_refuses_another_dashboard(place: list[str | int], value: object) -> None:
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    inner = dashboard
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    assert len(list(grafana.faults(dashboard))) == 1
