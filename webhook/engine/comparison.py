"""The result of comparing installed objects with those that a policy needs. Commands and the webhook report it."""

from collections.abc import Sequence
from dataclasses import dataclass

from webhook.model import Object


@dataclass(frozen=True, slots=True)
class Comparison:
    """A part of an installation, such as the webhook configurations, and its differences from what the policy needs.

    `digest` is the policy hash in the `wanted` objects. `command` with `options` makes these objects again. `actions`
    names the `validationActions` of the installed bindings, if it is about bindings; they are `mixed` if the command
    would lose some of them.
    """

    name: str
    digest: str
    found: Sequence[Object]
    wanted: Sequence[Object]
    differences: Sequence[str]
    command: str
    options: str = ""
    actions: str = ""
    mixed: bool = False
