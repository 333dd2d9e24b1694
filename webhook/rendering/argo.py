"""Reads the Applications of Argo CD, and makes those of its ApplicationSets.

Sources: argo-cd pkg/apis/application/v1alpha1/types.go and applicationset_types.go.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice, product
from math import prod
from typing import Any

from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings, sequence, string
from webhook.documents import files
from webhook.documents.gitignore import Matcher
from webhook.kustomize import following
from webhook.model import Object
from webhook.rendering import charts
from webhook.rendering.deploying import SET
from webhook.repository import chart_folders
from webhook.repository.tree import LONGEST_PATTERN, Tree, Unseen, fits, matcher
from webhook.text.words import shown


def directory(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options by which Argo CD applies a source file by file; empty if it ignores them.

    It ignores options without an effect, and refuses some next to those of Helm or kustomize.
    Source: argo-cd pkg/apis/application/v1alpha1/types.go (IsZero), util/argo/argo.go (NormalizeApplicationSpec).
    """
    options = mapping(source.get("directory"))
    used = any(options.get(key) for key in ("recurse", "include", "exclude")) or is_given(options, "jsonnet")
    return options if used and not (is_given(source, "helm") or is_given(source, "kustomize")) else {}


def wanted(options: Mapping[str, Any]) -> Callable[[str], bool] | None:
    """Return whether Argo CD applies a file of a folder, by its path from there; None if its patterns cannot be read.

    `*` and `?` fit a slash too (argo-cd reposerver/repository/repository.go, getPotentiallyValidManifestFile;
    github.com/gobwas/glob).
    """
    tests = list[list[Matcher]]()
    for key in ("exclude", "include"):
        pattern = string(options.get(key))
        parts = _BRACES.split(pattern)
        if _UNREAD.search("".join(parts[0::2])) or len(parts) > _MOST_BRACES or len(pattern) > LONGEST_PATTERN:
            return None
        choices = [part.split(",") if number % 2 else [part] for number, part in enumerate(parts)]
        if prod(map(len, choices)) > _MOST_CHOICES:
            return None
        tests.append([matcher("".join(each)) for each in product(*choices)] if pattern else [])
    excluded, included = tests
    return lambda path: (
        (not included or any(test(path) for test in included)) and not any(test(path) for test in excluded)
    )


_BRACES = re.compile(r"\{([^{}\[\]\\]*)\}")

_UNREAD = re.compile(r"[{}\[\]\\]")
"""What gobwas/glob reads otherwise than Python does, or nests."""

_MOST_BRACES, _MOST_CHOICES = 9, 100
"""Maximum parts of a pattern between braces and outside of them, and maximum patterns that it stands for."""


def is_given(source: Mapping[str, Any], key: str) -> bool:
    """Whether options decide how Argo CD renders a source: it ignores empty ones, and some without the others.

    `valuesObject: {}` is not empty for Argo CD (argo-cd types.go, ApplicationSourceHelm.ValuesIsEmpty).
    """
    options = mapping(source.get(key))
    return options.get("valuesObject") == {} or any(options[name] for name in options.keys() - _DEPENDENT)


_DEPENDENT = frozenset(
    (
        *("labelWithoutSelector", "labelIncludeTemplates", "forceCommonLabels", "forceCommonAnnotations"),
        "commonAnnotationsEnvsubst",
    )
)
"""Options that decide nothing without others (argo-cd types.go, ApplicationSourceKustomize.IsZero)."""


