"""Remembers whether the API server has the CEL functions that a fallback calls. It gets a whole fallback or none."""

import math
import time
from collections.abc import Callable

from webhook.cluster import client
from webhook.fallback.needs import INVALID, calling
from webhook.model import Object

AGAIN_SECONDS = 600.0
"""Seconds until an API server that lacked a function is asked again: it may be a newer one then."""


class Functions:
    """The answer of the API server, which is asked with a dry run."""

    def __init__(self, apply: Callable[[Object], None], clock: Callable[[], float] = time.monotonic) -> None:
        """`apply` applies a policy as a dry run."""
        self._apply, self._clock = apply, clock
        self._lacking, self._until = False, -math.inf

    def lacking(self, policy: Object) -> bool:
        """Whether the API server lacks a function. It is asked with an installed policy of the fallback.

        Only an invalid policy says so. Any other refusal is not remembered: the real write gets it too, and the status
        of the policy then names it. Raises Unreachable.
        """
        if self._clock() >= self._until:
            try:
                self._apply(calling(policy))
            except client.StatusError as error:
                if error.status != INVALID:
                    return False
                self._lacking, self._until = True, self._clock() + AGAIN_SECONDS
            else:
                self._lacking, self._until = False, math.inf
        return self._lacking
