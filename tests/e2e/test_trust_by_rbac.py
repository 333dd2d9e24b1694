"""Trust by RBAC on a real API server: its own authorizer decides, for the webhook and for the fallback alike."""

import json
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import control_plane
from tests.e2e.access import allowed, bound, refusal
from tests.e2e.control_plane import Cluster, User, eventually
from tests.e2e.guard import Guard, policy_of
from tests.e2e.objects import TRUSTED, Object, pod, template, workload
from webhook import rules
from webhook.cli import main as cli
from webhook.cluster.rights import review
from webhook.documents.documents import read
from webhook.engine.registration import NAME
from webhook.facts import rights
from webhook.facts.rights import Account
from webhook.fallback.policies import fallback
from webhook.policy.load import load

OWNER = User("mona")
"""Has the cluster's role `admin` in both namespaces: may create accounts, pods and bindings there."""
CREATE = ("create", "--dry-run=server", "--filename=-")


@pytest.fixture(scope="module")
def guard(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guard]:
    """A cluster of its own, with a webhook whose policy trusts by RBAC alone."""
    with control_plane.running(tmp_path_factory.mktemp("rbac"), programs) as cluster:
        cluster.add_nodes()
        for name in ("vision", "visitors"):
            cluster.add_namespace(name, {})
            assert cluster.apply(bound("RoleBinding", "owner", "admin", OWNER.name, namespace=name)).returncode == 0
            allowed(cluster, OWNER, "create", "serviceaccounts", name)
            for account in ("trainer", "robot", "painter"):
                cluster.do("create", "serviceaccount", account, f"--namespace={name}", user=OWNER)
        found = Guard(cluster)
        found.start(text := by_rbac(policy_of(cluster)))
        (cluster.folder / "by-rbac.yaml").write_text(text, "utf-8")
        found.register()
        yield found


def by_rbac(policy: str) -> str:
    """The policy with a grant by RBAC in place of that by label."""
    text, count = re.subn(r"      - namespaceSelector:\n.*\n", "      - rbac: true\n", policy, count=1)
    assert count == 1
    return text


@pytest.fixture(scope="module")
def cluster(guard: Guard) -> Cluster:
    return guard.cluster


def asking(account: str, namespace: str = "vision", name: str = "train") -> Object:
    return pod(name, namespace, annotations=TRUSTED, serviceAccountName=account)


def made(cluster: Cluster, item: Object) -> str:
    """Why an object is refused that the owner of its namespace creates for show; empty if it is not."""
    done = cluster.kubectl(*CREATE, stdin=json.dumps(item), user=OWNER)
    return done.stderr if done.returncode else ""


def give(cluster: Cluster, account: str, namespace: str = "vision", user: User | None = None) -> None:
    command = rights.command(Account(namespace, account)).replace(
        f"rolebinding {rights.ROLE}", f"rolebinding {account}"
    )
    cluster.do(*shlex.split(command)[1:], user=user)


def take(cluster: Cluster, account: str, namespace: str = "vision") -> None:
    cluster.do("delete", "rolebinding", account, f"--namespace={namespace}")


def holds(cluster: Cluster, account: str, namespace: str = "vision") -> bool:
    """Tell whether an account has the right, by the API server's authorizer."""
    asks = json.dumps(review(Account(namespace, account)))
    return cluster.do("create", "--output=jsonpath={.status.allowed}", "--filename=-", stdin=asks) == "true"


def test_a_denial_names_the_command_by_which_an_administrator_gives_the_right(cluster: Cluster) -> None:
    said = made(cluster, asking("trainer"))
    assert "unearned-trust:" in said
    found = re.search(r"kubectl create rolebinding \S+ \S+ --serviceaccount=vision:trainer --namespace=vision", said)
    assert found, said
    command = shlex.split(found[0])[1:]
    assert "not currently held" in refusal(cluster, OWNER, *command), "the owner of the namespace cannot give it"
    cluster.do(*command)
    assert eventually(lambda: made(cluster, asking("trainer")) == "")
    assert "unearned-trust:" in made(cluster, asking("trainer", "visitors")), "it is for one namespace"
    assert "unearned-trust:" in made(cluster, asking("robot")), "it is for one account"


def test_pods_of_a_deployment_are_trusted_by_the_account_that_they_run_as(cluster: Cluster) -> None:
    pods = template({"nvidia.com/gpu": 1}, TRUSTED, serviceAccountName="trainer")
    deployment = workload("Deployment", "trainers", "vision", pods)
    cluster.do("create", "--filename=-", stdin=json.dumps(deployment), user=OWNER)
    select = ("get", "pods", "--namespace=vision", "--selector=app=a", "--output=jsonpath={.items[*].spec.nodeName}")
    assert eventually(lambda: "t4-shared" in cluster.kubectl(*select).stdout)
    other = workload(
        "Deployment", "robots", "vision", template({"nvidia.com/gpu": 1}, TRUSTED, serviceAccountName="robot")
    )
    assert "unearned-trust:" in made(cluster, other)
    cluster.do("delete", "deployment", "trainers", "--namespace=vision")


