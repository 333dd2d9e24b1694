"""The examples of the kinds of facts: an object of each resource that says something, in a file for each kind."""

from functools import cache

import yaml

from tests import ROOT
from tests.support.objects import Object
from webhook.api.fields import group_kind

EXAMPLES = ROOT / "tests" / "facts" / "kinds"


@cache
def examples(kind: str = "*") -> dict[tuple[str, str], Object]:
    """The examples of a kind of facts, or of all, by group and kind."""
    texts = (file.read_text("utf-8") for file in sorted(EXAMPLES.glob(f"{kind}.yaml")))
    return {group_kind(item): item for text in texts for item in yaml.safe_load_all(text)}
