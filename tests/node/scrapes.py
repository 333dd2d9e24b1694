"""A real Prometheus that scrapes what our PodMonitors name, and asks for what each panel of the dashboard shows.

The Operator is not here: `job` does what it makes of a PodMonitor.
"""

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests import ROOT
from tests.e2e.control_plane import Cluster
from tests.monitoring import prometheus
from tests.support.manifests import read
from tests.support.objects import Object

MONITORING = ROOT / "manifests" / "monitoring"
FASTER = 40
MILLISECONDS = {"s": 1000, "m": 60_000, "h": 3_600_000}
AT = "127.0.0.1:9090"
ASKED = {
    "enforced": (
        "Replicas", "Reviews per second", "Denied, last hour", "Not decided, last hour", "Oldest facts",
        "Certificate expires in", "Reviews by outcome", "Denials by rule", "Warnings and audited findings by rule",
        "Use of exemptions, last day", "Review duration", "Admission duration at the API server, p99",
        "Calls by webhook", "Age of facts", "Watches that broke", "Answers without a verdict",
        "Policy and mode in force", "Waiting, lost and died",
    ),
    "events": ("Events",),
    "gone": ("Passed by, or refused for want of an answer",),
    "audited": ("Audit mode: what the policy would have done",),
    "used": ("Memory and allowance by container", "SMs' time by container", "Memory of cards"),
    "strange": ("Over their allowance, and without a GPU request",),
    "acted": ("What the agent did",),
    "faulty": ("The agents themselves",),
    "dead": ("Dead cards and their events",),
}  # fmt: skip
"""Panels by what has to happen for them to have series: a test makes each of these, and asks for what they show."""
MADE_UP = ("Turns: who stands still", "Idle containers", "The fallback's policies and bindings by state")
"""Panels with series that are only made up (tests/monitoring): nobody waits here, or watches the fallback."""


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
    namespaces = monitor["spec"].get("namespaceSelector", {}).get("matchNames", ["slicewarden-system"])

    def source(name: str) -> list[str]:
        return ["__meta_kubernetes_" + re.sub(r"\W", "_", name)]

    return {
        "job_name": monitor["metadata"]["name"],
        "scrape_interval": faster(endpoint["interval"]),
        "scrape_timeout": faster(endpoint["interval"]),
        "metrics_path": endpoint["path"],
        "honor_labels": endpoint.get("honorLabels", False),
        "kubernetes_sd_configs": [
            {"role": "pod", "kubeconfig_file": str(kubeconfig), "namespaces": {"names": namespaces}}
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


def is_up(pods: Mapping[str, int]) -> bool:
    """Tell whether so many pods of each monitor and the API server are scraped."""
    try:
        found = ask("query", query="count by (job) (up == 1)")["result"]
    except OSError:  # it does not listen yet
        return False
    return {each["metric"]["job"]: int(each["value"][1]) for each in found} == {**pods, "apiserver": 1}


@contextmanager
def running(cluster: Cluster, pods: Mapping[str, int], groups: Sequence[Object] = ()) -> Iterator[None]:
    """Run a Prometheus until the block ends, which scrapes so many pods of each monitor; evaluate groups of alerts."""
    home = cluster.folder / f"prometheus-{'-'.join(pods)}"
    home.mkdir()
    every = faster("30s")
    files = ("podmonitor", "podmonitor-node", "podmonitor-controller")
    every_monitor = [monitor for file in files for monitor in read(MONITORING / f"{file}.yaml")]
    monitors = [monitor for monitor in every_monitor if monitor["metadata"]["name"] in pods]
    config = {
        "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
        "rule_files": [str(home / "alerts.yaml")],
        "scrape_configs": [*(job(each, cluster.kubeconfig()) for each in monitors), api_servers(cluster)],
    }
    (home / "alerts.yaml").write_text(yaml.safe_dump({"groups": [*groups]}))
    (home / "prometheus.yaml").write_text(yaml.safe_dump(config))
    cluster.start(
        "prometheus", prometheus.find("prometheus"), f"--config.file={home}/prometheus.yaml",
        f"--storage.tsdb.path={home}/data", f"--web.listen-address={AT}", f"--query.lookback-delta={faster('5m')}",
    )  # fmt: skip
    try:
        cluster.wait_until("Prometheus scrapes the pods", partial(is_up, pods))
        yield
    finally:
        cluster.stop("prometheus")


def panels() -> dict[str, list[str]]:
    """The queries of each panel of the dashboard, by its title."""
    text = (MONITORING / "dashboard.json").read_text("utf-8")
    made = json.loads(text.replace("$__rate_interval", "5m").replace("$namespace", "slicewarden-system"))["panels"]
    return {panel["title"]: [each["expr"] for each in panel["targets"]] for panel in made if panel.get("targets")}


def silent(happened: str, condition: str = "") -> set[str]:
    """The queries of the panels for what has happened that no series answers, or none that meets a condition."""
    found = panels()
    queries = [query for title in ASKED[happened] for query in found[title]]
    return {query for query in queries if not ask("query", query=f"({query}) {condition}")["result"]}
