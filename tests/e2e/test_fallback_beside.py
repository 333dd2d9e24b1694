"""The fallback beside the webhook: who answers first, what users read, and who tells when the fallback is gone."""

import json
import re
import socket
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.conftest import Space
from tests.e2e.control_plane import eventually
from tests.e2e.guard import MUTATE, VALIDATE, Guard
from tests.e2e.objects import TRUSTED, Object, pod
from tests.support.manifests import COMPONENTS, read
from tests.support.policies import POLICY, policy_of
from webhook.cli import main as cli
from webhook.fallback.answers import ValidationActions
from webhook.fallback.policies import fallback
from webhook.rules import walk

ADMISSION = "admissionregistration.k8s.io"
KINDS = f"validatingadmissionpolicies.{ADMISSION},validatingadmissionpolicybindings.{ADMISSION}"
BY_FALLBACK, BY_WEBHOOK = (
    "ValidatingAdmissionPolicy 'slicewarden-pods",
    'admission webhook "pods.slicewarden.dev" denied',
)
PRIVILEGED = {"securityContext": {"privileged": True}}


def privileged(namespace: str) -> Object:
    """A pod that the fallback refuses in every form."""
    item = pod("privileged", namespace)
    item["spec"]["containers"][0] |= PRIVILEGED
    return item


def greedy(namespace: str) -> Object:
    """A pod that the fallback by rule only records."""
    item = pod("greedy", namespace, {"nvidia.com/gpu.shared": 1}, TRUSTED)
    first, *_ = item["spec"]["containers"]
    item["spec"]["containers"].append({**first, "name": "second"})
    return item


Install = Callable[[ValidationActions], None]


@pytest.fixture
def install(guarded: Guard, space: Space) -> Iterator[Install]:
    """Installs a fallback and waits until it answers, or until only the webhook does."""
    cluster, namespace = guarded.cluster, space()

    def installed(answer: ValidationActions) -> None:
        assert cluster.apply(*fallback(policy_of(POLICY), walk(), answer)).returncode == 0
        if answer in (ValidationActions.DENY, ValidationActions.BY_RULE):
            assert eventually(lambda: BY_FALLBACK in refusal(guarded, privileged(namespace)))

    yield installed
    cluster.do("delete", KINDS, "--selector=app.kubernetes.io/part-of=slicewarden")
    assert eventually(lambda: BY_WEBHOOK in refusal(guarded, privileged(namespace)))


def refusal(guard: Guard, item: Object) -> str:
    return guard.cluster.kubectl("create", "--dry-run=server", "--filename=-", stdin=json.dumps(item)).stderr


def test_mutation_comes_first_then_the_fallback_and_then_validation(
    guarded: Guard, install: Install, team: str
) -> None:
    """So a pod that /mutate mends passes the fallback, and users read the fallback's message where both deny."""
    install(ValidationActions.DENY)
    assert guarded.reached_by(pod("mended", team), refused=False) == [MUTATE, VALIDATE]
    for item, rule in ((privileged(team), "privileged-container"), (greedy(team), "multiple-slices")):
        assert guarded.reached_by(item, refused=True) == [MUTATE]
        said = refusal(guarded, item)
        assert BY_FALLBACK in said
        assert f"{rule}: " in said
        assert "webhook" not in said.replace("mutating webhook", "")


def test_by_rule_users_read_the_webhooks_message_for_what_can_wait(guarded: Guard, install: Install, team: str) -> None:
    install(ValidationActions.BY_RULE)
    assert guarded.reached_by(privileged(team), refused=True) == [MUTATE]
    assert guarded.reached_by(greedy(team), refused=True) == [MUTATE, VALIDATE]
    said = refusal(guarded, greedy(team))
    assert BY_WEBHOOK in said
    assert "nvidia.com/gpu" in said  # the field that the fallback's message does not name


def test_a_fallback_that_records_leaves_every_word_to_the_webhook(guarded: Guard, install: Install, team: str) -> None:
    install(ValidationActions.AUDIT)
    for item in (privileged(team), greedy(team)):
        assert guarded.reached_by(item, refused=True) == [MUTATE, VALIDATE]
        assert BY_WEBHOOK in refusal(guarded, item)
    install(ValidationActions.WARN)
    assert eventually(
        lambda: "Warning: Validation failed for ValidatingAdmissionPolicy" in refusal(guarded, greedy(team))
    )


@pytest.fixture
def watched(guarded: Guard) -> Iterator[str]:
    """Where the metrics are of a webhook that watches the fallback, with the powers that the component gives it."""
    parts = read(COMPONENTS / "fallback-watch" / "rbac.yaml")
    guarded.install(*parts)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    guarded.judge_by(None, "--fallback=ByRule", f"--health-listen=127.0.0.1:{port}")
    yield f"http://127.0.0.1:{port}/metrics"
    guarded.judge_by()
    listed = {"apiVersion": "v1", "kind": "List", "items": parts}
    guarded.cluster.do("delete", "--filename=-", stdin=json.dumps(listed))


def states(metrics: str) -> dict[str, int]:
    """The policies and bindings of the fallback by state, as the webhook's metrics count them; no zeros."""
    with urllib.request.urlopen(metrics, timeout=10) as answer:
        text = answer.read().decode()
    found = re.findall(r'^slicewarden_fallback_objects\{state="(\w+)"\} (\S+)$', text, re.MULTILINE)
    return {state: int(float(number)) for state, number in found if float(number)}


def test_removal_and_weakening_of_the_fallback_are_told_by_metrics_log_and_command(
    guarded: Guard, watched: str, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = len(fallback(policy_of(POLICY), walk(), ValidationActions.BY_RULE))
    assert eventually(lambda: states(watched) == {"missing": whole})
    install(ValidationActions.BY_RULE)
    assert eventually(lambda: states(watched) == {"current": whole}), states(watched)
    cluster = guarded.cluster
    asks = ["fallback", "--policy", str(POLICY), "--check", "--live", "--kubeconfig", str(cluster.kubeconfig())]
    assert cli.main(asks) == 0
    assert capsys.readouterr().out.endswith(", actions: ByRule\n")

    binding = f"validatingadmissionpolicybinding.{ADMISSION}/slicewarden-pods"
    weaker = {"spec": {"validationActions": ["Audit"]}}
    cluster.do("patch", binding, "--type=merge", f"--patch={json.dumps(weaker)}")
    assert eventually(lambda: states(watched) == {"current": whole - 1, "differing": 1}), states(watched)
    assert cli.main(asks) == 1
    assert "slicewarden-pods: actions are Audit, not Deny and Audit" in capsys.readouterr().out

    cluster.do("delete", binding)
    assert eventually(lambda: states(watched) == {"current": whole - 1, "missing": 1}), states(watched)
    assert cli.main(asks) == 1
    assert "slicewarden-pods: its binding is missing, so it is not in force" in capsys.readouterr().out
    missing = ["slicewarden-pods: its binding is missing, so it is not in force"]
    # It is logged after it is counted.
    assert eventually(lambda: missing in [each.get("differences") for each in guarded.logged()])
