"""A real Prometheus finds the replicas by our PodMonitor; alerts fire for real causes, and resolve when they are gone.

An hour of the alerts passes in a minute and a half.
"""

import json
import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests import ROOT
from tests.e2e.control_plane import Cluster, eventually
from tests.node import scrapes
from tests.node.conftest import Sh
from tests.node.pods import pod
from tests.node.replicas import CREATE, GOOD, SYSTEM, all_ready
from tests.node.scrapes import alerts, ask, silent
from tests.support.objects import Object

ELSEWHERE = ("slicewarden_node_", "slicewarden_fallback_")
"""Metrics of what is not installed here: the agent, and a watch of the fallback."""


def idle(name: str, namespace: str, spec: Object, annotations: dict[str, str] | None = None) -> Object:
    """A Deployment of no pods, which is judged all the same."""
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels, "annotations": annotations or {}},
        "spec": {**GOOD["spec"], "restartPolicy": "Always", **spec},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }


WARNED = idle("misspelt", "default", {}, {"slicewarden.dev/gpu-process": "2"})
EXEMPTED = idle("collector", "gmp-system", {"serviceAccountName": "collector", "tolerations": [{"operator": "Exists"}]})
"""As the sample policy exempts it, `gke-collector`."""
CONTROLLER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "made-up", "uid": "made-up", "controller": True}
OF_A_CONTROLLER = pod(
    "of-a-controller", gpus=1, volumes=[{"name": "bus", "hostPath": {"path": "/sys/bus/pci/devices"}}]
)
OF_A_CONTROLLER["metadata"]["ownerReferences"] = [CONTROLLER]
"""Its denial becomes an Event. The fallback lets it pass, so that the webhook is asked."""


def rules() -> list[Object]:
    """The alerts as Prometheus knows them."""
    return [rule for group in ask("rules")["groups"] for rule in group["rules"]]


def unwell() -> dict[str, str]:
    """The alerts that could not be evaluated, or not yet, and why."""
    return {rule["name"]: rule.get("lastError", "") for rule in rules() if rule["health"] != "ok"}


def firing() -> set[str]:
    """The names of the alerts that fire."""
    return {rule["name"] for rule in rules() if rule["state"] == "firing"}


@pytest.fixture(scope="module")
def watched(enforced: Cluster) -> Iterator[Cluster]:
    """The cluster with a Prometheus, which evaluates our alerts."""
    with scrapes.running(enforced, {"slicewarden": 3, "slicewarden-controller": 2}, alerts()):
        yield enforced


def scale(cluster: Cluster, replicas: int) -> None:
    """Let there be so many replicas."""
    cluster.do("scale", "deployment/slicewarden", SYSTEM, f"--replicas={replicas}")


@pytest.mark.usefixtures("watched")
def test_all_alerts_are_evaluated_on_real_metrics_and_none_fires_where_all_is_well() -> None:
    # None fires before all are evaluated, and a counter that is older than Prometheus seems new for a while.
    assert eventually(lambda: not unwell() and not firing()), (unwell(), firing())
    assert {rule["name"] for rule in rules()} == {rule["alert"] for group in alerts() for rule in group["rules"]}
    named = set(re.findall(r"\bslicewarden_\w+", "".join(rule["query"] for rule in rules())))
    here = {each for each in named if not each.startswith(ELSEWHERE)}
    assert eventually(lambda: here <= {*ask("label/__name__/values")}), here - {*ask("label/__name__/values")}


def test_each_panel_of_the_dashboard_is_asked_for_once() -> None:
    asked = [title for titles in (*scrapes.ASKED.values(), scrapes.MADE_UP) for title in titles]
    assert sorted(asked) == sorted(scrapes.panels())


def test_the_panels_have_series_while_objects_are_let_in_warned_of_exempted_and_denied(watched: Cluster) -> None:
    watched.add_namespace(EXEMPTED["metadata"]["namespace"])
    assert watched.apply(WARNED, EXEMPTED).returncode == 0

    def without() -> set[str]:
        watched.do(*CREATE, stdin=json.dumps(GOOD))
        bad = json.dumps(OF_A_CONTROLLER)
        assert watched.kubectl("create", "--filename=-", stdin=bad).returncode  # nobody counts a dry run
        return silent("enforced")

    assert eventually(lambda: not without()), without()
    watched.do("delete", "deployment", WARNED["metadata"]["name"])
    watched.do("delete", "namespace", EXEMPTED["metadata"]["namespace"], "--wait=false")


def test_the_alert_of_one_replica_fires_and_resolves(watched: Cluster) -> None:
    scale(watched, 1)
    assert eventually(lambda: "SlicewardenOneReplica" in firing())
    scale(watched, 3)
    assert eventually(lambda: "SlicewardenOneReplica" not in firing())
    assert eventually(partial(all_ready, watched))


def test_the_alerts_of_a_webhook_that_is_gone_fire_and_resolve(watched: Cluster) -> None:
    gone = {"SlicewardenDown", "SlicewardenUnreachable"}
    # As it is patched: without the patch the fallback denies it, and the API server does not ask the webhook.
    patched = watched.do(*CREATE, "--output=json", stdin=json.dumps(GOOD))

    def refused_and_fire() -> bool:
        refused = watched.kubectl(*CREATE, stdin=patched).returncode != 0
        return refused and gone <= firing() and not silent("gone", "> 0")

    scale(watched, 0)
    assert eventually(refused_and_fire), (firing(), silent("gone", "> 0"))
    scale(watched, 3)
    assert eventually(lambda: not gone & firing()), firing()
    assert eventually(partial(all_ready, watched))


@pytest.fixture
def with_events(watched: Cluster, sh: Sh, tmp_path: Path) -> Iterator[None]:
    """The same with the component of Events, as a kustomization of one's own has it; after it there are none again."""
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    content = {"resources": ["manifests/controller"], "components": ["manifests/components/events"]}
    (tmp_path / "kustomization.yaml").write_text(json.dumps(content))
    status = f"kubectl rollout status deployment/slicewarden {SYSTEM}"
    sh(f"kubectl apply -k .\n{status}", tmp_path)
    assert eventually(partial(all_ready, watched))
    yield
    sh(
        f"kubectl delete -f manifests/components/events/rbac.yaml\nkubectl apply -k manifests/controller\n{status}",
        tmp_path,
    )
    assert eventually(partial(all_ready, watched))


@pytest.mark.usefixtures("with_events")
def test_the_panel_of_events_has_those_that_were_written(watched: Cluster) -> None:
    def without() -> set[str]:
        assert watched.kubectl("create", "--filename=-", stdin=json.dumps(OF_A_CONTROLLER)).returncode
        return silent("events", "> 0")

    assert eventually(lambda: not without()), without()
