"""Asks the API server's own code about requests, and compares the fallback with the engine."""

import json
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from tests.oracles.programs import Program
from tests.support.conditions import request_of
from tests.support.go_programs import built
from tests.support.later import may_see
from webhook import rules
from webhook.api import admission, jsonpatch
from webhook.engine.engine import Engine
from webhook.facts.rights import Account, GrantedRight
from webhook.facts.snapshot import Facts
from webhook.fallback.answers import ValidationActions
from webhook.fallback.params import Params
from webhook.fallback.policies import fallback
from webhook.model import Action, Request
from webhook.model import Verdict as Judged
from webhook.policy.model import Policy

Object = dict[str, Any]

HERE = Path(__file__).resolve().parent
WITHOUT_GO = "the evaluator needs Go 1.26 (https://go.dev/dl)"


class Verdict(NamedTuple):
    """The fallback's answer to a request: the policies that were asked, and those that denied it, by their messages."""

    asked: list[str]
    denied: list[str]
    errors: list[str]
    cost: int
    condition: int
    refused: str = ""

    @property
    def denies(self) -> bool:
        """Whether the request is refused. An error refuses it too: the policies fail closed."""
        return bool(self.denied or self.errors)

    @property
    def rules(self) -> set[str]:
        """The rules that deny it."""
        return {message.partition(":")[0] for message in self.denied}


class Spent(NamedTuple):
    """What the policies take of one request: nanoseconds of CPU, and allocations, which load changes less."""

    nanoseconds: int
    allocations: int


class Changed(NamedTuple):
    """An object as policies leave it, by their names, with what failed."""

    object: Object
    errors: list[str]
    patched: list[str]
    cost: int


class Evaluator:
    """The running program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._sets: dict[str, str] = {}

    def compiled(self, policies: Iterable[Object]) -> str:
        """Have policies compiled, and return the name of the set. Fails with what does not compile."""
        some = [each for each in policies if each["kind"] == "ValidatingAdmissionPolicy"]
        key = json.dumps(some, sort_keys=True)
        if key not in self._sets:
            name = f"set-{len(self._sets)}"
            failed = self._program.ask({"by": name, "policies": some})
            assert failed == [], failed[0]
            self._sets[key] = name
        return self._sets[key]

    def refusal(self, request: Object) -> str:
        """Return why the API server refuses a request by itself; empty if it does not."""
        return str(self._program.ask({"request": request}).get("refused", ""))

    def settled(self, request: Object) -> Object | None:
        """Return the request with its objects as the API server has them; None if it refuses them by itself."""
        answer = self._program.ask({"request": request})
        if answer.get("refused"):
            return None
        return {**request, **{key: answer.get(key) for key in ("object", "oldObject")}}

    def judge(self, by: str, request: Object, facts: Facts, params: Object | None = None) -> Verdict:
        """Judge a request, in a namespace and rights that the facts know, by policies that may read a ConfigMap."""
        asked = {"by": by, "request": request, **_known(facts, request)}
        return Verdict(**self._program.ask({**asked, "params": params} if params else asked))

    def spent(self, by: str, request: Object, facts: Facts, times: int) -> Spent:
        """Judge a request several times, as the API server does, and return the mean of what one took."""
        return Spent(**self._program.ask({"by": by, "request": request, "repeat": times, **_known(facts, request)}))

    def changing(self, policies: Iterable[Object]) -> str:
        """Have MutatingAdmissionPolicies compiled, and return the name of the set. Fails with what does not compile."""
        some = [each for each in policies if each["kind"] == "MutatingAdmissionPolicy"]
        key = json.dumps(some, sort_keys=True)
        if key not in self._sets:
            name = f"set-{len(self._sets)}"
            assert self._program.ask({"by": name, "mutations": some}) == []
            self._sets[key] = name
        return self._sets[key]

    def changed(self, by: str, request: Object, facts: Facts) -> Changed:
        """Return what a set of policies makes of a request's object, in a namespace and with rights of the facts."""
        asked = {"by": by, "request": request, "mutate": True, **_known(facts, request)}
        return Changed(**self._program.ask(asked))

    def held(self, objects: Iterable[Object], accounts: Iterable[Account]) -> list[bool]:
        """Ask Kubernetes' own authorizer which accounts hold the right of trust by some roles and bindings."""
        answer: list[bool] = self._program.ask({"accounts": [*accounts], "rights": _by_kind(objects)})
        return answer


def _known(facts: Facts, request: Object) -> Object:
    """Return what the API server knows of a request's namespace, and of rights."""
    objects = facts.rights.objects if isinstance(facts.rights, GrantedRight) else []
    return {"namespace": facts.namespaces.get(request["namespace"] or "") or {}, "rights": _by_kind(objects)}


