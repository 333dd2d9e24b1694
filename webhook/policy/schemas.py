"""The JSON Schemas of the files that users write, and their errors in plain words."""

import json
import pkgutil
from collections.abc import Iterable, Iterator
from typing import Any, cast

from webhook.model import Path
from webhook.policy.actions import EVERY_RULE
from webhook.policy.bounds import bounded
from webhook.text.spelling import hint
from webhook.text.words import line, shown, unquoted

GROUP = "slicewarden.dev"
KIND = (GROUP, "GPUSharingPolicy")
TEST = (GROUP, "PolicyTest")

SCHEMAS = {KIND[1]: "policy.schema.json", TEST[1]: "policy-test.schema.json"}
"""The kinds of files that users write, each with its schema's file in this package."""


def schema(rules: Iterable[str], kind: str = KIND[1], *, frameworks: Iterable[str] = ()) -> dict[str, Any]:
    """Return the JSON Schema of a policy, or of another kind of file, with the rules and frameworks that it may name.

    Without `frameworks` it may name any framework.
    """
    value: dict[str, Any] = json.loads(pkgutil.get_data("webhook.policy", SCHEMAS[kind]) or b"")
    value["$defs"]["rule"]["enum"] = sorted(rules)
    if kind == KIND[1]:
        value["$defs"]["actions"]["propertyNames"]["enum"] = [EVERY_RULE, *value["$defs"]["rule"]["enum"]]
        if names := list(frameworks):
            value["$defs"]["memory"]["properties"]["frameworks"]["items"] = {"enum": names}
    return bounded(value) if kind == KIND[1] else value


def schema_errors(value: Any, wanted_schema: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yield the path and the reason, in plain words, of everything in a value that a JSON Schema does not allow."""
    import jsonschema  # imported here: it takes longer than the rest of a check

    own = {"uniqueItems": _unique}  # the library's own compares every pair of items
    validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, own)  # type: ignore[no-untyped-call]
    for error in validator(wanted_schema).iter_errors(value):
        path: Path = tuple(error.absolute_path)
        value, wanted = cast("Any", error.instance), cast("Any", error.validator_value)
        if error.validator == "additionalProperties":
            known = sorted(error.schema.get("properties", {}))
            for key in sorted(set(value) - set(known)):
                yield (*path, key), f"unknown key{hint(key, known)}"
        elif "propertyNames" in error.absolute_schema_path:
            known = error.validator == "enum"
            yield (*path, value), f"unknown rule{hint(value, wanted)}" if known else f"must be {_title(error)}"
        elif error.validator == "pattern":
            yield path, f"must be {_title(error)}, found {shown(value)}"
        else:
            yield path, _reason(str(error.validator), wanted, value) or line(error.message)


def _title(error: Any) -> str:
    return str(error.schema["title"])


def _reason(keyword: str, wanted: Any, value: Any) -> str:
    """Say in plain words what a keyword of JSON Schema demands; empty if the library's message is plain enough."""
    match keyword:
        case "type":
            wanted = (wanted,) if isinstance(wanted, str) else wanted
            text = f"must be {' or '.join(_WORDS[kind] for kind in wanted)}, found {shown(value)}"
            return f"{text}{unquoted(value)}" if wanted == ("string",) else text
        case "enum" if len(wanted) > 10:
            return f"unknown {shown(value)}{hint(str(value), wanted)}"
        case "enum":
            return f"must be one of {', '.join(map(str, wanted))}, found {shown(value)}"
        case "const":
            return f"must be {shown(wanted)}, found {shown(value)}"
        case "required":
            return f"{', '.join(key for key in wanted if key not in value)} is missing"
        case "anyOf":
            return f"one of {', '.join(key for option in wanted for key in option.get('required', ()))} is needed"
        case "oneOf":
            return f"must have exactly one of {', '.join(key for option in wanted for key in option['required'])}"
        case "minItems" | "minProperties" | "minLength":
            return "must not be empty"
        case "uniqueItems":
            return f"names {shown(next(_repeated(value)))} twice"
        case "maxLength":
            return f"must not have more than {wanted} characters, found {len(value)}"
        case "maxProperties":
            return f"must not have more than {wanted} keys, found {len(value)}"
        case "maxItems":
            return f"must not have more than {wanted} items, found {len(value)}"
    return ""


_WORDS = {
    "object": "a map",
    "array": "a list",
    "string": "text",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "null": "null",
}
"""The words of YAML's users for the types of JSON Schema."""


def _unique(_: Any, wanted: bool, value: Any, __: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if wanted and isinstance(value, list) and any(True for _ in _repeated(value)):
        yield ValidationError("names something twice")


def _repeated(values: Iterable[Any]) -> Iterator[Any]:
    """Yield every item that the list already had."""
    seen: set[str] = set()
    for value in values:
        text = json.dumps(value, sort_keys=True)
        if text in seen:
            yield value
        seen.add(text)
