"""Reads the inputs of commands: the policy, and facts from files."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os.path import realpath, relpath
from pathlib import Path
from typing import Any, NamedTuple

from webhook import rules
from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, string
from webhook.cli import outputs
from webhook.documents import files
from webhook.documents.documents import Document
from webhook.engine.engine import Engine
from webhook.facts import images, kinds
from webhook.facts.kind import Reach
from webhook.facts.snapshot import Facts
from webhook.facts.sources import Source
from webhook.gpu import guard
from webhook.memory import frameworks
from webhook.model import Object, Problem, Unusable
from webhook.policy import load
from webhook.policy.model import Policy
from webhook.policy.schemas import KIND
from webhook.rendering.model import Options
from webhook.telemetry import progress
from webhook.text.words import shown


def load_policy(path: str | None) -> Policy:
    """Read the policy from a file or folder, or from REV:PATH of a Git repository.

    Without `path` it reads ./policies, or else the sample in the package. A folder whose kustomization makes a policy
    is built. Otherwise only its own files are read; folders below it hold tests, or other policies. Raises Unusable.
    """
    return load_policy_with_document(path)[0]


def engine(path: str | None) -> Engine:
    """Read the policy as `load_policy` does, and return an engine for it with every rule."""
    return Engine(load_policy(path), rules.walk())


_BESIDE = "policies"
_SAMPLE = Path(__file__).parents[1] / "sample" / "policy.yaml"


def by_sample(path: str | None, option: str = "--policy") -> str:
    """Return a note if the sample policy is used, else an empty text. `option` is the option that names a policy."""
    if path is None and not Path(_BESIDE).is_dir():
        return f"no {_BESIDE}/ here: judged by the sample policy; {option} names yours"
    return ""


def note_sample(path: str | None, option: str = "--policy") -> None:
    """Write a note to standard error that the sample policy is used."""
    if note := by_sample(path, option):
        outputs.say([f"note: {note}"])


def load_sample() -> Policy:
    """Read the sample policy of the package, even if a folder ./policies exists."""
    return load_policy(str(_SAMPLE))


def load_policy_with_document(path: str | None) -> tuple[Policy, Document]:
    """Read the policy as `load_policy` does, and return its document too."""
    if path is None:
        path = str(_SAMPLE) if by_sample(path) else _BESIDE
    if ":" in path and not Path(path).exists():
        from webhook.documents import git  # importing what runs a program takes longer than all else here

        inside = git.names(path)
        if not {*files.KUSTOMIZATIONS}.isdisjoint(inside or ()):
            with git.written(path, files.KUSTOMIZATIONS) as (root, folder):
                if built := _built(folder, root=root, revision=path.partition(":")[0]):
                    return _loaded(built, path)
        return _loaded(git.load(path, inside), path)
    if any(Path(path, name).is_file() for name in files.KUSTOMIZATIONS) and (built := _built(_without_links(path))):
        return _loaded(built, path)
    documents, problems = files.load(_own_files(path))
    if problems:
        raise Unusable(tuple(problems))
    return _loaded(documents, path)


def _loaded(documents: Iterable[Document], path: str) -> tuple[Policy, Document]:
    return load.load_with_document(documents, rules.releases(), path, frameworks=frameworks.names())


def _built(folder: str, **names: str) -> Sequence[Document]:
    """Return the objects that the kustomization of a folder makes; none if it makes no policy."""
    from webhook.rendering import folder as kustomization  # which runs a program

    return kustomization.documents(folder, KIND, **names)


def _without_links(path: str) -> str:
    """Return the real path of a folder: kustomize builds copies of files, among which there are no links."""
    return realpath(path) if Path(path).is_absolute() else relpath(realpath(path))


def _own_files(path: str) -> list[str]:
    folder = Path(path)
    if not folder.is_dir():
        return [path]
    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        raise Unusable((Problem(path, 0, error.strerror or str(error)),)) from error
    visible = (file for file in inside if not file.name.startswith("."))
    return [str(file) for file in visible if file.suffix.lower() in files.SUFFIXES and file.is_file()]


def policy_files(path: str | None) -> list[str]:
    """Return the files that a policy is read from, for `--watch`; none for one in Git, or for the sample."""
    path = path or _BESIDE
    return _own_files(path) if Path(path).exists() else []


def found(paths: Iterable[str]) -> list[str]:
    """Return the names of the files at some paths, for `--watch`."""
    return [name for name in files.find(paths) if isinstance(name, str)]


_NAMES = ", ".join(sorted(resource.kind for resource in kinds.usual(Reach.WITHIN, Reach.EVERYWHERE)))


@contextmanager
def rendering(
    known: Iterable[Object], *, fetch: bool = False, cached: bool = True, touched: bool = False
) -> Iterator[Options]:
    """Return how to render the sources of a run, for the Kubernetes version of the known nodes.

    A progress bar appears after a second.
    """
    with progress.bar(1) as tell:
        yield Options(fetch=fetch, cached=cached, version=_version(known), touched=touched, tell=tell)


def _version(known: Iterable[Object]) -> str:
    """Return the newest version of the nodes' kubelets, such as `v1.34.2`; empty if none says it."""
    versions = (
        string(mapping(mapping(value.get("status")).get("nodeInfo")).get("kubeletVersion"))
        for value in known
        if group_kind(value) == ("", "Node")
    )
    found = (match for version in versions if (match := re.match(r"v(\d+)\.(\d+)\.(\d+)", version)))
    newest = max(found, key=lambda match: tuple(map(int, match.groups())), default=None)
    return newest[0] if newest else ""


