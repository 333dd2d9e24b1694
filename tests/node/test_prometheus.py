"""A real Prometheus finds the replicas by our PodMonitor; alerts fire for real causes, and resolve when they are gone.

The Operator is not here: `job` does what it makes of a PodMonitor. An hour of the alerts passes in a minute and a half.
"""

import json
import re
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.e2e.control_plane import Cluster, eventually
from tests.monitoring import prometheus
from tests.node.conftest import Sh
from tests.node.replicas import BAD, CREATE, GOOD, SYSTEM, all_ready
from tests.support.manifests import read
from tests.support.objects import Object

MONITORING = ROOT / "manifests" / "monitoring"
FASTER = 40
MILLISECONDS = {"s": 1000, "m": 60_000, "h": 3_600_000}
AT = "127.0.0.1:9090"
ELSEWHERE = ("slicewarden_node_", "slicewarden_floor_")
"""Metrics of what is not installed here: the agent, and at first the floor."""
UNUSED = (
    "slicewarden_audited_total", "slicewarden_events_total", "fail_open_count",
    'error_type!="no_error"', 'action!="Deny"', 'exemption!=""',
)  # fmt: skip
"""What nothing here does: audit mode, Events, calls that fail, warnings and exemptions."""


def faster(text: str) -> str:
    """Shorten each duration of a text."""
    return re.sub(r"\b(\d+)([smh])\b", lambda found: f"{int(found[1]) * MILLISECONDS[found[2]] // FASTER}ms", text)


