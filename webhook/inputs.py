"""What the commands are given: the policy, and the facts that stand in files."""

from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from webhook import files, guard, outputs, policy_file, rules
from webhook.documents import Document
from webhook.engine import Engine
from webhook.facts import KINDS, Facts, Source, group_kind
from webhook.memory import frameworks
from webhook.model import Object, Problem, Unusable
from webhook.policy import Policy


def load_policy(path: str | None) -> Policy:
    """Read the policy from a file or folder, or from REV:PATH of a Git repository.

    From ./policies, or the sample in the package, when None is given. Of a folder its own files are read: what is below
    it are tests, or other policies. Raises Unusable.
    """
    return load_policy_with_document(path)[0]


_BESIDE = "policies"


def by_sample(path: str | None, option: str = "--policy") -> str:
    """One line where nobody's own policy is read, of which `option` says how it is named; else empty."""
    if path is None and not Path(_BESIDE).is_dir():
        return f"no {_BESIDE}/ here: judged by the sample policy; {option} names yours"
    return ""


def tell_of_sample(path: str | None, option: str = "--policy") -> None:
    """Say on standard error where nobody's own policy is read."""
    if said := by_sample(path, option):
        outputs.say([f"note: {said}"])


def load_policy_with_document(path: str | None) -> tuple[Policy, Document]:
    """Read the policy as `load_policy` does, and say where it stands."""
    if path is None:
        path = str(Path(__file__).parent / "sample" / "policy.yaml") if by_sample(path) else _BESIDE
    if ":" in path and not Path(path).exists():
        from webhook import revisions  # to run a program takes more to import than all else here

        documents, problems = revisions.load(path), list[Problem]()
    else:
        documents, problems = files.load(_own_files(path))
    if problems:
        raise Unusable(tuple(problems))
    ids = [rule.id for rule in rules.walk()]
    return policy_file.load_with_document(documents, ids, path, frameworks=frameworks.names())


def _own_files(path: str) -> list[str]:
    folder = Path(path)
    if not folder.is_dir():
        return [path]
    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        raise Unusable((Problem(path, 0, error.strerror or str(error)),)) from error
    shown = (each for each in inside if not each.name.startswith("."))
    return [str(each) for each in shown if each.suffix.lower() in files.SUFFIXES and each.is_file()]


_NAMES = ", ".join(sorted(kind for _, kind in KINDS))


def load_objects(path: str) -> list[files.Item]:
    """Read the objects of a file or folder. Raises Unusable where any cannot be read."""
    documents, unreadable = files.load([path])
    items, unusable = files.items(documents)
    if unreadable or unusable:
        raise Unusable((*unreadable, *unusable))
    return items


def load_facts(paths: Iterable[str]) -> list[files.Item]:
    """Read the objects that facts are made of from files and folders. Raises Unusable, also where one has none.

    They come in the order of the paths, by which a later object replaces an earlier one of its name.
    """
    known = list[files.Item]()
    for path in paths:
        found = [item for item in load_objects(path) if group_kind(item.value) in KINDS]
        if not found:
            raise Unusable((Problem(path, 0, f"no facts in it: none of {_NAMES}"),))
        known += found
    return known


def known(chosen: Namespace, policies: Collection[Policy]) -> tuple[Iterable[Object], Sequence[Problem]]:
    """What is known besides the objects of a run, by `--facts` or `--live`, and what of a cluster may not be read."""
    if chosen.facts:
        return [item.value for item in load_facts(chosen.facts)], ()
    if not chosen.live:
        return (), ()
    from webhook import snapshot  # brings the client, which only a live cluster needs

    api = snapshot.connect(chosen.kubeconfig, chosen.context)
    return snapshot.facts(api, policies, chosen.namespace)


def tell_of_unknown(chosen: Namespace, facts: Facts) -> None:
    """Say which facts nobody has given, for want of which a finding may blame the cluster."""
    known = {"nodes": facts.nodes, "namespaces": facts.namespaces}
    missing = " and no ".join(each for each, found in known.items() if not found)
    if missing and not (chosen.facts or chosen.live):
        wanted = "namespaces,nodes,configmaps,daemonsets,pods"
        way = f"--facts takes what `kubectl get -A {wanted} -o yaml` prints, --live asks the cluster"
        outputs.say([f"note: no {missing} are known: {way}"])


def load_engine(policy_path: str | None, *facts: str) -> tuple[Engine, Facts]:
    """Read all that a worker of the webhook needs; `facts` are paths."""
    engine = Engine(load_policy(policy_path), rules.walk())
    return engine, Facts.of(item.value for item in load_facts(facts))


def cautious(policy: Policy, source: Source, log: Callable[[Mapping[str, Any]], None]) -> Source:
    """A source that, with the first facts it has, logs where nothing keeps plain pods from GPUs."""
    told = False

    def facts() -> Facts | None:
        nonlocal told
        found = source()
        if found is not None and not told:
            told = True
            if caution := guard.unguarded(policy, found):
                log({"message": "unguarded", "caution": caution})
        return found

    return facts
