"""The result of comparing installed objects with those that a policy needs. Commands and the webhook present it."""

from collections.abc import Sequence
from dataclasses import dataclass

from webhook.model import Object


@dataclass(frozen=True, slots=True)
class Comparison:
    """A part of an installation, and its differences from what the policy needs.

    `digest` is the policy hash in the `wanted` objects. `command` with `options` makes these objects again.
    `actions` says what the bindings of policies do; they are `mixed` if the command would lose some of them.
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
