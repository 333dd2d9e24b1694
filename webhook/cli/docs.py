"""Writes pages for readers from the docstrings of rules, the schemas of our files, and the help of commands."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

from webhook.cli import parser
from webhook.documents import goyaml_writer
from webhook.fallback.answers import RECORDED
from webhook.model import Problem, Unusable
from webhook.rules import Rule
from webhook.text import tables
from webhook.text.spelling import hint


def rules(known: Iterable[Rule]) -> str:
    """Write the page of all rules, each under its id."""
    known = list(known)
    lines = [
        "# The rules",
        "",
        "Written by `slicewarden rules --markdown` from the docstrings in `webhook/rules/`. The",
        "[policy](policy.md#spec) says what happens to a rule's findings: `Deny`, `Warn` or `Audit`.",
        "[denied.md](denied.md) has the way out for people whose pods were refused.",
        "",
    ]
    rows = [(f"[`{rule.id}`](#{rule.id})", _judged(rule.subject), _first(rule.page), _held(rule)) for rule in known]
    lines += tables.markdown(("rule", "judges", "finds", "in the [fallback](fallback.md)"), rows)
    for rule in known:
        lines += ["", f"## {rule.id}", "", whole_page(rule)]
    return "\n".join(lines) + "\n"


_WIDTH = 100
"""Characters in a line of the page of all commands."""


def commands(root: click.Context, summaries: Mapping[str, str]) -> str:
    """Write the page of all commands from their `--help`. `summaries` has the purpose of each top-level command."""
    wide = click.Context(root.command, info_name=root.info_name, terminal_width=_WIDTH, **root.command.context_settings)
    contexts = list(parser.walk(wide))
    rows = []
    for context in contexts[1:]:
        purpose = summaries.get(context.info_name or "") if context.parent is wide else None
        path = context.command_path
        rows.append((f"[`{path}`](#{path.replace(' ', '-')})", purpose or context.command.get_short_help_str(200)))
    lines = [
        "# The command line",
        "",
        "Written by `slicewarden help --markdown` from what each command prints with `--help`.",
        "",
        *tables.markdown(("command", "what it does"), rows),
    ]
    for context in contexts:
        lines += ["", f"## {context.command_path}", "", "```text", context.get_help().rstrip(), "```"]
    return "\n".join(lines) + "\n"


def whole_page(rule: Rule) -> str:
    """Write a rule's page, and say how much of the rule the API server can enforce by itself."""
    return f"{rule.page}\n\nIn the fallback: {_first_small(rule)}{_answer(rule)}"


def _answer(rule: Rule) -> str:
    """Return a sentence: whether a fallback that was made with `--actions ByRule` refuses, or only records and why."""
    if rule.fallback is None:
        return ""
    if reason := RECORDED.get(rule.id):
        return f" With --actions ByRule it is only recorded: {reason}."
    return " With --actions ByRule it is refused."


def _first_small(rule: Rule) -> str:
    held = (rule.fallback.__doc__ or "").strip() if rule.fallback else "No."
    return held[0].lower() + " ".join(held.split())[1:]


def _held(rule: Rule) -> str:
    held = _first_small(rule).partition(":")[0].partition(",")[0].partition(" ")[0].rstrip(".")
    return f"{held}, recorded" if rule.fallback and rule.id in RECORDED else held


def page(pages: Mapping[str, str], wanted: str | None, word: str) -> str:
    """Show one page, or the list of all pages for None. `word` is the noun for a page's subject. Raises Unusable."""
    if wanted is None:
        return "\n".join(tables.columns((name, _first(text)) for name, text in pages.items())) + "\n"
    if wanted not in pages:
        raise Unusable((Problem(wanted, 0, f"no such {word}{hint(wanted, pages)}"),))
    return f"{wanted}\n\n{pages[wanted]}\n"


def _first(page: str) -> str:
    return page.partition("\n")[0]


_SUBJECTS = {
    "Pod": "pods and workloads",
    "Binding": "bindings of pods",
    "ConfigMap": "ConfigMaps",
    "ClusterPolicy": "ClusterPolicies",
    "Revision": "ControllerRevisions",
    "DeviceClaim": "claims, their templates, DeviceClasses",
    "PodGroup": "PodGroups, CompositePodGroups and Workloads",
    "Labelled": "labels of nodes and namespaces",
    "NodeFeature": "NodeFeatures",
}


def _judged(subject: Any) -> str:
    classes = getattr(subject, "__args__", (subject,))
    return ", ".join(_SUBJECTS[subject.__name__] for subject in classes)