def alerts() -> list[Object]:
    """The groups of our alerts, with shorter durations."""
    (file,) = read(MONITORING / "alerts.yaml")
    groups: list[Object] = file["spec"]["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        rule.update({key: faster(rule[key]) for key in ("expr", "for") if key in rule})
    return groups


def job(monitor: Object, kubeconfig: Path) -> Object:
    """What the Operator makes of a PodMonitor (prometheus-operator, pkg/prometheus/promcfg.go)."""
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    wanted = {f"label_{key}": value for key, value in monitor["spec"]["selector"]["matchLabels"].items()}
    wanted["container_port_name"] = endpoint["port"]
    targets = {"namespace": "namespace", "pod_name": "pod", "pod_container_name": "container"}

    def source(name: str) -> list[str]:
        return ["__meta_kubernetes_" + re.sub(r"\W", "_", name)]

    return {
        "job_name": monitor["metadata"]["name"],
        "scrape_interval": faster(endpoint["interval"]),
        "scrape_timeout": faster(endpoint["interval"]),
        "metrics_path": endpoint["path"],
        "kubernetes_sd_configs": [
            {"role": "pod", "kubeconfig_file": str(kubeconfig), "namespaces": {"names": ["slicewarden-system"]}}
        ],
        "relabel_configs": [
            *({"action": "keep", "source_labels": source(f"pod_{name}"), "regex": it} for name, it in wanted.items()),
            *({"source_labels": source(name), "target_label": label} for name, label in targets.items()),
        ],
    }


def api_servers(cluster: Cluster) -> Object:
    """A job for the API server's own metrics."""
    address = urllib.parse.urlsplit(cluster.url)
    given = {"ca_file": "ca.crt", "cert_file": "kubelet-client.crt", "key_file": "kubelet-client.key"}
    return {
        "job_name": "apiserver",
        "scheme": address.scheme,
        "tls_config": {key: str(cluster.folder / name) for key, name in given.items()},
        "static_configs": [{"targets": [address.netloc]}],
        "metric_relabel_configs": [
            {"action": "keep", "source_labels": ["__name__"], "regex": "apiserver_admission_.*"}
        ],
    }


def ask(path: str, **parameters: str) -> Any:
    """What Prometheus answers."""
    url = f"http://{AT}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)["data"]


def rules() -> list[Object]:
    """The alerts as Prometheus knows them."""
    return [rule for group in ask("rules")["groups"] for rule in group["rules"]]


def firing() -> set[str]:
    """The names of the alerts that fire."""
    return {rule["name"] for rule in rules() if rule["state"] == "firing"}


def is_up(count: int) -> bool:
    """Tell whether so many replicas and the API server are scraped."""
    try:
        found = ask("query", query="count by (job) (up == 1)")["result"]
    except OSError:  # it does not listen yet
        return False
    return {each["metric"]["job"]: each["value"][1] for each in found} == {"slicewarden": str(count), "apiserver": "1"}


@pytest.fixture(scope="module")
def watched(enforced: Cluster) -> Iterator[Cluster]:
    """The cluster with a Prometheus, which evaluates our alerts."""
    home = enforced.folder / "prometheus"
    home.mkdir()
    every = faster("30s")
    (monitor,) = read(MONITORING / "podmonitor.yaml")
    config = {
        "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
        "rule_files": [str(home / "alerts.yaml")],
        "scrape_configs": [job(monitor, enforced.kubeconfig()), api_servers(enforced)],
    }
    (home / "alerts.yaml").write_text(yaml.safe_dump({"groups": alerts()}))
    (home / "prometheus.yaml").write_text(yaml.safe_dump(config))
    enforced.start(
        "prometheus", prometheus.find("prometheus"), f"--config.file={home}/prometheus.yaml",
        f"--storage.tsdb.path={home}/data", f"--web.listen-address={AT}", f"--query.lookback-delta={faster('5m')}",
    )  # fmt: skip
    enforced.wait_until("Prometheus scrapes the replicas", partial(is_up, 3))
    yield enforced
    enforced.stop("prometheus")


def scale(cluster: Cluster, replicas: int) -> None:
    """Let there be so many replicas."""
    cluster.do("scale", "deployment/slicewarden", SYSTEM, f"--replicas={replicas}")


@pytest.mark.usefixtures("watched")
def test_all_alerts_are_evaluated_on_real_metrics_and_none_fires_where_all_is_well() -> None:
    # A counter of the API server that is older than Prometheus seems new for a while.
    assert eventually(lambda: not firing(), 60), firing()
    assert {rule["name"] for rule in rules()} == {rule["alert"] for group in alerts() for rule in group["rules"]}
    assert {rule["name"]: rule.get("lastError") for rule in rules() if rule["health"] != "ok"} == {}
    named = set(re.findall(r"\bslicewarden_\w+", "".join(rule["query"] for rule in rules())))
    missing = named - {*ask("label/__name__/values")}
    assert {each for each in missing if not each.startswith(ELSEWHERE)} == set()


def test_all_queries_of_the_dashboard_are_answered_while_pods_are_created_and_denied(watched: Cluster) -> None:
    text = (MONITORING / "dashboard.json").read_text("utf-8")
    panels = json.loads(text.replace("$__rate_interval", "5m").replace("$namespace", "slicewarden-system"))["panels"]
    queries = {target["expr"] for each in panels for target in each.get("targets", ())}
    expected = {query for query in queries if not any(part in query for part in (*ELSEWHERE, *UNUSED))}

    def silent() -> set[str]:
        watched.do(*CREATE, stdin=json.dumps(GOOD))
        assert watched.kubectl("create", "--filename=-", stdin=json.dumps(BAD)).returncode  # nobody counts a dry run
        return {query for query in expected if not ask("query", query=query)["result"]}

    assert len(expected) > 20
    assert eventually(lambda: not silent(), 30), silent()


def test_the_alert_of_one_replica_fires_and_resolves(watched: Cluster) -> None:
    scale(watched, 1)
    assert eventually(lambda: "SlicewardenOneReplica" in firing(), 60)
    scale(watched, 3)
    assert eventually(lambda: "SlicewardenOneReplica" not in firing(), 60)
    assert eventually(partial(all_ready, watched), 60)


def test_the_alerts_of_a_webhook_that_is_gone_fire_and_resolve(watched: Cluster) -> None:
    gone = {"SlicewardenDown", "SlicewardenUnreachable"}

    def refused_and_fire() -> bool:
        return watched.kubectl(*CREATE, stdin=json.dumps(GOOD)).returncode != 0 and gone <= firing()

    scale(watched, 0)
    assert eventually(refused_and_fire, 90), firing()
    scale(watched, 3)
    assert eventually(lambda: not gone & firing(), 90), firing()
    assert eventually(partial(all_ready, watched), 60)


@pytest.fixture
def floored(watched: Cluster, sh: Sh, tmp_path: Path) -> Iterator[Path]:
    """A clone whose overlay has the floor, as it is installed; after it there is none again."""
    for name in ("manifests", "policies"):
        shutil.copytree(ROOT / name, tmp_path / name)
    overlay = tmp_path / "manifests/overlays/enforce/kustomization.yaml"
    overlay.write_text(overlay.read_text() + "  - ../../components/floor\n")
    apply = f"kubectl apply -k manifests/overlays/enforce\nkubectl rollout status deployment/slicewarden {SYSTEM}"
    sh(apply, tmp_path)
    assert eventually(partial(all_ready, watched), 60)
    yield tmp_path
    sh("kubectl delete -k policies/floor", tmp_path)
    sh(apply)
    assert eventually(partial(all_ready, watched), 60)


def test_the_alert_of_a_floor_that_was_removed_fires_and_resolves(watched: Cluster, sh: Sh, floored: Path) -> None:
    assert eventually(lambda: bool(ask("query", query='slicewarden_floor_objects{state="current"} > 0')["result"]), 30)
    assert "SlicewardenFloorDiffers" not in firing()
    watched.do("delete", "validatingadmissionpolicy", "slicewarden-bindings")
    assert eventually(lambda: "SlicewardenFloorDiffers" in firing(), 60)
    sh("kubectl apply -k policies/floor", floored)
    assert eventually(lambda: "SlicewardenFloorDiffers" not in firing(), 60)
