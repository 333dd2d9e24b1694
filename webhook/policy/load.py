"""Reads and checks GPUSharingPolicy files."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice

from webhook.api.fields import group_kind
from webhook.documents.documents import Document, Source
from webhook.documents.marks import Mark
from webhook.model import Object, Path, Problem, Unusable, dotted
from webhook.policy import fast_schema
from webhook.policy.consistency import inconsistencies
from webhook.policy.decode import decode
from webhook.policy.model import API_VERSION, Policy
from webhook.policy.schemas import GROUP, KIND, TEST, schema, schema_errors
from webhook.text.spelling import Guesses, hint
from webhook.text.words import shown


def load(documents: Iterable[Document], rules: Iterable[str], where: str, *, frameworks: Iterable[str] = ()) -> Policy:
    """Read the single policy among the documents. Other kinds are ignored, but a misspelt kind of ours is an error.

    Raises Unusable with every error, each with its file and line.
    """
    return load_with_document(documents, rules, where, frameworks=frameworks)[0]


EXPLAINED = 5_000
"""Maximum values of an object in which each error is looked for. The library for JSON Schema takes 36 µs for a value.

The longest policy of the tests has 1,300.
"""


def load_with_document(
    documents: Iterable[Document],
    rules: Iterable[str],
    where: str,
    *,
    frameworks: Iterable[str] = (),
    explained: int | None = None,
) -> tuple[Policy, Document]:
    """Read the one policy among the documents as `load` does, and return its document too.

    `rules` may map each rule to its first release. Without it, no rule is newer than the policy's `rulesAsOf`. The
    errors of a policy with more than `explained` values are not named.
    """
    releases = rules if isinstance(rules, Mapping) else {}
    documents = list(_opened(documents))
    if misspelt := misspellings(documents):
        raise Unusable(misspelt)
    policies = [d for d in documents if isinstance(d.value, dict) and group_kind(d.value) == KIND]
    if not policies:
        raise Unusable((Problem(where, 0, f"no {KIND[1]} of {API_VERSION} in it"),))
    if len(policies) > 1:
        raise Unusable(tuple(Problem(d.file, d.line(), "a second policy: only one may be given") for d in policies[1:]))
    document = policies[0]
    wanted = schema(rules, frameworks=frameworks)
    fits = fast_schema.fits(document.value, wanted)
    if not fits and explained is not None and not _has_at_most(explained, document.value):
        message = f"does not match the schema of a {KIND[1]}; `slicewarden policy lint FILE` says where"
        raise Unusable((Problem(document.file, document.line(), message),))
    wrong = [] if fits else problems(document, schema_errors(document.value, wanted))
    if wrong := wrong or problems(document, inconsistencies(document.value["spec"])):
        raise Unusable(wrong)
    return decode(document.value, releases), document


def of_object(value: Object, rules: Iterable[str], *, frameworks: Iterable[str] = ()) -> Policy:
    """Read a policy from a GPUSharingPolicy of an API server. Raises Unusable, whose problems have no file or line.

    An API server compares a policy with its schema before it sends it, so a long one that does not match has another
    sender.
    """
    return load_with_document([of_no_file(value)], rules, "", frameworks=frameworks, explained=EXPLAINED)[0]


def _has_at_most(number: int, value: object) -> bool:
    """Return whether a value has at most so many values within it."""
    left = [value]
    for _ in range(number + 1):
        if not left:
            return True
        one = left.pop()
        left += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
    return not left


def of_no_file(value: Object) -> Document:
    """Make the document of an object without a file. All of its lines are 0."""
    return Document("", 0, value, 0, Source("", 0))


class _Part(Source):
    """The source of an item of a List, with the marks of the List's own text."""

    def __init__(self, whole: Source, at: Path) -> None:
        super().__init__("", whole.start)
        self._whole, self._at = whole, at

    @cached_property
    def mark(self) -> Mark:
        return self._whole.mark.at(self._at)


def _opened(documents: Iterable[Document]) -> Iterator[Document]:
    """Yield the documents. A List, which `kubectl get -o yaml` prints, is replaced by its items."""
    for document in documents:
        value = document.value
        if not (isinstance(value, dict) and value.get("kind") == "List" and isinstance(value.get("items"), list)):
            yield document
            continue
        for index, item in enumerate(value["items"]):
            at = ("items", index)
            yield Document(document.file, document.index, item, document.line(at), _Part(document.source, at))


def misspellings(documents: Iterable[Document]) -> list[Problem]:
    """Find documents whose kind is almost ours: they would have no effect, and their author would not notice."""
    misspelt, guesses = [], Guesses()
    for document in documents:
        if not isinstance(document.value, dict):
            continue
        group, kind = group_kind(document.value)
        if group == GROUP and (group, kind) not in (KIND, TEST):
            known = (KIND[1], TEST[1])
            path, text = "kind", f"unknown kind {shown(kind)}{hint(kind, known, guesses)}"
        elif group != GROUP and kind in (KIND[1], TEST[1]):
            path, text = "apiVersion", f"must be {shown(API_VERSION)}, found {shown(document.value.get('apiVersion'))}"
        else:
            continue
        misspelt.append(Problem(document.file, document.line((path,)), f"{path}: {text}"))
    return misspelt


MOST = 100
"""Maximum number of errors named for a file.

A file with more is likely no policy at all, and every hint takes time.
"""


def problems(document: Document, errors: Iterable[tuple[Path, str]]) -> list[Problem]:
    """Return the errors of a policy with their places in the file, sorted by line.

    The search ends after MOST errors.
    """
    errors = iter(errors)
    named = [Problem(*document.where(path), f"{dotted(path)}: {text}") for path, text in islice(errors, MOST)]
    more = (
        [Problem(document.file, 0, f"there are more errors than these {MOST}: correct these first")]
        if any(errors)
        else []
    )
    return sorted(named, key=lambda problem: problem.line) + more
