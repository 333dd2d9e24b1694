"""The floor beside the webhook: who answers first, what users read, and who tells when the floor is gone."""

import json
import re
import ssl
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.conftest import Space
from tests.e2e.control_plane import Cluster, eventually
from tests.e2e.guard import MUTATE, VALIDATE, Guard, rendered
from tests.e2e.objects import Object, pod
from tests.support.policies import POLICY, policy_of
from webhook.cli import main as cli
from webhook.floor.answers import Answer
from webhook.floor.policies import floor
from webhook.rules import walk

ADMISSION = "admissionregistration.k8s.io"
KINDS = f"validatingadmissionpolicies.{ADMISSION},validatingadmissionpolicybindings.{ADMISSION}"
BY_FLOOR, BY_WEBHOOK = "ValidatingAdmissionPolicy 'slicewarden-pods", 'admission webhook "pods.slicewarden.dev" denied'
PRIVILEGED = {"securityContext": {"privileged": True}}
TWO = {"nvidia.com/gpu": 2}


def privileged(namespace: str) -> Object:
    """A pod that the floor refuses in every form."""
    item = pod("privileged", namespace)
    item["spec"]["containers"][0] |= PRIVILEGED
    return item


def greedy(namespace: str) -> Object:
    """A pod that the floor by rule only records."""
    return pod("greedy", namespace, TWO)


Install = Callable[[Answer], None]


@pytest.fixture
def install(guarded: Guard, space: Space) -> Iterator[Install]:
    """Installs a floor and waits until it answers, or until only the webhook does."""
    cluster, namespace = guarded.cluster, space()

    def installed(answer: Answer) -> None:
        assert cluster.apply(*floor(policy_of(POLICY), walk(), answer)).returncode == 0
        if answer in (Answer.DENY, Answer.BY_RULE):
            assert eventually(lambda: BY_FLOOR in refusal(guarded, privileged(namespace)))

    yield installed
    cluster.do("delete", KINDS, "--selector=app.kubernetes.io/part-of=slicewarden")
    assert eventually(lambda: BY_WEBHOOK in refusal(guarded, privileged(namespace)))


def refusal(guard: Guard, item: Object) -> str:
    return guard.cluster.kubectl("create", "--dry-run=server", "--filename=-", stdin=json.dumps(item)).stderr


def test_mutation_comes_first_then_the_floor_and_then_validation(
    guarded: Guard, install: Install, strangers: str
) -> None:
    """So a pod that /mutate mends passes the floor, and users read the floor's message where both deny."""
    install(Answer.DENY)
    assert guarded.reached_by(pod("mended", strangers), refused=False) == [MUTATE, VALIDATE]
    for item, rule in ((privileged(strangers), "privileged-container"), (greedy(strangers), "multiple-slices")):
        assert guarded.reached_by(item, refused=True) == [MUTATE]
        said = refusal(guarded, item)
        assert BY_FLOOR in said
        assert f"{rule}: " in said
        assert "webhook" not in said.replace("mutating webhook", "")


def test_by_rule_users_read_the_webhooks_message_for_what_can_wait(
    guarded: Guard, install: Install, strangers: str
) -> None:
    install(Answer.BY_RULE)
    assert guarded.reached_by(privileged(strangers), refused=True) == [MUTATE]
    assert guarded.reached_by(greedy(strangers), refused=True) == [MUTATE, VALIDATE]
    said = refusal(guarded, greedy(strangers))
    assert BY_WEBHOOK in said
    assert "nvidia.com/gpu" in said  # the field that the floor's message does not name


def test_a_floor_that_records_leaves_every_word_to_the_webhook(
    guarded: Guard, install: Install, strangers: str
) -> None:
    install(Answer.AUDIT)
    for item in (privileged(strangers), greedy(strangers)):
        assert guarded.reached_by(item, refused=True) == [MUTATE, VALIDATE]
        assert BY_WEBHOOK in refusal(guarded, item)
    install(Answer.WARN)
    assert eventually(
        lambda: "Warning: Validation failed for ValidatingAdmissionPolicy" in refusal(guarded, greedy(strangers))
    )


@pytest.fixture
def watched(guarded: Guard) -> Iterator[Cluster]:
    """The webhook watches the floor, with the powers that the component gives it."""
    parts = [
        each for each in rendered(guarded.cluster, "components/floor-watch") if each["kind"].startswith("ClusterRole")
    ]
    guarded.install(*parts)
    guarded.judge_by(None, "--floor=ByRule")
    yield guarded.cluster
    guarded.judge_by()
    listed = {"apiVersion": "v1", "kind": "List", "items": parts}
    guarded.cluster.do("delete", "--filename=-", stdin=json.dumps(listed))


def states(guard: Guard) -> dict[str, int]:
    """The policies and bindings of the floor by state, as the webhook's metrics count them; without those of none."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with urllib.request.urlopen(f"{guard.url}/metrics", timeout=10, context=context) as answer:
        text = answer.read().decode()
    found = re.findall(r'^slicewarden_floor_objects\{state="(\w+)"\} (\S+)$', text, re.MULTILINE)
    return {state: int(float(number)) for state, number in found if float(number)}


def test_removal_and_weakening_of_the_floor_are_told_by_metrics_log_and_command(
    guarded: Guard, watched: Cluster, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = len(floor(policy_of(POLICY), walk(), Answer.BY_RULE))
    assert eventually(lambda: states(guarded) == {"missing": whole})
    install(Answer.BY_RULE)
    assert eventually(lambda: states(guarded) == {"current": whole}), states(guarded)
    asks = ["floor", "--policy", str(POLICY), "--check", "--live", "--kubeconfig", str(watched.kubeconfig())]
    assert cli.main(asks) == 0
    assert capsys.readouterr().out.endswith(", actions: ByRule\n")

    binding = f"validatingadmissionpolicybinding.{ADMISSION}/slicewarden-pods"
    weaker = {"spec": {"validationActions": ["Audit"]}}
    watched.do("patch", binding, "--type=merge", f"--patch={json.dumps(weaker)}")
    assert eventually(lambda: states(guarded) == {"current": whole - 1, "differing": 1}, 10), states(guarded)
    assert cli.main(asks) == 1
    assert "slicewarden-pods: actions are Audit, not Deny and Audit" in capsys.readouterr().out

    watched.do("delete", binding)
    assert eventually(lambda: states(guarded) == {"current": whole - 1, "missing": 1}, 10), states(guarded)
    assert cli.main(asks) == 1
    assert "slicewarden-pods: its binding is missing, so it is not in force" in capsys.readouterr().out
    differences = [each["differences"] for each in guarded.logged() if each.get("message") == "floor differs"]
    assert ["slicewarden-pods: its binding is missing, so it is not in force"] in differences
