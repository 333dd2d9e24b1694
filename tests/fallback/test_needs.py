"""The functions by which an API server is asked whether it can have a fallback."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from tests import ROOT
from tests.support.kubeconfigs import kubeconfig
from tests.support.listening import Asked, listening
from tests.support.policies import POLICY, policy_of
from webhook import rules
from webhook.cli import main as cli
from webhook.fallback.answers import ValidationActions
from webhook.fallback.needs import CALLS, calling
from webhook.fallback.params import Params
from webhook.fallback.policies import fallback

BEFORE = frozenset(
    re.findall(
        r"\w+",
        "all allowed asInteger authorizer check contains endsWith exists filter group has hasValue int isQuantity join"
        " lowerAscii map matches max none of ofNonZeroValue optMap orValue quantity replace resource serviceAccount"
        " sign size split startsWith string sum trim type upperAscii",
    )
)
"""Functions that expressions call and that Kubernetes 1.30 has: `make versions` runs policies on it that call them."""
POLICIES = (POLICY, *sorted((ROOT / "policies").glob("*/policy.yaml")))


def called(expression: str) -> set[str]:
    """The functions of an expression; one with two variables, such as `all(i, v,`, ends with a 2."""
    bare = re.sub(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", "''", expression)
    two = re.compile(r"\w+, \w+, ")
    return {
        each[1] + ("2" if each[1] in ("all", "exists") and two.match(bare, each.end()) else "")
        for each in re.finditer(r"\b([a-zA-Z]\w*)\(", bare)
    }


@pytest.mark.parametrize("file", POLICIES, ids=lambda file: str(file.relative_to(ROOT)))
def test_an_api_server_is_asked_for_every_function_that_the_oldest_one_lacks(file: Path) -> None:
    newer = set[str]()
    for params in (None, Params.of("fallback")):
        for made in fallback(policy_of(file), rules.walk(), ValidationActions.BY_RULE, params):
            spec = made.get("spec", {})
            parts = [*spec.get("variables", ()), *spec.get("validations", ()), *spec.get("matchConditions", ())]
            for each in parts:
                newer |= called(each["expression"]) | called(each.get("messageExpression", ""))
    assert newer - BEFORE == called(CALLS) - BEFORE


Refuses = Callable[[str, str], tuple[int, str]]
"""Answers the kind and the name of an object with an HTTP status and a message."""


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Callable[..., list[str]]]:
    """`slicewarden fallback --live` at an API server that answers so. Returns the paths of its dry runs."""
    with ExitStack() as stack:

        def run(refuses: Refuses, *more: str, status: int = 0) -> list[str]:
            tried: list[str] = []

            def answer(asked: Asked) -> None:
                path, _, query = asked.path.partition("?")
                code, message = 200, ""
                if path != "/version":
                    assert (asked.command, parse_qs(query)["dryRun"]) == ("PATCH", ["All"])
                    value = json.loads(asked.body)
                    assert path.endswith(f"/{value['metadata']['name']}")
                    tried.append(path)
                    code, message = refuses(value["kind"], value["metadata"]["name"])
                asked.give(code, json.dumps({"kind": "Status", "message": message}).encode())

            file = kubeconfig(tmp_path, stack.enter_context(listening(answer)))
            command = ["fallback", "--policy", str(POLICY), "--live", "--kubeconfig", str(file), *more]
            assert cli.main(command) == status
            return tried

        yield run


def test_an_api_server_that_accepts_all_of_it_gets_what_is_printed_without_being_asked(
    live: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    tried = live(lambda *_: (200, ""), "--params", "fallback", "--actions", "ByRule")
    said = capsys.readouterr().out
    assert cli.main(["fallback", "--policy", str(POLICY), "--params", "fallback", "--actions", "ByRule"]) == 0
    assert capsys.readouterr().out == said
    assert len(tried) == said.count("---\n") == 19
    assert tried[0] == "/api/v1/namespaces/slicewarden-system/configmaps/fallback"


def test_of_a_fallback_that_an_api_server_accepts_in_part_nothing_is_printed(
    live: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    def older(kind: str, name: str) -> tuple[int, str]:
        lacks = kind == "ValidatingAdmissionPolicy" and name in ("slicewarden-pods", "slicewarden-devices")
        return (
            (422, "ERROR: undeclared reference to 'flatten' | ^ undeclared reference to 'all'") if lacks else (200, "")
        )

    live(older, status=2)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        "error: fallback: the API server refuses 2 of 16 objects, so nothing is printed; it lacks CEL functions that"
        " Kubernetes 1.35 has: all, flatten\n"
    )


def test_an_api_server_that_mutates_nothing_or_knows_no_namespace_is_told_in_one_sentence(
    live: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    live(lambda kind, _: (404 if kind.startswith("Mutating") else 200, "no"), "--mutate", status=2)
    said = capsys.readouterr()
    assert (
        said.out,
        said.err.endswith("; MutatingAdmissionPolicy slicewarden-pods: it does not serve this kind\n"),
    ) == (
        "",
        True,
    )
    missing = 'namespaces "slicewarden-system" not found'
    live(lambda kind, _: (404 if kind == "ConfigMap" else 200, missing), "--params", "fallback", status=2)
    assert capsys.readouterr().err.endswith(f"; ConfigMap fallback: {missing}\n")


def test_what_is_applied_has_the_name_of_the_policy_and_no_version() -> None:
    asked = calling({"kind": "ValidatingAdmissionPolicy", "metadata": {"name": "a", "resourceVersion": "1"}})
    assert asked["metadata"] == {"name": "a"}
    assert asked["spec"] == {"validations": [{"expression": CALLS}]}