HEAD = ("key", "type", "default", "meaning")


def schema(value: Mapping[str, Any]) -> str:
    """Write the page about a kind of file: each of its keys by its full path, with type, default and meaning."""
    kind = value["title"]
    lines = [
        f"# {kind}, key by key",
        "",
        f"Written by `slicewarden schema --kind {kind} --markdown` from the JSON Schema. Editors read it too: put",
        f"what `slicewarden schema --kind {kind}` prints into a file, and name it in the first line of yours, as in",
        "`# yaml-language-server: $schema=FILE`.",
        "",
        value["description"],
    ]
    for example in value.get("examples", ()):
        lines += ["", "As small as it can be of use:", "", "```yaml", goyaml_writer.write(example).rstrip(), "```"]
    defs = value["$defs"]
    for path, node in _sections("", value, defs):
        lines += ["", f"## {_heading(path)}", "", *_described(path, node)]
        lines += tables.markdown(HEAD, _rows(node, defs))
    if "selector" in defs:
        for path, node in _sections("", defs["selector"], defs):
            lines += ["", f"## {_heading(path) if path else 'Label selectors'}", ""]
            lines += [] if path else [defs["selector"]["description"], ""]
            lines += tables.markdown(HEAD, _rows(node, defs))
    return "\n".join(lines) + "\n"


def _heading(path: str) -> str:
    return f"`{path}`" if path else "The file"


def _described(path: str, node: Mapping[str, Any]) -> Iterator[str]:
    if path and "description" in node:
        yield node["description"]
        yield ""


Node = Mapping[str, Any]


def _resolved(node: Node, defs: Node) -> Node:
    """Return a schema node merged over the one that it refers to, with its keys unless it is a constant."""
    if "const" in node.get("else", ()):
        return {**node, **node["then"]}
    if "$ref" not in node:
        return node
    return {**_resolved(defs[node["$ref"].rpartition("/")[2]], defs), **node}


def _sections(path: str, node: Node, defs: Node) -> Iterator[tuple[str, Node]]:
    """Yield every object that has keys, outermost first; all label selectors share one section."""
    if "properties" in node:
        yield path, node
    for key, value in node.get("properties", {}).items():
        below = f"{path}.{key}" if path else key
        inner = _resolved(value, defs)
        while inner.get("type") == "array":
            below, inner = f"{below}[]", _resolved(inner["items"], defs)
        if not _is_selector(value):
            yield from _sections(below, inner, defs)


def _is_selector(node: Node) -> bool:
    return str(node.get("$ref", "")).endswith("/selector")


def _rows(node: Node, defs: Node) -> Iterator[tuple[str, ...]]:
    needed = node.get("required", ())
    for key, value in node["properties"].items():
        whole = _resolved(value, defs)
        default = "**needed**" if key in needed else _value(whole["default"]) if "default" in whole else ""
        yield f"`{key}`", _type(value, defs), default, _cell(_meaning(value, defs))


def _meaning(node: Node, defs: Node) -> str:
    whole = _resolved(node, defs)
    while "description" not in whole and whole.get("type") == "array":
        whole = _resolved(whole["items"], defs)
    return str(whole.get("description", ""))


def _type(node: Node, defs: Node) -> str:
    whole = _resolved(node, defs)
    if "const" in whole:
        return _value(whole["const"])
    if "enum" in whole:
        return (
            "the id of a rule" if str(node.get("$ref", "")).endswith("/rule") else ", ".join(map(_value, whole["enum"]))
        )
    if _is_selector(node):
        return "[label selector](#label-selectors)"
    if str(node.get("$ref", "")).endswith("/quantity"):
        return "a quantity, such as `512Mi`"
    if whole.get("type") == "array":
        return f"list: {_type(whole['items'], defs)}"
    if "title" in whole:
        return _cell(str(whole["title"]))
    if isinstance(whole.get("additionalProperties"), Mapping):
        names = _resolved(whole.get("propertyNames", {}), defs).get("title", "a name")
        return f"map: {names} → {_type(whole['additionalProperties'], defs)}"
    if "const" in whole.get("else", ()):
        return f"{_value(whole['else']['const'])}, or keys"
    given = whole.get("type", "anything")
    words = given if isinstance(given, str) else " or ".join(given)
    least = f", at least {whole['minimum']}" if "minimum" in whole else ""
    most = f", at most {whole['maximum']}" if "maximum" in whole else ""
    return f"keys{least}" if words == "object" else f"{words}{least}{most}"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _cell(text: str) -> str:
    return tables.escaped(text).replace("<", "&lt;")
