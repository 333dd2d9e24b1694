"""`policy init`, `check` and `place` agree about each pod of a dump: it stays, or is refused, moved or left waiting."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.starting import DUMPS, made, objects, options, settled
from webhook import rules
from webhook.documents.files import alone
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Action
from webhook.placing.placing import placing
from webhook.policy.model import Policy
from webhook.scan.judge import judge
from webhook.scan.results import Judged, LeftAlone
from webhook.starter.starter import Starter

Object = dict[str, Any]


def given(key: str, value: str) -> Callable[[Object], None]:
    """Annotate a pod."""
    return lambda pod: pod["metadata"].setdefault("annotations", {}).update({key: value})


def unselective(pod: Object) -> None:
    for key in ("nodeSelector", "affinity"):
        pod["spec"].pop(key, None)


CHANGES: Mapping[str, Callable[[Object], Any]] = {
    "host-pid": lambda pod: pod["spec"].update(hostPID=True),
    "untrusted": given("slicewarden.dev/trust", "untrusted"),
    "trusted": given("slicewarden.dev/trust", "trusted"),
    "unselective": unselective,
    "intolerant": lambda pod: pod["spec"].pop("tolerations", None),
    "away": lambda pod: pod["metadata"].update(namespace="away"),
}
"""Changes that people make to a pod."""


def changed(pods: list[Object]) -> list[Object]:
    """Copies of pods with one change each."""
    copies = []
    for pod in pods:
        for name, change in CHANGES.items():
            copy = json.loads(json.dumps(pod))
            copy["metadata"]["name"] += f"-{name}"
            change(copy)
            copies.append(copy)
    return copies


def fate(*, refused: bool, waits: bool, pool: str | None, today: str | None, policy: Policy) -> str:
    """What happens to a pod with a GPU, in the words of `Fates`; empty if it stays where it is."""
    if refused or waits or pool is None or today in (None, pool):
        return "refused" if refused else "waiting" if waits else ""
    shared = {each.name: each.shared for each in policy.pools}
    return "moved" if shared[pool] and not shared[today] else "elsewhere"


def by_init(own: Starter) -> dict[str, str]:
    """The pods that `policy init` names, with what happens to them."""
    return {line.partition(":")[0]: kind for kind, lines in own.fates._asdict().items() for line in lines}


@pytest.mark.parametrize("file", DUMPS, ids=lambda file: file.stem)
@pytest.mark.parametrize("labelled", [False, True], ids=["as-found", "labelled"])
@pytest.mark.parametrize("more", [False, True], ids=["running", "changed"])
def test_init_check_and_place_agree_about_every_pod(file: Path, labelled: bool, more: bool) -> None:
    """Each pod is placed as if it were the only one, and no node were cordoned."""
    text = re.sub(r'[{]"key": "node.kubernetes.io/unschedulable"[^}]*[}]', "{}", json.dumps(objects(file)))
    items: list[Object] = json.loads(text)
    items += changed([item for item in items if item["kind"] == "Pod"]) if more else []
    own, items = settled(items, **options(file)) if labelled else (made(items, **options(file)), items)
    engine, facts, named = Engine(own.policy, rules.walk()), Facts.of(items), by_init(own)
    cluster = [item for item in items if item["kind"] != "Pod"]
    for pod in (item for item in items if item["kind"] == "Pod"):
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        home = own.policy.pool_of(facts.named[pod["spec"]["nodeName"]].labels)
        today = home.name if home else None
        checked = judge(alone(pod), engine, facts)
        spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
        (placed,) = placing([alone({**pod, "spec": spec, "status": {}})], cluster, engine).places
        if isinstance(checked, LeftAlone):
            assert (named.get(name), placed.player.refused) == (None, ()), name
            continue
        assert isinstance(checked, Judged)
        denied = bool(checked.verdict.having(Action.DENY))
        if not placed.player.gpus:
            assert denied == bool(placed.player.refused), name
            assert not denied or pod["metadata"]["name"] in own.text, name
            continue
        (landing,) = checked.landings
        assert {
            "init": named.get(name, ""),
            "check": fate(refused=denied, waits=landing.waits, pool=landing.pool, today=today, policy=own.policy),
            "place": fate(
                refused=bool(placed.player.refused),
                waits=not (placed.outcome and placed.outcome.node),
                pool=placed.pool.name if placed.pool else None,
                today=today,
                policy=own.policy,
            ),
        } == dict.fromkeys(("init", "check", "place"), named.get(name, "")), name
