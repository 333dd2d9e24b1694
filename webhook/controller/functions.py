"""Remembers whether the API server has the CEL functions that a fallback calls. Without them no fallback is written."""

import math
import time
from collections.abc import Callable

from webhook.cluster import client
from webhook.fallback.needs import INVALID, calling
from webhook.model import Object

AGAIN_SECONDS = 600.0
"""Seconds until an API server that lacked a function is asked again: it may be a newer one then."""


class Functions:
    """Asks the API server by a dry run whether it has the functions, and remembers the answer."""

    def __init__(self, apply: Callable[[Object], None], clock: Callable[[], float] = time.monotonic) -> None:
        """`apply` applies a policy as a dry run."""
        self._apply, self._clock = apply, clock
        self._lacking, self._until = False, -math.inf

    def lacking(self, policy: Object) -> bool:
        """Whether the API server lacks one of the functions.

        It is asked by a dry run, which adds the functions to an installed `policy` of the fallback. Only the answer
        that the policy is invalid shows that a function is missing. Any other refusal is not remembered, because the
        real write is refused too, and then the status of the policy reports it. Raises Unreachable.
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
