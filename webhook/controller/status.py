"""Writes the status of a GPUSharingPolicy: conditions in the form of kstatus, and fields for people. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from webhook.model import Object


class Reason(StrEnum):
    """The reason why a policy is ready or not."""

    IN_FORCE = "InForce"
    OFF = "Off"
    CHANGING = "Changing"
    INVALID = "Invalid"
    REFUSED = "Refused"
    NOT_IN_FORCE = "NotInForce"
    FACTS_UNREADABLE = "FactsUnreadable"
    REGISTRATION_GONE = "RegistrationGone"
    REGISTRATION_FOREIGN = "RegistrationForeign"


STALLED = (
    Reason.INVALID,
    Reason.REFUSED,
    Reason.NOT_IN_FORCE,
    Reason.FACTS_UNREADABLE,
    Reason.REGISTRATION_GONE,
    Reason.REGISTRATION_FOREIGN,
)
"""The reasons that waiting does not resolve: a person must act."""

READY = (Reason.IN_FORCE, Reason.OFF)


CLEARED: Mapping[str, Any] = dict.fromkeys(
    ("problems", "lints", "lintMessages", "wouldDeny", "wouldDenySample"),
)
"""The fields that a status has only while there is something to say."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The parts of a policy's status: why it is ready or not, in a sentence, and other fields (None: none)."""

    reason: Reason
    message: str
    fields: Mapping[str, Any]


def status(before: Object, standing: Standing, now: datetime) -> Object:
    """Return the status that a policy object should have, as a merge patch.

    Times of conditions that do not change are kept. Fields that it does not mention stay as they are.
    """
    generation = before["metadata"].get("generation", 0)
    old = {each["type"]: each for each in (before.get("status") or {}).get("conditions") or ()}
    states = {
        "Ready": standing.reason in READY,
        "Reconciling": standing.reason is Reason.CHANGING,
        "Stalled": standing.reason in STALLED,
    }
    conditions = []
    for kind, state in states.items():
        word = "True" if state else "False"
        was = old.get(kind) or {}
        same = was.get("status") == word and was.get("lastTransitionTime")
        at = was["lastTransitionTime"] if same else now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions.append(
            {
                "type": kind,
                "status": word,
                "reason": standing.reason.value,
                "message": standing.message,
                "lastTransitionTime": at,
                "observedGeneration": generation,
            }
        )
    return {
        "observedGeneration": generation,
        "phase": standing.reason.value,
        "conditions": conditions,
        **CLEARED,
        **standing.fields,
    }


def changes(before: Object, patch: Mapping[str, Any]) -> bool:
    """Whether a merge patch changes a status. A value of None removes the field."""
    return any(before.get(key) != value for key, value in patch.items())
