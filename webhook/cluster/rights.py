"""Asks a live cluster which accounts have the right of trust, by SubjectAccessReviews, and caches the answers."""

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, NamedTuple

from webhook.api.lenient import mapping, string
from webhook.cluster import client
from webhook.cluster.client import Api
from webhook.cluster.watch import MAX_REASON
from webhook.facts.rights import GROUP, NAME, RESOURCE, VERB, Account, Rights
from webhook.model import Object
from webhook.telemetry.log import Log
from webhook.telemetry.rate_limit import Bucket

if TYPE_CHECKING:
    from webhook.telemetry.metrics import Metrics

KIND = "SubjectAccessReview"
PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

FRESH = 5.0
"""Seconds before an answer is renewed. Until it expires, a yes is still used while it is being renewed."""

HELD, LACKED, FAILED = 10.0, 2.0, 2.0
"""Seconds after which an answer expires: yes, no, and a failure. So a new binding takes effect 2 s after a denial."""

MOST = 10_000
"""Maximum number of cached answers; the least recently used one is dropped first, and sooner if it has expired."""

AT_ONCE = 16
"""Maximum number of accounts asked about for one review. Only a workload of many templates has more than one."""

PATIENCE = 1.0
"""Seconds to connect, and seconds to wait for an answer. An API server gives a mutating webhook 3 s in all."""

LONGEST = 2.0
"""Seconds after which no further account is asked about for one review."""


class CachedAnswer(NamedTuple):
    """An answer (None for a failure), and the time at which it was given (`time.monotonic`)."""

    held: bool | None
    at: float

    @property
    def lasts(self) -> float:
        """Seconds after which the answer expires."""
        return FAILED if self.held is None else HELD if self.held else LACKED


class AskedRights(Rights):
    """Answers which accounts have the right of trust, by asking a live cluster.

    A review uses cached answers; missing ones are requested afterwards. `held` never waits. If an account has no answer
    yet, `held` adds it to a list of the thread, which `noting` created. `ask` then waits for the answers, and the
    review is repeated with them. A yes stays cached as long as reviews use it, because a thread renews it before it
    expires. A failure is an answer too: the account is not trusted.
    """

    unknown = "the API server did not answer, or refused to be asked; try again, or see the webhook's log"

    def __init__(
        self, api: Api, log: Log, metrics: "Metrics | None" = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._log = log
        self._metrics = metrics
        self._now = now
        self._known: OrderedDict[Account, CachedAnswer] = OrderedDict()
        self._lock = threading.Lock()
        self._thread = threading.local()
        self._again: Queue[Account] = Queue(AT_ONCE)
        self._bucket = Bucket(burst=1, rate=0.1, now=now())

    def start(self) -> None:
        """Start the thread that renews answers; it ends with the process."""
        threading.Thread(target=self._keep, daemon=True, name="rights").start()

    def noting(self) -> list[Account]:
        """Start a list of the accounts that this thread asks `held` about without an answer, and return the list."""
        noted: list[Account] = []
        self._thread.noted = noted
        return noted

    def held(self, account: Account) -> bool | None:
        """Return whether an account has the right; None if that is unknown or the question failed.

        An account that cannot exist has no right. It is not cached, because its name may have any length.
        """
        if not account.possible:
            return False
        known, age = self._recall(account)
        if known is None:
            noted = getattr(self._thread, "noted", None)
            if noted is not None and account not in noted and len(noted) < AT_ONCE:
                noted.append(account)
            return None
        if known.held and age > FRESH:
            with contextlib.suppress(Full):  # then it is asked again when it has expired
                self._again.put_nowait(account)
        return known.held

    def ask(self, accounts: Iterable[Account]) -> None:
        """Ask about accounts whose answers are missing, and wait. Never raises."""
        end = self._now() + LONGEST
        for account in accounts:
            if not account.possible or self._recall(account)[0] is not None:
                continue
            self._remember(account, self._asked(account) if self._now() < end else None)

    def _recall(self, account: Account) -> tuple[CachedAnswer | None, float]:
        with self._lock:
            known = self._known.get(account)
            if known is None:
                return None, 0.0
            age = self._now() - known.at
            if age > known.lasts:
                del self._known[account]
                return None, age
            self._known.move_to_end(account)
            return known, age

    def _remember(self, account: Account, held: bool | None) -> None:
        with self._lock:
            now = self._now()
            self._known[account] = CachedAnswer(held, now)
            self._known.move_to_end(account)
            while len(self._known) > MOST or now - (oldest := next(iter(self._known.values()))).at > oldest.lasts:
                self._known.popitem(last=False)

    def _keep(self) -> None:
        while True:
            try:
                account = self._again.get(timeout=FRESH)
            except Empty:
                continue
            self.renew(account)

    def renew(self, account: Account) -> None:
        """Ask again about an account whose answer is about to expire. If that fails, the known answer is kept."""
        known, age = self._recall(account)
        if known is None or age <= FRESH:
            return
        held = self._asked(account)
        if held is not None:
            self._remember(account, held)

    def _asked(self, account: Account) -> bool | None:
        try:
            body = review(account)
            answer = client.ask(self._api, PATH, method="POST", body=body, connect=PATIENCE, silence=PATIENCE)
        except (client.Unreachable, client.StatusError) as error:
            self._failed(str(error)[:MAX_REASON])
            return None
        status = mapping(mapping(answer).get("status"))
        if status.get("allowed") is True:
            return True
        if why := string(status.get("evaluationError")):  # an authorizer that might have allowed it failed
            self._failed(why[:MAX_REASON])
            return None
        return False

    def _failed(self, why: str) -> None:
        if self._metrics is not None:
            self._metrics.broke(KIND)
        if self._bucket.ready(self._now()):
            self._bucket.take()
            way = f"the service account may lack the right to create {KIND}s; see `slicewarden doctor`"
            self._log({"message": "right not asked", "kind": KIND, "error": why, "caution": way})


def review(account: Account) -> Object:
    """Return the SubjectAccessReview that asks whether an account has the right in its namespace.

    Its groups are those of `authorizer.serviceAccount` in CEL, so that the fallback gets the same answer.
    """
    attributes = {"verb": VERB, "group": GROUP, "version": "*", "resource": RESOURCE, "name": NAME}
    spec: dict[str, object] = {"groups": [*account.groups]}
    if account.user:
        spec["user"] = account.user
    spec["resourceAttributes"] = {**attributes, "namespace": account.namespace}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": KIND, "spec": spec}