def test_a_right_that_is_taken_away_is_gone_within_seconds(cluster: Cluster) -> None:
    give(cluster, "robot")
    assert eventually(lambda: made(cluster, asking("robot")) == "")
    take(cluster, "robot")
    start = time.monotonic()
    assert eventually(lambda: "unearned-trust:" in made(cluster, asking("robot")))
    print(f"\nseconds until the webhook denied: {time.monotonic() - start:.1f}")


def test_all_accounts_of_a_namespace_may_hold_it_and_everybody_may_not(cluster: Cluster) -> None:
    role = f"--clusterrole={rights.ROLE}"
    cluster.do("create", "clusterrolebinding", "everybody", role, "--group=system:authenticated")
    time.sleep(2.5)
    assert "unearned-trust:" in made(cluster, asking("painter")), "it is no group of an account, as in CEL"
    cluster.do("delete", "clusterrolebinding", "everybody")
    cluster.do("create", "rolebinding", "all", role, "--group=system:serviceaccounts:visitors", "--namespace=visitors")
    assert eventually(lambda: made(cluster, asking("painter", "visitors")) == "")
    cluster.do("delete", "rolebinding", "all", "--namespace=visitors")


def test_a_webhook_that_may_not_ask_trusts_nobody_and_says_why(guard: Guard) -> None:
    cluster = guard.cluster
    role = cluster.get("clusterrole", NAME)
    without = {**role, "rules": [each for each in role["rules"] if each["apiGroups"] != ["authorization.k8s.io"]]}
    assert len(without["rules"]) == len(role["rules"]) - 1
    cluster.do("replace", "--filename=-", stdin=json.dumps(without))
    try:
        assert eventually(lambda: "is not known" in made(cluster, asking("painter")))
        assert "refused to be asked; try again" in made(cluster, asking("painter"))
        assert any(line.get("message") == "right not asked" for line in guard.logged())
    finally:
        without["metadata"] = {key: role["metadata"][key] for key in ("name", "labels") if key in role["metadata"]}
        cluster.do(
            "apply",
            "--server-side",
            "--force-conflicts",
            "--filename=-",
            stdin=json.dumps({**without, "rules": role["rules"]}),
        )


def test_facts_of_the_cluster_have_the_same_answer(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    policy, facts = cluster.folder / "by-rbac.yaml", cluster.folder / "facts.json"
    assert cli.main(["facts", "--live", "--kubeconfig", str(cluster.kubeconfig()), "--policy", str(policy)]) == 0
    written = capsys.readouterr().out
    facts.write_text(written, "utf-8")
    names = {(item["kind"], item["metadata"]["name"]) for item in json.loads(written)["items"]}
    assert ("ClusterRole", rights.ROLE) in names
    assert ("ClusterRole", "view") not in names
    for account, status in (("trainer", 0), ("robot", 1)):
        file = cluster.folder / f"{account}.json"
        file.write_text(json.dumps(asking(account)), "utf-8")
        assert cli.main(["check", str(file), "--policy", str(policy), "--facts", str(facts)]) == status
        assert ("unearned-trust" in capsys.readouterr().out) == bool(status)


def test_the_fallback_alone_has_the_same_answer_and_at_once(guard: Guard) -> None:
    cluster = guard.cluster
    guard.unregister()
    guard.stop()
    file = cluster.folder / "by-rbac.yaml"
    documents, problems = read(file.read_text("utf-8"), file.name)
    assert problems == []
    policy = load(documents, [rule.id for rule in rules.walk()], file.name)
    assert cluster.apply(*fallback(policy, rules.walk())).returncode == 0

    def by_fallback(account: str, namespace: str = "vision") -> str:
        """Why the fallback refuses a pod that asks only for trust and for no GPU, so that nothing need be written."""
        return made(cluster, pod("train", namespace, {}, TRUSTED, serviceAccountName=account))

    assert eventually(lambda: "ValidatingAdmissionPolicy 'slicewarden-pods'" in by_fallback("robot"))
    said = by_fallback("robot")
    assert "unearned-trust: service account robot of namespace vision" in said
    assert "or for the right: kubectl create rolebinding" in said
    assert [by_fallback("trainer"), by_fallback("trainer", "visitors") != ""] == ["", True]
    # At once: as soon as the API server's own authorizer says so.
    give(cluster, "robot")
    assert eventually(lambda: holds(cluster, "robot"))
    assert by_fallback("robot") == ""
    take(cluster, "robot")
    assert eventually(lambda: not holds(cluster, "robot"))
    assert by_fallback("robot") != ""
