"""`slicewarden registration --check`: a file or a cluster, against the policy."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubeconfigs import kubeconfig
from tests.support.listening import Asked, listening
from tests.support.objects import Object
from tests.support.policies import POLICY, policy_of
from webhook import rules
from webhook.cli import main as cli
from webhook.engine.registration import configurations
from webhook.fallback.policies import fallback

ROOT = "/apis/admissionregistration.k8s.io/v1/"


class Ended:
    """How a run ended."""

    def __init__(self, status: int, captured: Any) -> None:
        self.status, self.out, self.err = status, captured.out, captured.err


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Any:
    def check(*arguments: str | Path) -> Ended:
        return Ended(cli.main(["registration", "--policy", str(POLICY), *map(str, arguments)]), capsys.readouterr())

    return check


def test_a_registration_that_was_just_printed_is_current(check: Any, tmp_path: Path) -> None:
    file = tmp_path / "registration.yaml"
    file.write_text(check().out, "utf-8")
    done = check("--check", file)
    assert (done.status, done.err) == (0, "")
    assert done.out == f"{file}: the registration is current, made from policy {policy_of(POLICY).digest}\n"


def test_a_stale_registration_ends_with_1_and_names_the_command_that_writes_it(check: Any, tmp_path: Path) -> None:
    file = tmp_path / "registration.yaml"
    file.write_text(check().out.replace("slicewarden.dev/pool", "example.com/pool"), "utf-8")
    done = check("--check", file)
    assert done.status == 1
    assert 'lacks "slicewarden.dev/pool" and still has "example.com/pool"' in done.out
    assert done.err == f"the registration is stale; run: slicewarden registration --policy {POLICY} > {file}\n"


def test_a_file_without_a_registration_cannot_be_compared(check: Any, tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text("{apiVersion: v1, kind: Pod, metadata: {name: a}}", "utf-8")
    done = check("--check", file)
    assert (done.status, done.err) == (2, f"error: {file}: no webhook configuration named slicewarden in it\n")


@pytest.mark.parametrize(
    "arguments",
    [("--check",), ("--check", "--live", "a.yaml"), ("a.yaml",), ("--live",), ("--check", "a", "--half", "mutating")],
)
def test_options_that_exclude_each_other_are_refused(check: Any, arguments: tuple[str, ...]) -> None:
    assert check(*arguments).status == 2


@pytest.mark.parametrize(("missing", "status"), [(False, 0), (True, 1)])
def test_the_registration_of_a_cluster_is_compared(check: Any, tmp_path: Path, missing: bool, status: int) -> None:
    mutating, validating = configurations(policy_of(POLICY))
    known: dict[str, Object] = {
        f"{ROOT}mutatingwebhookconfigurations/slicewarden": mutating,
        f"{ROOT}validatingwebhookconfigurations/slicewarden": validating,
        "/version": {"major": "1"},
    }
    if missing:
        del known[f"{ROOT}validatingwebhookconfigurations/slicewarden"]

    def respond(asked: Asked) -> None:
        found = known.get(asked.path)
        asked.give(404 if found is None else 200, json.dumps(found or {"message": "not there"}).encode())

    with listening(respond) as url:
        done = check("--check", "--live", "--kubeconfig", kubeconfig(tmp_path, url))
    assert done.status == status, done.out + done.err
    assert ("ValidatingWebhookConfiguration: is not registered" in done.out) is missing


def test_a_registration_that_cannot_be_read_is_an_error_and_no_verdict(check: Any, tmp_path: Path) -> None:
    def respond(asked: Asked) -> None:
        status = 200 if asked.path == "/version" else 403
        asked.give(status, b'{"message": "is forbidden"}')

    with listening(respond) as url:
        done = check("--check", "--live", "--kubeconfig", kubeconfig(tmp_path, url))
    assert (done.status, done.out) == (2, "")
    assert "is forbidden" in done.err


def test_an_error_begins_with_the_name_of_an_argument_as_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["registration", "--live"]) == 2
    assert capsys.readouterr().err.startswith("error: FILE and --live need --check\n")


@pytest.mark.parametrize("stale", [False, True])
def test_a_fallback_beside_the_registration_is_compared_too(check: Any, tmp_path: Path, stale: bool) -> None:
    file = tmp_path / "both.yaml"
    made = [*configurations(policy_of(POLICY)), *fallback(policy_of(POLICY), rules.walk())]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
    file.write_text(text.replace("spec.nodeName bypasses", "spec.nodeName goes past") if stale else text, "utf-8")
    done = check("--check", file)
    first, second = done.out.splitlines()
    assert ": the registration is current" in first
    if stale:
        assert (done.status, second) == (1, f"{file}: slicewarden-pods: its validations differ")
        assert done.err == f"the fallback is stale; run: slicewarden fallback --policy {POLICY} > {file}\n"
    else:
        assert (done.status, done.err) == (0, "")
        assert ": the fallback is current, made from policy" in second
