"""Texts for the readers of YAML and JSON: files of any kind, device-plugin configurations, policies.

They may say what is wrong with a text, in their own words and with its line; nothing else may come of any.
"""

import json
import math
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import Any

import orjson

from tests.fuzz import changes, corpus
from tests.fuzz.fault import Fault
from webhook import rules
from webhook.api import admission
from webhook.deviceplugin import config
from webhook.documents import files, goyaml, goyaml_composer, goyaml_writer, marks
from webhook.documents.documents import Document, read
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Problem, Unusable
from webhook.policy import load

MAX_WRITTEN = 64 * 1024
"""Bytes of JSON that are written as YAML to be tried: the writer is no target, and slow."""

MAX_TEXT = 200_000
"""Characters of a case; what grows faster than a text is seen in far less."""


class Texts:
    """Share what the targets of this page need: texts are cases in UTF-8, of which some are trees."""

    def __init__(self, texts: Callable[[], Sequence[str]]) -> None:
        self._texts = texts

    @cached_property
    def _good(self) -> tuple[changes.Words, Sequence[bytes]]:
        """Read the texts that a hunt begins from. It takes seconds, and to try a case again needs none of them."""
        texts = self._texts()
        trees = [tree for tree in map(corpus.tree, texts) if isinstance(tree, (dict, list))]
        return changes.Words(trees), [
            *(text.encode("utf-8", "surrogatepass") for text in texts),
            *(json.dumps(tree).encode("ascii") for tree in trees),
        ]

    @cached_property
    def seeds(self) -> Sequence[bytes]:
        """Texts and trees that are as they should be."""
        return self._good[1]

    def change(self, random: Random, case: bytes, other: bytes) -> bytes:
        """Make another text of one; of a tree, as long as it is one."""
        kind = random.random()
        if kind < 0.6:
            try:
                tree = orjson.loads(case)
            except orjson.JSONDecodeError:
                pass
            else:
                if isinstance(tree, (dict, list)):
                    case = changes.tree(random, tree, self._good[0])[:MAX_TEXT]
                    return _as_yaml(case) if kind < 0.2 and len(case) < MAX_WRITTEN else case
        if kind < 0.9:
            text = case.decode("utf-8", "surrogateescape")
            for _ in range(random.choice((1, 1, 2, 4))):
                text = changes.text(random, text)[:MAX_TEXT]
            return text.encode("utf-8", "replace" if kind < 0.7 else "surrogatepass")
        return changes.encoded(random, case, other)[:MAX_TEXT]

    def close(self) -> None:
        """Nothing holds of all texts together."""


def _as_yaml(case: bytes) -> bytes:
    try:
        return goyaml_writer.write(orjson.loads(case)).encode("utf-8")
    except (orjson.JSONDecodeError, RecursionError):
        return case


class Files(Texts):
    """Files as people have them: read, opened, and judged as `check` does it."""

    name = "files"

    def __init__(self, engine: Engine, facts: Facts) -> None:
        self.engine = engine
        self.facts = facts
        super().__init__(_objects)

    def judge(self, case: bytes, *, again: bool) -> Hashable:
        """Read a file. Returns what kind of outcome it was; raises Fault."""
        try:
            text = case.decode("utf-8")  # what is not, `files` refuses
        except UnicodeDecodeError:
            return "not UTF-8"
        found, problems = read(text, "file.yaml")
        _check_problems(problems, text)
        _check_json(text, found)
        if again:
            _check_again(found, problems, text)
        items, bad = files.items(found)
        _check_problems(bad, text)
        outcomes = []
        for item in items[:5]:
            for path in ((), ("metadata",), ("spec", "containers", 0, "resources"), (0, "x")):
                if not 1 <= item.line(path) <= _lines(text):
                    raise Fault(f"a place is in line {item.line(path)}")
            outcomes.append(self._judged(item))
        Facts.of(item.value for item in items)
        return tuple(_kind(problem.message) for problem in (*problems, *bad)), tuple(outcomes)

    def _judged(self, item: files.Item) -> Hashable:
        try:
            request = admission.decode(admission.wrap(item.value))
        except admission.NotAReview as error:
            return _kind(str(error))
        verdict = self.engine.judge(request, self.facts)
        again = self.engine.judge(request, Facts.of([item.value]))
        malformed = verdict.malformed
        if malformed is not None and not _is_plain(str(malformed)):
            raise Fault("says what cannot be printed")
        return frozenset(result.rule for result in verdict.results), again.allowed, malformed is None


def _objects() -> list[str]:
    several = "---\n".join(goyaml_writer.write(item) for item in corpus.objects()[:3])
    return [*map(goyaml_writer.write, corpus.objects()), *corpus.configurations()[::20], several]


