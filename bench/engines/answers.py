"""Compares how the engines answer our fixtures. Each engine gets the requests that its registration asks for."""

import base64
import fnmatch
import http.client
import json
import ssl
import urllib.parse
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench import tables
from bench.engines.programs import OURS, Engine, Object, authority
from bench.generator import Wrong
from bench.runs import Figure, figure
from tests.support import conditions, fixtures
from webhook.api import jsonpatch
from webhook.model import Action

RULES = ("multiple-slices", "unsteered-pod", "visible-devices", "chosen-node")
"""Our rules that the other engines also have: one slice, steering, visible devices, node name."""
PLACES = ("nodeSelector", "affinity", "tolerations")
REASONS = Path(__file__).with_name("misses.yaml")


@dataclass(frozen=True, slots=True)
class Answer:
    """An engine's answer to a fixture of a rule.

    `right` is whether it matches the fixture's verb; if not, `why` is the reason.
    """

    engine: str
    rule: str
    fixture: str
    right: bool
    said: str
    reason: str = ""

    @property
    def verb(self) -> str:
        """The first word of the fixture's name: allow, deny, warn or patch."""
        return self.fixture.partition("-")[0]


def ask(engines: Sequence[Engine]) -> list[Answer]:
    """Send every fixture to every engine. Our engine has only the fixture's own rule, as the fixtures expect."""
    files = [file for rule in RULES for file in fixtures.files_of(rule)]
    others = [each for each in engines if each.name != OURS]
    return [*(_ours(file) for file in files), *(_answer(engine, file) for engine in others for file in files)]


def _ours(file: Path) -> Answer:
    verdict = fixtures.judged(file)
    did = "patch" if verdict.patch else "warn" if verdict.having(Action.WARN) else "allow"
    did = did if verdict.allowed else "deny"
    right = did == fixtures.verb(file)
    return Answer(OURS, file.parent.name, file.stem, right, did, "" if right else "not explained")


def _answer(engine: Engine, file: Path) -> Answer:
    rule, verb = file.parent.name, fixtures.verb(file)
    document = fixtures.fixture(file)[0].value
    request = conditions.request_of(json.loads(json.dumps(document)))
    patched, denials, warnings = _review(engine, request)
    own = [each for each in denials if f"{rule}: " in each]
    match verb:
        case "allow":
            right = not own and (rule != "unsteered-pod" or patched == request.get("object"))
        case "deny":
            right = bool(denials)
        case "warn":
            right = not own and bool(warnings)
        case _:
            ours = jsonpatch.apply(request["object"], fixtures.judged(file).patch)
            right = not own and [_at(patched, each) for each in PLACES] == [_at(ours, each) for each in PLACES]
    said = " / ".join(denials) or ("" if patched == request.get("object") else "patched")
    return Answer(engine.name, rule, file.stem, right, said, "" if right else _reason(engine.name, rule, file.stem))


def _at(pod: Any, key: str) -> Any:
    return pod["spec"].get(key)


def _review(engine: Engine, request: Object) -> tuple[Any, list[str], list[str]]:
    """Return the object after all mutating webhooks, the denials of validating ones, and the warnings."""
    denials: list[str] = []
    warnings: list[str] = []
    for hook in engine.hooks:
        anywhere = {"failurePolicy": "Fail", "matchConditions": [], **hook, "namespaceSelector": {}}
        if not conditions.receivers([anywhere], request):
            continue
        response = _post(hook, request)
        warnings += response.get("warnings", [])
        if not response["allowed"]:
            denials.append(response.get("status", {}).get("message", "denied"))
        elif patch := response.get("patch"):
            request = {**request, "object": jsonpatch.apply(request["object"], json.loads(base64.b64decode(patch)))}
    return request.get("object"), denials, warnings


def _post(hook: Object, request: Object) -> Object:
    url = urllib.parse.urlsplit(hook["clientConfig"]["url"])
    uid = str(uuid.uuid4())
    asked = {key: value for key, value in request.items() if value not in ("", None)} | {"uid": uid}
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked})
    trust = ssl.create_default_context(cadata=authority(hook))
    connection = http.client.HTTPSConnection(url.hostname or "", url.port, timeout=10, context=trust)
    try:
        connection.request("POST", url.path, body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        text = reply.read()
    finally:
        connection.close()
    if reply.status != http.HTTPStatus.OK:
        # An API server counts that as a failure, and applies the failure policy.
        return {"allowed": hook.get("failurePolicy") != "Fail", "status": {"message": text.decode(errors="replace")}}
    response: Object = json.loads(text)["response"]
    if response["uid"] != uid:
        raise Wrong(f"{hook['name']} answers another review")
    return response


def _reason(engine: str, rule: str, fixture: str) -> str:
    """Return the class of a wrong answer, from the first matching pattern."""
    for each in yaml.safe_load(REASONS.read_text("utf-8")):
        if each.get("engine", engine) == engine and any(
            fnmatch.fnmatch(f"{rule}/{fixture}", pattern) for pattern in each["fixtures"]
        ):
            return str(each["reason"])
    return "not explained"


def table(answers: Sequence[Answer]) -> str:
    """Write how many fixtures each engine answers as expected."""
    engines = list(dict.fromkeys(each.engine for each in answers))
    rows = []
    for rule in RULES:
        for verb in ("allow", "deny", "warn", "patch"):
            some = [each for each in answers if (each.rule, each.verb) == (rule, verb)]
            if not some:
                continue
            number = len({each.fixture for each in some})
            right = Counter(each.engine for each in some if each.right)
            rows.append((rule, verb, str(number), *(str(right[engine]) for engine in engines)))
    total = Counter(each.engine for each in answers if each.right)
    number = len({(each.rule, each.fixture) for each in answers})
    rows.append(("all", "", str(number), *(str(total[engine]) for engine in engines)))
    head = ("fixtures of", "that", "there are", *(f"{engine} does so" for engine in engines))
    title = "Fixtures that are answered as they say; they are ours, and `make test` holds us to them:"
    return f"{title}\n\n{tables.markdown(head, rows)}"


def figures(answers: Sequence[Answer]) -> Iterator[Figure]:
    """Yield the share of fixtures that each engine answers as expected, by rule."""
    for engine in dict.fromkeys(each.engine for each in answers):
        for rule in RULES:
            right = [each.right for each in answers if (each.engine, each.rule) == (engine, rule)]
            yield figure(f"{engine}: fixtures of {rule} answered right", "%", [100 * sum(right) / len(right)])


def misses(answers: Sequence[Answer]) -> str:
    """Write a table of the wrong answers, grouped by reason."""
    engines = list(dict.fromkeys(each.engine for each in answers))
    wrong = [each for each in answers if not each.right]
    reasons = Counter((each.rule, each.reason) for each in wrong)
    rows = [
        (
            rule,
            reason,
            *(
                str(sum((each.engine, each.rule, each.reason) == (engine, rule, reason) for each in wrong))
                for engine in engines
            ),
        )
        for rule, reason in sorted(reasons, key=lambda key: (RULES.index(key[0]), -reasons[key]))
    ]
    return f"Misses, and why:\n\n{tables.markdown(('fixtures of', 'why', *engines), rows)}"