def load_objects(path: str, opens: Callable[[Object], bool] = files.is_list) -> list[files.Item]:
    """Read the objects of a file or folder, with the items of objects that `opens`.

    Raises Unusable if any cannot be read.
    """
    documents, unreadable = files.load([path])
    items, unusable = files.items(documents, opens)
    if unreadable or unusable:
        raise Unusable((*unreadable, *unusable))
    return items


def load_known(path: str) -> list[files.Item]:
    """Read the objects of a dump of a cluster, as `load_objects` does.

    The items of an object that a tenant may have written are none of the cluster's objects.
    """
    return load_objects(path, files.is_list_of_cluster)


def load_facts(paths: Iterable[str]) -> list[files.Item]:
    """Read the objects of facts, in the order of the paths. A later object replaces one of the same name.

    Raises Unusable, also for a path without such objects.
    """
    return [item for item in _with_facts(paths) if _is_fact(item)]


def _with_facts(paths: Iterable[str]) -> list[files.Item]:
    """Read all objects of some paths. Raises Unusable, also for a path without facts."""
    read = list[files.Item]()
    for path in paths:
        items = load_known(path)
        if not any(map(_is_fact, items)):
            raise Unusable((Problem(path, 0, f"no facts in it: none of {_NAMES}"),))
        read += items
    return read


def _is_fact(item: files.Item) -> bool:
    return group_kind(item.value) in kinds.KINDS


def load_images(named: Iterable[str], namespace: str) -> Object:
    """Read the output of registry tools about images, and return a list of images as a ConfigMap.

    Each path is a file, or REFERENCE=FILE (see `facts.images`). Raises Unusable.
    """
    known = list[tuple[str, images.ImageVariables]]()
    for one in named:
        before, equals, after = one.partition("=")
        reference, path = (before, after) if equals and not Path(one).exists() else ("", one)
        if equals and not images.reference(reference) and not Path(one).exists():
            raise Unusable((Problem(one, 0, f"{shown(reference)} is not an image reference"),))
        documents, problems = files.load([path])
        if problems or not documents:
            raise Unusable(tuple(problems) or (Problem(path, 0, "is empty"),))
        if reference and len(documents) > 1:
            raise Unusable((Problem(path, 0, "has several images: remove the reference, which can name only one"),))
        for document in documents:
            try:
                known += images.printed(document.value, reference)
            except images.Unclear as error:
                raise Unusable((Problem(path, document.first_line, str(error)),)) from error
    try:
        return images.config_map(known, namespace)
    except images.Unclear as error:
        raise Unusable((Problem("--images", 0, str(error)),)) from error


class Target(NamedTuple):
    """The cluster and the namespace that `--live` reads. A value of None is kubectl's own default."""

    kubeconfig: str | None
    context: str | None
    namespace: str | None


def known(
    paths: Sequence[str], target: Target | None, policies: Collection[Policy], *, whole: bool = False
) -> tuple[Iterable[Object], Sequence[Problem]]:
    """Read the objects of facts from files or a cluster. Returns the problems of unreadable kinds too.

    With `whole`, objects of all other kinds in the files are read too.
    """
    if target is None:
        return [item.value for item in (_with_facts if whole else load_facts)(paths)], ()
    from webhook.cluster import listing  # brings the client, which only a live cluster needs

    api = listing.connect(target.kubeconfig, target.context)
    return listing.facts(api, policies, target.namespace)


def note_missing(facts: Facts, *, live: bool = True) -> None:
    """Write a note about facts that are missing, because findings may depend on them.

    `live` is whether the command has the option `--live`.
    """
    known = {"nodes": facts.nodes, "namespaces": facts.namespaces}
    if missing := " and no ".join(name for name, values in known.items() if not values):
        way = "`slicewarden facts --live > cluster.json` writes them to a file for --facts"
        outputs.say([f"note: no {missing} are known: {way}{', --live asks the cluster' if live else ''}"])


def note_claimed(before: Facts, after: Facts, *, dumped: bool) -> None:
    """Write a note if nodes are known only from the files of a run, which anybody can write.

    `dumped` is whether standard input may have them.
    """
    if after.nodes and not (before.nodes or dumped):
        outputs.say(["note: nodes are known only from the files that are judged; --facts FILE names the cluster's own"])


def load_engine(policy_path: str | None, *facts: str) -> tuple[Engine, Facts]:
    """Read the policy and the facts that a worker of the webhook needs. `facts` are the paths of files."""
    return engine(policy_path), Facts.of(item.value for item in load_facts(facts))


def cautious(policy: Policy, source: Source, log: Callable[[Mapping[str, Any]], None]) -> Source:
    """Wrap a source of facts, so that a warning is logged once if nothing keeps ordinary pods off GPU nodes.

    The warning is written when the first facts arrive.
    """
    checked = False

    def facts() -> Facts | None:
        nonlocal checked
        current = source()
        if current is not None and not checked:
            checked = True
            if caution := guard.unguarded(policy, current):
                log({"message": "unguarded", "caution": caution})
        return current

    return facts