def _by_kind(objects: Iterable[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for item in objects:
        found.setdefault(item["kind"], []).append(item)
    return found


@contextmanager
def running() -> Iterator[Evaluator]:
    """Start the program. Raises Missing."""
    folder = built(HERE, {"evaluator": "."}, without_go=WITHOUT_GO)
    with subprocess.Popen([folder / "evaluator"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield Evaluator(Program(process.stdin, process.stdout))
        process.stdin.close()


@dataclass
class Compared:
    """The outcome of requests: `wrong` are those that the engine allows and the fallback denies, which may not be.

    `differing` are those in which the fallback finds other things where it reads a ConfigMap, or answers by rule.
    They may not be either.

    `missed` has for each rule those that the engine denies by it and the fallback does not.
    """

    judged: int = 0
    allowed: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    not_sent: int = 0
    wrong: list[tuple[str, Verdict]] = field(default_factory=list)
    differing: list[tuple[str, Verdict, Verdict]] = field(default_factory=list)
    denied: dict[str, int] = field(default_factory=dict)
    missed: dict[str, list[str]] = field(default_factory=dict)
    through: list[str] = field(default_factory=list)
    costs: list[tuple[int, str]] = field(default_factory=list)


class Comparison:
    """Judges requests by the engine and by the fallback of one policy."""

    def __init__(self, evaluator: Evaluator, policy: Policy, facts: Facts) -> None:
        known = rules.walk()
        self._evaluator, self._facts = evaluator, facts
        self._engine, self._policy = Engine(policy, known), policy
        self._by = evaluator.compiled(fallback(policy, known))
        self._by_rule = evaluator.compiled(fallback(policy, known, ValidationActions.BY_RULE))
        self._params, *reading = fallback(policy, known, params=Params.of("fallback"))
        self._reading = evaluator.compiled(reading)

    def add(self, name: str, request: Object, into: Compared) -> None:
        """Judge one request, and write down what came of it."""
        settled = self._evaluator.settled(request)
        if settled is None:
            into.refused[name] = self._evaluator.refusal(request)
            return
        review = {"apiVersion": admission.API_VERSION, "kind": "AdmissionReview", "request": settled}
        decoded = admission.decode(json.dumps(review).encode())
        verdict = self._engine.judge(decoded, self._facts)
        if verdict.patch:
            settled = {**settled, "object": jsonpatch.apply(settled["object"], verdict.patch)}
        found = self._evaluator.judge(self._by, settled, self._facts)
        if found.refused:
            into.refused[name] = found.refused
            return
        by_params = self._evaluator.judge(self._reading, settled, self._facts, self._params)
        by_rule = self._evaluator.judge(self._by_rule, settled, self._facts)
        if (by_rule.rules, bool(by_rule.errors)) != (found.rules, bool(found.errors)):
            into.differing.append((name, found, by_rule))
        if (by_params.rules, by_params.errors) != (found.rules, found.errors):
            into.differing.append((name, found, by_params))
        into.judged += 1
        into.allowed += verdict.allowed
        into.costs.append((found.cost, name))
        excepted = self._seen_before(decoded, found) or _claim_known(verdict, found)
        if found.denies and verdict.allowed and not excepted:
            into.wrong.append((name, found))
        if not found.asked:
            into.not_sent += 1
            return
        if not verdict.allowed and not found.denies:
            into.through.append(name)
        for rule in sorted({result.rule for result in verdict.having(Action.DENY)}):
            into.denied[rule] = into.denied.get(rule, 0) + 1
            if rule not in found.rules:
                into.missed.setdefault(rule, []).append(name)

    def _seen_before(self, request: Request, found: Verdict) -> bool:
        """Tell whether an update is the one that a fallback denies and the engine allows (docs/fallback.md).

        By a node's taints, the engine took the old pod for one that may see a GPU, and found all of this in it. The
        fallback sees that only by the toleration that the update adds. A claim excuses nothing.
        """
        if request.operation != "UPDATE" or request.kind != "Pod" or found.errors:
            return False
        assert request.old_object is not None
        created = replace(request, operation="CREATE", subresource="", object=request.old_object, old_object=None)
        before = {result.rule for result in self._engine.validate(created, self._facts).having(Action.DENY)}
        plain: Object = json.loads(json.dumps(request.old_object))
        plain["spec"].pop("resourceClaims", None)
        by_nodes = may_see(plain, self._policy, self._facts) and not may_see(plain, self._policy, Facts())
        return by_nodes and found.rules <= before


def _claim_known(verdict: Judged, found: Verdict) -> bool:
    """Tell whether the fallback denies only a claim that the engine knows to be for no GPU (docs/fallback.md)."""
    rule = "unlisted-claim"
    return found.rules == {rule} and not found.errors and rule in {each.rule for each in verdict.having(Action.WARN)}


def whole(request: Object) -> Object:
    """Fill in what a fixture leaves out and the API server asks for, so that it is not refused for that alone."""
    request = deepcopy(request)
    for key in ("object", "oldObject"):
        item = request.get(key)
        if not isinstance(item, dict):
            continue
        metadata = item.setdefault("metadata", {})
        metadata.setdefault("name", request["name"] or "a")
        if request["namespace"]:
            metadata["namespace"] = request["namespace"]
        if request["operation"] == "UPDATE":
            metadata.setdefault("resourceVersion", "1")
            metadata.setdefault("uid", "u")
        if item.get("kind") == "Pod" and isinstance(item.get("spec"), dict):
            _complete(item["spec"])
    return request


def _complete(spec: Object) -> None:
    names: set[str] = set()
    volumes = spec.get("volumes") or []
    for part in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(part) or []:
            if not isinstance(container, dict):
                return
            container.setdefault("image", "i")
            base = container.get("name") or "c"
            name = next(each for each in (base, *(f"{base}-{n}" for n in range(1000))) if each not in names)
            names.add(name)
            container["name"] = name
            for mount in container.get("volumeMounts") or []:
                if all(volume.get("name") != mount.get("name", "v") for volume in volumes):
                    volumes = [*volumes, {"name": mount.get("name", "v"), "emptyDir": {}}]
                mount.setdefault("name", "v")
    if volumes:
        spec["volumes"] = volumes


def request_for(document: Object, **more: Any) -> Object:
    """The request that the API server makes of a document, by nobody in particular unless it names somebody."""
    request = request_of(document)
    request.setdefault("uid", "705ab4f5-6393-11e8-b7cc-42010a800002")
    return whole({**request, **more})
