"""What kustomize reads as a kustomization, and makes of it, is read and made alike, or noted: it is asked itself."""

import json
import os
import subprocess
from base64 import b64encode
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from tests.oracles.kustomizations import Kustomizations, pruned
from tests.oracles.patched import Patched
from tests.oracles.programs import Oracle
from tests.support.records import SAME
from webhook.documents.documents import Document
from webhook.documents.goyaml_writer import as_json
from webhook.kustomize import following
from webhook.model import Object
from webhook.repository import kustomizations
from webhook.repository.tree import Tree

FILES = int(os.environ.get("EXAMPLES", "4000"))
FOLLOWED = int(os.environ.get("EXAMPLES", "100"))


def test_a_kustomization_is_read_as_kustomize_reads_it_or_an_error(kustomize: Oracle) -> None:
    seed = "first" if SAME else os.urandom(4).hex()
    made, outcomes = Kustomizations(Random(seed)), Counter[tuple[bool, bool]]()  # noqa: S311 - no secret
    batch = [made.one() for _ in range(FILES)]
    ours = [_read(data) for data in batch]
    handed = [b"" if value is None else as_json(value) for value in ours]
    as_written, as_handed = _asked(kustomize, batch), _asked(kustomize, handed)
    for data, own, theirs, again in zip(batch, ours, as_written, as_handed, strict=True):
        outcomes[own is not None, theirs is not None] += 1
        if own is not None:
            assert again == theirs, (seed, data)
            assert theirs is None or pruned(own) == pruned(theirs), (seed, data)
    # Files that both read, and that only one reads, or none: the first and the last are not rare, and the second is.
    assert outcomes[True, True] > FILES // 5
    assert outcomes[False, False] > FILES // 20
    assert outcomes[False, True] < FILES // 5


def test_what_is_followed_without_a_note_is_what_kustomize_makes(
    with_kubectl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = "first" if SAME else os.urandom(4).hex()
    made, outcomes = Patched(Random(seed)), Counter[str]()  # noqa: S311 - no secret
    monkeypatch.chdir(tmp_path)
    for number in range(FOLLOWED):
        objects, kustomization = made.one()
        Path("objects.yaml").write_text("\n---\n".join(map(json.dumps, objects)))
        Path("kustomization.yaml").write_text(json.dumps(kustomization))
        Path("data").write_bytes(made.data())
        found = following.follow(Tree(str(tmp_path)), ".")
        if found.unseen or found.unfollowed:
            outcomes["noted"] += 1
            continue
        command: list[str | Path] = [with_kubectl / "kubectl", "kustomize", "."]
        theirs = subprocess.run(command, capture_output=True, env={"HOME": str(tmp_path)}, check=False)
        if theirs.returncode:
            outcomes["refused"] += 1
            continue
        outcomes["alike"] += 1
        expected = sorted(map(_plain, yaml.safe_load_all(theirs.stdout)))
        assert sorted(_plain(each.value) for each in found.objects) == expected, (seed, number, kustomization)
    assert outcomes["alike"] > FOLLOWED // 3
    assert outcomes["noted"] > FOLLOWED // 20


def _plain(value: Any) -> str:
    """Return an object as a text, without the maps and lists that are empty."""

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: part for key, each in value.items() if (part := filled(each)) not in ({}, [], None)}
        return [filled(each) for each in value] if isinstance(value, list) else value

    return json.dumps(filled(value), sort_keys=True)


def _read(data: bytes) -> Object | None:
    """Return what `check` reads as a kustomization, and hands to kustomize; None for an error."""
    found = kustomizations.first(data, "kustomization.yaml")
    return found.value if isinstance(found, Document) and isinstance(found.value, dict) else None


def _asked(oracle: Oracle, files: list[bytes]) -> list[object]:
    """Return the kustomizations in some files; None for one that kustomize refuses."""
    return [each["kustomization"] for each in oracle.ask([b64encode(data).decode() for data in files])]
