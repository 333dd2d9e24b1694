"""What is installed, compared with what a policy needs: one value, which commands and the webhook show differently."""

from collections.abc import Sequence
from dataclasses import dataclass

from webhook.model import Object


@dataclass(frozen=True, slots=True)
class Comparison:
    """A part of an installation as it was found, and its differences from what the policy needs.

    `digest` is the hash of the policy that the `wanted` objects bear. The `command` makes them again, with `options`.
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
