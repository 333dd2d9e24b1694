"""Calls the API server in a separate thread, so that no look waits for it."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from webhook.agent.actions import NodeAction
from webhook.agent.observe.view import NodeContainer


class ApiCalls:
    """Runs actions that call the API server, one after another in the background."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "api-calls")
        self._calls: list[tuple[NodeAction, Future[str]]] = []

    def submit(self, action: NodeAction, call: Callable[[], str]) -> None:
        """Queue an action. `call` carries it out and returns its outcome."""
        self._calls.append((action, self._thread.submit(call)))

    @property
    def pending(self) -> tuple[NodeAction, ...]:
        """The actions whose calls have not finished."""
        return tuple(action for action, future in self._calls if not future.done())

    def evict(self, action: NodeAction, call: Callable[[NodeContainer], str]) -> None:
        """Queue the eviction of an action's pod, unless one of the same pod still waits for its answer."""
        target = action.target
        waiting = {each.target.uid for each in self.pending if each.target is not None}
        if target is not None and target.uid not in waiting:
            self.submit(action, lambda: call(target))

    def finished(self) -> Iterator[NodeAction]:
        """Yield the actions that have finished since the last call. Raises the exception of a failed call."""
        calls, self._calls = self._calls, []
        for action, future in calls:
            if future.done():
                yield action._replace(outcome=future.result())
            else:
                self._calls.append((action, future))

    def close(self) -> Iterator[NodeAction]:
        """Cancel the calls that have not begun, and yield the actions whose calls have finished."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._calls = [(action, future) for action, future in self._calls if not future.cancelled()]
        return self.finished()