def changes(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the changes that an Argo CD source's kustomize options make, as fields of a kustomization."""
    options = mapping(source.get("kustomize"))
    fields = {key: options[key] for key in ("namePrefix", "nameSuffix", "patches", "components") if options.get(key)}
    images = {each["name"]: each for text in sequence(options.get("images")) if (each := _image(string(text)))}
    return {
        "namespace": string(options.get("namespace")),
        **fields,
        **({"images": [*images.values()]} if images else {}),
    }


def _image(text: str) -> Mapping[str, str]:
    """Return an image as `kustomize edit set image` reads it; of several with one name, the last one counts."""
    name, equals, new = text.partition("=") if "=" in text else (text, "", text)
    where, at, digest = new.partition("@")
    place, colon, tag = ("", "", "") if at else where.rpartition(":")
    where, tag = (place, tag) if colon and "/" not in tag else (where, "")
    found = {"name": name if equals else where, "newName": where, "newTag": tag, "digest": digest}
    return {key: part for key, part in found.items() if part} if text else {}


def leads_out(path: str) -> bool:
    """Whether a path from the top of a repository leads out of it; Argo CD refuses such a path, whatever is there.

    Source: argo-cd util/app/path/path.go (Path), util/io/path/resolved.go (ResolveValueFilePathOrUrl).
    """
    return os.path.normpath(path).split("/")[0] == ".."


def installs(folder: str, source: Mapping[str, Any]) -> bool:
    """Whether Argo CD installs a folder as a chart.

    If the source does not say so, the last file in order decides: a kustomization, or a name that ends like that of a
    chart (argo-cd util/app/discovery/discovery.go, Discover).
    """
    if not chart_folders.is_chart(folder) or is_given(source, "helm"):
        return chart_folders.is_chart(folder)
    with os.scandir(folder) as entries:
        names = [each.name for each in entries if not each.is_dir(follow_symlinks=False)]
    last = max(name for name in names if name.endswith(files.CHART) or name in files.KUSTOMIZATIONS)
    return last.endswith(files.CHART) and not is_given(source, "kustomize")


def overridden(tree: Tree, folder: str, source: Mapping[str, Any], value: Object, *, plain: bool) -> str:
    """Return a file by which Argo CD deploys a folder otherwise, or one of Jsonnet; empty without one.

    The name of a file for one Application may begin with its namespace. With a plugin that has no name, Argo CD
    takes any that fits.
    """
    if source.get("plugin") == {}:
        return "source.plugin"
    name = string(mapping(value.get("metadata")).get("name"))
    for each in tree.overrides(folder):
        if (found := _OVERRIDE.fullmatch(each)) and (found[1] in (None, name) or "{{" in name):
            return os.path.join(folder, each)
    recurse = bool(mapping(source.get("directory")).get("recurse"))
    return tree.jsonnet(folder, recurse=recurse) if plain else ""


_OVERRIDE = re.compile(r"\.argocd-source(?:-(?:[^_]*_)?(.*))?\.yaml")
"""The name of a file that overrides a source (argo-cd reposerver/repository/repository.go, and InstanceName)."""


def applications(value: Object, tree: Tree, prefix: str) -> tuple[list[Object], str]:
    """Return the Applications that an ApplicationSet makes, and the reason if some cannot be made here."""
    spec = mapping(value.get("spec"))
    template, made, of_go = mapping(spec.get("template")), list[Object](), spec.get("goTemplate") is True
    weight = 1 + len(json.dumps(template)) // _WEIGHT
    for generator in mappings(spec.get("generators")):
        sets, unread = list[Mapping[str, str]](), ""
        try:
            most = max(0, following.MAX_ALL_OBJECTS - tree.followed) // weight + 1  # one too many
            sets.extend(islice(_parameters(generator, tree, prefix, of_go=of_go), most))
        except Unseen as error:
            unread, sets = str(error), sets if error.outside else []
        tree.followed += weight * len(sets)
        if tree.followed > following.MAX_ALL_OBJECTS:
            return made, "too many"
        for key in generator.keys() - _GENERATORS:
            if not (sets and generator[key]):
                return made, f"generator {key}"
        for parameters in (
            each for each in sets if _is_selected(each, mapping(generator.get("selector")), of_go=of_go)
        ):
            whole = {**template, "apiVersion": value.get("apiVersion"), "kind": "Application"}
            made.append(_filled(whole, parameters, of_go=of_go))
        if unread:
            return made, unread
    return made, ""


def _is_selected(parameters: Mapping[str, str], selector: Mapping[str, Any], *, of_go: bool) -> bool:
    """Whether a selector may fit parameters: also if it names one that is not known here.

    With templates of Go, it knows the `values` of a generator since Argo CD 3.4 only. Source: argo-cd
    applicationset/generators/generator_spec_processor.go (Transform, normalizeMapForFlatten).
    """
    unsure = "values." if of_go else "{{"
    known = {key: text for key, text in parameters.items() if "{{" not in text and not key.startswith(unsure)}
    equal = mapping(selector.get("matchLabels")).items()
    if any(key in known and known[key] != value for key, value in equal):
        return False
    for each in mappings(selector.get("matchExpressions")):
        text, values = known.get(string(each.get("key"))), sequence(each.get("values"))
        unfit = {"In": text not in values, "NotIn": text in values, "DoesNotExist": True}
        if text is not None and unfit.get(string(each.get("operator"))):
            return False
    return True


_GENERATORS = {"list", "git", "selector"}
"""The generators of an ApplicationSet that are followed, and what selects among their results."""

_WEIGHT = 4096
"""Bytes of an Application that count as one object."""


def _parameters(generator: Mapping[str, Any], tree: Tree, prefix: str, *, of_go: bool) -> Iterator[Mapping[str, str]]:
    """Yield the parameters of a generator. Raises Unseen, at the end for a file that cannot be read.

    Argo CD compares folders by Go's path.Match, and gives the patterns of files to `git ls-files`, whose `*` fits a
    slash too, or to doublestar (argo-cd applicationset/generators/git.go, filterApps; util/git/client.go, LsFiles).
    """
    for element in mappings(mapping(generator.get("list")).get("elements")):
        yield _flat(element, of_go=of_go)
    git = mapping(generator.get("git"))
    more, start = _flat({"values": mapping(git.get("values"))}, of_go=of_go), string(git.get("pathParamPrefix"))
    replaced = (start or "path", "values") if git.get("values") else (start or "path",)

    def whole(own: Mapping[str, str], path: str, file: str = "") -> Mapping[str, str]:
        known = {**own, **_of_path(path, file, start, of_go=of_go)}
        return {**known, **_filled(more, known, of_go=of_go)}

    directories = mappings(git.get("directories"))
    named = [] if directories else mappings(git.get("files"))
    tests = [(_ODD_EXCLUDED if each.get("exclude") else _ODD, each) for each in directories]
    for odd, each in (*tests, *((_ODD_FILE, each) for each in named)):
        if odd.search(string(each.get("path"))):
            raise Unseen(f"the pattern {shown(string(each.get('path')))} of a generator")
    if directories:
        wanted = [string(each.get("path")) for each in directories if not each.get("exclude")]
        patterns = [string(each.get("path")).split("/") for each in directories if each.get("exclude")]
        excluded = [[matcher(part) for part in parts] for parts in patterns]
        paths = (path for pattern in wanted for path in tree.matching(pattern))
        for path in (path for path in paths if os.path.isdir(os.path.join(tree.root, path))):
            tree.look(sum(map(len, excluded)))
            if not any(fits(path.split("/"), tests) for tests in excluded):
                yield whole({}, path)
    unread: Unseen | None = None
    found, out = set[str](), set[str]()
    for each in named:  # what all releases leave out is out
        exclude, pattern = each.get("exclude"), string(each.get("path"))
        (out if exclude else found).update(tree.matching(pattern, across=not exclude))
    for path in sorted(found - out):
        try:
            value = _first(tree, os.path.join(prefix, path))
        except Unseen as error:
            unread = error
            continue
        for one in value if isinstance(value, list) else [value]:
            own = _flat(mapping(one), of_go=of_go)
            if of_go:  # Argo CD replaces these maps, and merges no keys
                own = {key: text for key, text in own.items() if key.partition(".")[0] not in replaced}
            yield whole(own, os.path.dirname(path) or ".", os.path.basename(path))
    if unread:
        raise unread


def _first(tree: Tree, name: str) -> Any:
    """Return the first document of a file; an empty map if it has none, as for Argo CD. Raises Unseen.

    Source: argo-cd applicationset/generators/git.go, generateParamsFromGitFile.
    """
    try:
        return tree.first(name).value
    except Unseen as error:
        if error.absent and os.path.isfile(name):
            return {}
        raise


_ODD_EXCLUDED = re.compile(r"[{\\]|\[(?!(?:[A-Za-z0-9](?:-[A-Za-z0-9])?){1,99}\])")
"""What Go and Git read otherwise than Python does in a pattern, or in some releases of Argo CD only.

Such are classes of other characters than letters and digits: Go ignores a pattern that it cannot read.
"""

_ODD = re.compile(rf"{_ODD_EXCLUDED.pattern}|(?:^|/)\.[^./]")
"""The same, and a part of a hidden name."""

_ODD_FILE = re.compile(rf"{_ODD.pattern}|^:")
"""The same for files, with the magic of pathspecs (gitglossary(7))."""


def _of_path(path: str, file: str, start: str, *, of_go: bool) -> Mapping[str, str]:
    """Return the parameters of a folder, and of a file there, by the names that a selector has for them too.

    Sources: argo-cd applicationset/generators/repo_path_utils.go, and generator_spec_processor.go (flattenParameters).
    """
    top, names = f"{start}.path" if start else "path", {"basename": os.path.basename(path), "filename": file}
    found = {f"{top}.path" if of_go else top: path}
    for key, name in names.items():
        if name or key == "basename":
            normal = re.sub(r"[^a-z0-9.-]", "-", name.lower())[:253].strip("-.")
            found |= {f"{top}.{key}": name, f"{top}.{key}Normalized": normal}
    segments = enumerate(path.split("/"))
    return {**found, **{f"{top}.segments.{i}" if of_go else f"{top}[{i}]": each for i, each in segments}}


def _flat(value: Mapping[str, Any], *, of_go: bool) -> dict[str, str]:
    """Return the texts in a map by their paths, without those of one path, as in `a: {b: 1}` with `a.b: 2`.

    A template of Go reads a key with a dot as two keys, and none with a hyphen.
    """
    texts = _texts(value, ())
    found = [(".".join(path), text) for path, text in texts if not of_go or all(map(_GO_KEY.fullmatch, path))]
    counted = Counter(path for path, _ in found)
    return {path: text for path, text in found if counted[path] == 1}


_GO_KEY = re.compile(r"[^\W\d]\w*")


def _texts(value: Mapping[str, Any], before: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    for key, each in value.items():
        if isinstance(each, dict):
            yield from _texts(each, (*before, str(key)))
        elif (text := _text(each)) is not None:
            yield (*before, str(key)), text


def _text(value: Any) -> str | None:
    """Return a value as Go writes it: a number as a float64 by `%v`. None for one with an exponent, or a list."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return "-0" if str(value) == "-0.0" else _text(int(value))
    if isinstance(value, (int, float)):
        return str(value) if value == 0 or _SMALLEST <= abs(value) < _LARGEST else None
    return value if isinstance(value, str) else None


_SMALLEST, _LARGEST = 1e-4, 10**6
"""The numbers that Go writes without an exponent (strconv.FormatFloat, the shortest form of `%g`)."""


_PARAMETER = re.compile(r"\{\{\s*(\.?)([\w.\[\]-]+)\s*\}\}")
"""A parameter of a template. Those of Go's templates begin with a dot, and no others do."""


def _filled(value: Any, parameters: Mapping[str, str], *, of_go: bool) -> Any:
    if isinstance(value, dict):
        return {key: _filled(each, parameters, of_go=of_go) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, parameters, of_go=of_go) for each in value]
    if not isinstance(value, str):
        return value

    def fill(found: re.Match[str]) -> str:
        return parameters.get(found[2], found[0]) if bool(found[1]) is of_go else found[0]

    return _PARAMETER.sub(fill, value)


def sources_of(value: Object) -> list[Mapping[str, Any]]:
    """Return the sources of an Application, or of those that an ApplicationSet makes.

    Next to several `sources` its `source` has no effect (argo-cd types.go, GetSources).
    """
    spec = mapping(value.get("spec"))
    spec = mapping(mapping(spec.get("template")).get("spec")) if group_kind(value) == SET else spec
    return mappings(spec.get("sources")) or mappings([spec.get("source")])


def addresses(value: Object) -> Iterator[str]:
    """Yield the addresses of the Git repositories that an Application or ApplicationSet deploys, as far as it says."""
    urls = (string(each.get("repoURL")) for each in sources_of(value) if "chart" not in each)
    return (url for url in urls if "{{" not in url)


def values(
    source: Mapping[str, Any], sources: list[Mapping[str, Any]], tree: Tree, prefix: str
) -> tuple[list[bytes], str]:
    """Return the values that an Application gives to a chart, and the reason if Argo CD may give it others.

    Argo CD fills in variables in the paths of files, downloads those with an address, and ignores `values` next to
    `valuesObject` (util/helm, reposerver/repository/repository.go, and ValuesYAML in types.go).
    """
    helm, found, hidden, names = mapping(source.get("helm")), list[bytes](), False, list[str]()
    references = {f"${string(each.get('ref'))}" for each in sources if each.get("ref")}
    for each in sequence(helm.get("valueFiles")):
        if not isinstance(each, str):
            continue
        start, _, rest = each.partition("/")
        path = rest if start in references else each.lstrip("/")
        if start not in references and not each.startswith("/"):
            path = os.path.join(string(source.get("path")), each) if source.get("path") else ""
        if not path or leads_out(path) or _ELSEWHERE.search(rest if start in references else each):
            hidden = True
            continue
        try:
            found.append(tree.data(os.path.join(prefix, path)))
            names.append(_resolved(os.path.join(prefix, path)))
        except Unseen as error:
            hidden = hidden or not (error.absent and helm.get("ignoreMissingValueFiles"))
    if helm.get("valuesObject") is not None:
        found += charts.written(mapping(helm.get("valuesObject")))
    elif text := string(helm.get("values")):
        found.append(text.encode("utf-8", "replace"))
    moved = [*dict.fromkeys(names)] != [*dict.fromkeys(names[::-1])][::-1]
    return found, ELSEWHERE if hidden else _REPEATED if moved else ""


def _resolved(path: str) -> str:
    """Return the path of a file, or that to which it leads as a link (argo-cd util/io/path/resolved.go)."""
    for _ in range(_MOST_LINKS):
        if not os.path.islink(path):
            break
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    return os.path.normpath(path)


_MOST_LINKS = 10
"""Maximum number of links from one to the next that Argo CD follows."""

ELSEWHERE = "values files elsewhere"

_REPEATED = "a values file that it names twice counts where it stands first, since Argo CD 3.4"


_ELSEWHERE = re.compile(r"[$*?\[]|://")
"""A part of the path of a values file that is a variable, a pattern or an address."""


def settings(source: Mapping[str, Any]) -> tuple[tuple[str, ...], bool]:
    """Return the arguments by which Argo CD gives parameters to helm, and whether it may give others.

    It fills in variables, and gives them in any order (argo-cd util/helm/cmd.go, Envsubst and cleanSetParameters). Of
    several with one name the last one counts (reposerver/repository/repository.go, helmTemplate).
    """
    parameters, found = mappings(mapping(source.get("helm")).get("parameters")), dict[tuple[str, str], str]()
    names, hidden = {string(each.get("name")) for each in parameters}, False
    for each in parameters:
        name, value = string(each.get("name")), each.get("value")
        text = value if isinstance(value, str) else "" if value is None else json.dumps(value)
        listed = text.startswith("{") and text.endswith("}")
        hidden = hidden or "$" in text or (listed and "=" in text) or not _NAME.fullmatch(name)
        hidden = hidden or "\\\\," in text  # an escaped backslash, so helm reads another name behind the comma
        hidden = hidden or any(name[: step.start()] in names for step in _STEP.finditer(name))
        text = text if listed else re.sub(r"(?<!\\),", r"\\,", text)
        found["--set-string" if each.get("forceString") else "--set", name] = text
    return tuple(each for (option, name), text in found.items() for each in (option, f"{name}={text}")), hidden


_NAME = re.compile(r"(?:[\w/@-]|\\\.|\[(?:0|[1-9][0-9]{0,5})\]|\.){1,200}")
"""A name of a parameter that names one value, in one way only. Helm reads `a=1,b` as two names, and a[00] as a[0]."""

_STEP = re.compile(r"(?<!\\)[.\[]")
"""Where a name goes one step deeper: the values of a name and of one that goes deeper depend on their order."""
