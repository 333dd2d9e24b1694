"""What kustomize reads as a kustomization is read alike, or an error: its own reader is asked."""

import os
from base64 import b64encode
from collections import Counter
from random import Random

from tests.oracles.kustomizations import Kustomizations, pruned
from tests.oracles.programs import Oracle
from tests.support.records import SAME
from webhook.documents.documents import Document
from webhook.documents.goyaml_writer import as_json
from webhook.model import Object
from webhook.repository import kustomizations

FILES = int(os.environ.get("EXAMPLES", "4000"))


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


def _read(data: bytes) -> Object | None:
    """Return what `check` reads as a kustomization, and hands to kustomize; None for an error."""
    found = kustomizations.first(data, "kustomization.yaml")
    return found.value if isinstance(found, Document) and isinstance(found.value, dict) else None


def _asked(oracle: Oracle, files: list[bytes]) -> list[object]:
    """Return the kustomizations in some files; None for one that kustomize refuses."""
    return [each["kustomization"] for each in oracle.ask([b64encode(data).decode() for data in files])]