class Configurations(Texts):
    """Texts in ConfigMaps, as strangers write them, for the device plugin."""

    name = "configurations"

    def __init__(self) -> None:
        super().__init__(corpus.configurations)

    def judge(self, case: bytes, *, again: bool) -> Hashable:
        """Read a configuration. Returns what kind of outcome it was; raises Fault."""
        text = case.decode("utf-8", "surrogateescape")
        try:
            value, mark = goyaml.parse(text, last_key_wins=True)
        except marks.Unreadable as error:
            if not 1 <= error.line <= _lines(text) + 1:
                raise Fault(f"something is wrong in line {error.line}") from error
            if not _is_plain(str(error)):
                raise Fault("says what cannot be printed") from error
            return _kind(str(error))
        size = _check_value(value)
        if size > goyaml_composer.MAX_VALUES or mark.size > goyaml_composer.MAX_VALUES:
            raise Fault("expands to more values than are read")
        held, refused = config.decode(value)
        if again:
            if config.decode(value) != (held, refused):
                raise Fault("is held in two ways")
            if isinstance(value, (dict, list)) and goyaml.parse(goyaml_writer.write(value))[0] != value:
                raise Fault("what is written is read as something else")
        for place, message in refused:
            mark.at(place)
            if not message or not _is_plain(message):
                raise Fault("refuses with what cannot be printed")
        return held.strategy, frozenset(_kind(message) for _, message in refused)


class Policies(Texts):
    """Policy files: one that is taken must be one with which every review can be judged."""

    name = "policies"

    def __init__(self, facts: Facts) -> None:
        super().__init__(corpus.policies)
        self.facts = facts
        self.rules = rules.walk()
        self.ids = [rule.id for rule in self.rules]
        requests = [admission.decode(orjson.dumps(each)) for each in corpus.recorded()]
        self.requests = [each for each in requests if each.operation in ("CREATE", "UPDATE")]

    def judge(self, case: bytes, *, again: bool) -> Hashable:
        """Load a policy. Returns what kind of outcome it was; raises Fault."""
        text = case.decode("utf-8", "replace")
        found, problems = read(text, "policy.yaml")
        _check_problems(problems, text)
        try:
            policy = load.load(found, self.ids, "policy.yaml")
        except Unusable as error:
            if not error.problems:
                raise Fault("is unusable for no reason") from error
            _check_problems(error.problems, text)
            return frozenset(_kind(problem.message) for problem in error.problems)
        engine = Engine(policy, self.rules)
        outcomes = []
        for request in self.requests if again else self.requests[:: len(self.requests) // 3]:
            verdict = engine.judge(request, self.facts)
            engine.mutate(replace(request, old_object=None), self.facts)
            outcomes.append(verdict.allowed)
        return tuple(outcomes)


def _check_problems(problems: Sequence[Problem], text: str) -> None:
    lines = _lines(text)
    for problem in problems:
        if not 0 <= problem.line <= lines + 1:  # where a text breaks off is the line after its last
            raise Fault(f"a problem is in line {problem.line} of {lines}")
        if not problem.message or not _is_plain(problem.message):
            raise Fault("says what cannot be printed")


def _check_again(found: Sequence[Document], problems: Sequence[Problem], text: str) -> None:
    twice, worse = read(text, "file.yaml")
    if [each.value for each in twice] != [each.value for each in found] or list(worse) != list(problems):
        raise Fault("is read in two ways")


def _check_json(text: str, found: Sequence[Document]) -> None:
    """Have what is JSON be read as JSON: as the standard library reads it, where that is not too lenient."""
    for document in found:
        _check_value(document.value)
    if text[:1] in ("{", "["):
        try:
            value = json.loads(text, parse_constant=_no_number, parse_float=_finite)
        except (ValueError, RecursionError):
            return
        if len(found) == 1 and found[0].value != value:
            raise Fault("JSON is read as something else")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(text)
    return number


def _no_number(name: str) -> Any:
    raise ValueError(name)


def _lines(text: str) -> int:
    """How many lines a text has for YAML, which breaks them at more than \\n; the end is one."""
    return len(re.split("\r\n|[\n\r\x85\u2028\u2029]", text))


def _check_value(value: Any) -> int:
    """Count the values of a tree, all of which JSON has to have a place for."""
    size = 0
    for each in _values(value):
        size += 1
        if isinstance(each, float) and not math.isfinite(each):
            raise Fault("reads a number that JSON does not have")
        if not (each is None or isinstance(each, (str, int, float, bool, dict, list))):
            raise Fault(f"reads a {type(each).__name__}")
    return size


def _values(value: Any) -> Iterator[Any]:
    left = [value]
    while left:
        each = left.pop()
        yield each
        if isinstance(each, dict):
            if not all(isinstance(key, str) for key in each):
                raise Fault("reads a key that is no text")
            left += each.values()
        elif isinstance(each, list):
            left += each


def _is_plain(text: str) -> bool:
    return text.isprintable() and len(text) < 5000


def _kind(message: str) -> str:
    """A message without what it quotes."""
    return "".join(each for each in message.split('"')[0] if not each.isdigit())[:60]
