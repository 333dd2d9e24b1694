"""Models a cluster during a change of policy, and visits every order in which events can happen.

Two API servers see changes of the two configurations late, each at its own time. Two replicas load policies late, and
may end and come back. Two controllers write what they decided from what they read. Meanwhile one request is on its way
through `/mutate` and `/validate`. The controllers decide by `webhook.controller.order.due`; the model only provides
what they observe.

A test can make a change go wrong by false observations of a controller (`blind`), or by other steps (`steps`).
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from webhook.controller import order
from webhook.controller.order import Names, Place, Seen, Write
from webhook.engine.paths import MUTATE, VALIDATE, Manner, Name

P, Q = Name("P", Manner.ENFORCE), Name("Q", Manner.ENFORCE)
P_AUDIT, Q_AUDIT = Name("P", Manner.AUDIT), Name("Q", Manner.AUDIT)

RAW = "r"
"""The form of a pod that nobody patched; other forms are those of the policy, or of the release, that patched it."""


@dataclass(frozen=True)
class Pod:
    """A pod: the policies whose conditions match it, and the forms of it that each policy accepts."""

    asked: str
    accepted: Mapping[str, str]


PODS = {
    "plain": Pod("", {}),
    "good": Pod("PQ", {"P": "P", "Q": "Q"}),
    "bad": Pod("PQ", {"P": "", "Q": ""}),
    "narrowed": Pod("PQ", {"P": "P", "Q": ""}),
    "widened": Pod("PQ", {"P": "", "Q": "Q"}),
    "newly asked": Pod("Q", {"P": "rPQ", "Q": ""}),
    "newly patched": Pod("Q", {"P": "rPQ", "Q": "Q"}),
    "no longer asked": Pod("P", {"P": "", "Q": "rPQ"}),
    "no longer patched": Pod("P", {"P": "P", "Q": "rPQ"}),
}
"""Patches of the two are unacceptable to each other, which is the worst case."""


@dataclass(frozen=True)
class Order:
    """A change of policy, and how its writes are decided.

    `blind` are the observations that a controller makes up: `replicas`, `servers`, `requests`, or `version` if its
    writes carry no resourceVersion. `steps` replaces the order of writes. Without `paths` a replica answers by the
    policy that it loaded last. With `releases`, P and Q are two releases of one policy. A `start` of two policies is a
    change that has begun: `/mutate` names the first. If it `turns` after a number of writes, the target becomes the
    start again.
    """

    start: Names
    target: Name | None
    blind: frozenset[str] = frozenset()
    steps: tuple[Write, ...] = ()
    paths: bool = True
    releases: bool = False
    turns: int | None = None
    written: tuple[Write, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "written", self.steps or self._steps())

    def _steps(self) -> tuple[Write, ...]:
        """The writes that follow each other when nothing has to be waited for."""
        done: list[Write] = []
        while following := self.due(len(done), done, self._best(done)):
            assert isinstance(following, Write), following
            done.append(following)
            assert len(done) < 10, done
        return tuple(done)

    def _best(self, done: list[Write]) -> Seen:
        """What a controller sees when everything is as it should be."""
        releases = frozenset("Q" if any(each.what == order.RELEASES for each in done) else "PQ")
        return Seen(frozenset("PQD"), releases if self.releases else frozenset("1"), called=True, drained=True)

    def place(self, step: int, done: list[Write] | tuple[Write, ...] = ()) -> Place:
        """Return the state of the change after a number of writes."""
        place = Place(self.start, self.start[:1], frozenset("P") if self.releases else frozenset("1"))
        for each in (done or self.written)[:step]:
            place = place.after(each)
        return place

    def due(self, step: int, done: list[Write] | tuple[Write, ...], seen: Seen) -> object:
        """Return the decision of a controller."""
        if self.steps:
            return self._other(step, seen)
        turned = self.turns is not None and step >= self.turns
        return order.due(self.place(step, done), self.start[0] if turned else self.target, seen)

    def _other(self, step: int, seen: Seen) -> object:
        """Decide by `steps`, with the same things to wait for."""
        if step == len(self.steps):
            return None if seen.called else order.Wait.SERVERS
        following = self.steps[step]
        if not {name.digest for name in following.names} <= seen.held:
            return order.Wait.REPLICAS
        if not seen.called:
            return order.Wait.SERVERS
        last = step == len(self.steps) - 1
        return order.Wait.REQUESTS if last and not seen.drained else following


class Request(NamedTuple):
    """A pod on its way: the API server, its form (empty before `/mutate`), whether the change was done at its start,
    and how many writes that API server had seen of `/mutate`."""

    server: int
    form: str
    after: bool
    met: int


class State(NamedTuple):
    """All that may differ: the writes so far, what each API server has seen of both configurations, the replicas (up,
    and what each holds), the controllers (what each read, and the write that it decided), and the request."""

    step: int
    servers: tuple[tuple[int, int], ...]
    replicas: tuple[tuple[bool, str], ...]
    controllers: tuple[tuple[int, object], ...]
    done: bool
    request: Request | None


UNREAD = -1
DONE = "done"
Next = tuple[str, State, str]
"""What happens, the state then, and what is wrong with it (empty: nothing)."""


class Model:
    """Visits every state of an order for one kind of pod."""

    def __init__(self, change: Order, pod: str) -> None:
        self.order, self.kind, self.pod = change, pod, PODS[pod]
        self.last = len(change.written)
        self.places = [change.place(step) for step in range(self.last + 1)]
        self.wanted = "Q" if change.releases else change.target.digest if change.target else ""
        ends: list[Names] = [(name,) for name in change.start] or [()]
        ends += [(change.target,)] if change.turns is not None and change.target else []
        self.may = [self._may(names) for names in (*ends, self.places[-1].validate)]
        self.due = cache(lambda step, seen: change.due(step, (), seen))

    def first(self) -> State:
        held = "P" if self.order.releases else "".join(name.digest for name in self.order.start)
        return State(0, ((0, 0), (0, 0)), ((True, held),) * 2, ((UNREAD, None),) * 2, False, None)

    def check(self) -> tuple[int, list[str]]:
        """Return the number of states, and the shortest way to a bad one; empty if there is none."""
        first = self.first()
        came: dict[State, tuple[State, str] | None] = {first: None}
        queue = deque([first])
        while queue:
            state = queue.popleft()
            for what, new, wrong in self.after(state):
                if wrong:
                    way = [f"{what}: {wrong}"]
                    while (before := came[state]) is not None:
                        way.append(before[1])
                        state = before[0]
                    return len(came), way[::-1]
                new = self.same(new)
                if new not in came:
                    came[new] = (state, what)
                    queue.append(new)
        if not any(state.done for state in came):
            return len(came), ["the change is never done"]
        return len(came), []

    def same(self, state: State) -> State:
        """Return the one of all equivalent states that stands for them: which of two is which makes no difference.

        A controller whose write would be refused has nothing but to read again.
        """
        controllers = state.controllers
        if "version" not in self.order.blind:
            controllers = tuple(each if each[0] == state.step else (UNREAD, None) for each in controllers)
        servers, request = state.servers, state.request
        if request is None:
            servers = _ordered(servers)
        elif request.server:
            servers, request = servers[::-1], request._replace(server=0)
        if _decided(controllers[0]) > _decided(controllers[1]):
            controllers = controllers[::-1]
        return State(state.step, servers, _ordered(state.replicas), controllers, state.done, request)

    def after(self, state: State) -> Iterator[Next]:
        yield from self._replicas(state)
        yield from self._servers(state)
        for number in range(len(state.controllers)):
            yield from self._controller(state, number)
        if state.request is None:
            for server in range(len(state.servers)):
                yield f"{self.kind} pod at {server}", state._replace(request=Request(server, "", state.done, 0)), ""
        else:
            yield from self._request(state, state.request)

    def _replicas(self, state: State) -> Iterator[Next]:
        admitted = self.places[state.step].admitted
        for i, (up, held) in enumerate(state.replicas):
            if up and self.wanted not in held and self._admits(admitted, self.wanted, "admission"):
                new = held + self.wanted if self.order.paths and not self.order.releases else self.wanted
                yield f"replica {i} has {new}", _replica(state, i, up=True, held=new), ""
            if up and any(other for j, (other, _) in enumerate(state.replicas) if j != i):
                yield f"replica {i} ends", _replica(state, i, up=False, held=held), ""
            if not up and self._admits(admitted, held, "withdrawal"):
                loaded = "".join(sorted({*held, self.wanted}))
                new = loaded if self.order.paths and not self.order.releases else held
                yield f"replica {i} comes back", _replica(state, i, up=True, held=new), ""

    def _admits(self, admitted: frozenset[str], release: str, check: str) -> bool:
        """Whether a replica of a release may become ready."""
        return not self.order.releases or release in admitted or check in self.order.blind

    def _servers(self, state: State) -> Iterator[Next]:
        for i, seen in enumerate(state.servers):
            for half, name in enumerate((VALIDATE, MUTATE)):
                if seen[half] < state.step:
                    now = _put(seen, half, seen[half] + 1)
                    step, servers, replicas, controllers, done, request = state
                    after = State(step, _put(servers, i, now), replicas, controllers, done, request)
                    yield f"server {i} sees {name} {now[half]}", after, ""

    def _controller(self, state: State, i: int) -> Iterator[Next]:
        read, decided = state.controllers[i]
        if read != state.step:
            yield f"controller {i} reads", _controlled(state, i, state.step, None), ""
        if read == UNREAD:
            return
        if decided is None:
            decision = self.due(read, self._seen(state, read))
            if decision is None:
                yield f"controller {i} finds it done", _controlled(state, i, read, DONE), ""
            elif isinstance(decision, Write):
                if read == self.last or decision != self.order.written[read]:
                    return  # another release was seen than in the order that is checked: that is another order
                yield f"controller {i} decides {decision}", _controlled(state, i, read, decision), ""
            return
        if read != state.step and "version" not in self.order.blind:
            return  # refused: somebody wrote since
        if decided == DONE:
            if not state.done and read == state.step:
                yield f"controller {i} says done", state._replace(done=True), ""
            return
        back = tuple((min(v, read + 1), min(m, read + 1)) for v, m in state.servers)
        servers = back if read + 1 < state.step else state.servers
        written = _controlled(state, i, UNREAD, None)._replace(step=read + 1, servers=servers)
        yield f"controller {i} writes {decided}", written, self._closed(state, read)

    def _closed(self, state: State, read: int) -> str:
        """Whether a write fails closed while no replica can answer what it names."""
        names = self.places[read + 1].validate
        if not names or any(name.manner is Manner.AUDIT for name in names) or not self.order.paths:
            return ""
        able = any(up and self._holds(held, names) for up, held in state.replicas)
        return "" if able else "I4: it fails closed, and no replica can answer"

    def _holds(self, held: str, names: Names) -> bool:
        return self.order.releases or all(name.digest in held for name in names)

    def _seen(self, state: State, read: int) -> Seen:
        """What a controller observes at this moment, or makes up."""
        up = [held for is_up, held in state.replicas if is_up]
        held = frozenset("PQ") if "replicas" in self.order.blind else frozenset.intersection(*map(frozenset, up))
        called = all(v >= read and m >= read for v, m in state.servers) or "servers" in self.order.blind
        releases = frozenset("1")
        if self.order.releases:
            held = frozenset("D")
            # Until all replicas are of the new release, one of them is there that waits to become ready.
            rolling = any(one != self.wanted for _, one in state.replicas)
            releases = frozenset(up) | (frozenset(self.wanted) if rolling else frozenset())
        return Seen(held, releases, called, self._drained(state, read) or "requests" in self.order.blind)

    def _drained(self, state: State, read: int) -> bool:
        request = state.request
        if request is None or not request.form:
            return True
        if self.order.releases and request.form != RAW:  # until what the older release patched has ended
            return request.form == self.wanted or ("count" in self.order.blind and request.met >= read)
        return request.met >= read

    def _request(self, state: State, request: Request) -> Iterator[Next]:
        v, m = state.servers[request.server]
        names = self.places[v].validate if request.form else self.places[m].mutate
        closed = bool(names) and bool(request.form) and all(name.manner is not Manner.AUDIT for name in names)
        for answering, result in self._answers(state, names, request.form, closed=closed):
            if not request.form:
                patched = request._replace(form=str(result), met=m)
                yield f"patched by {answering}", state._replace(request=patched), self._judged_plain(answering)
            else:
                allowed = bool(result)
                wrong = self._judged_plain(answering) or self._judged(allowed, request.after)
                what = f"{'admitted' if allowed else 'refused'} by {answering}"
                yield what, state._replace(request=None), wrong

    def _answers(self, state: State, names: Names, form: str, *, closed: bool) -> set[tuple[str, object]]:
        """What may come of a request: the form after `/mutate`, or whether the pod is admitted."""
        if not names or not all(self._asks(name) for name in names):
            return {("nobody", RAW if not form else True)}
        out: set[tuple[str, object]] = set()
        for up, held in state.replicas:
            if not up:
                continue
            if self.order.paths and not self._holds(held, names):
                out.add(("no policy", RAW if not form else not closed))
            elif not form:
                (name,) = names
                out.add((str(name), RAW if name.manner is Manner.AUDIT else self._judge(name, held)))
            else:
                out.add((".".join(map(str, names)), any(self._accepts(name, held, form) for name in names)))
        return out

    def _judge(self, name: Name, held: str) -> str:
        if self.order.releases:
            return held
        return name.digest if self.order.paths else held[-1]

    def _asks(self, name: Name) -> bool:
        return bool(self.pod.asked) if self.order.releases else name.digest in self.pod.asked

    def _accepts(self, name: Name, held: str, form: str) -> bool:
        if name.manner is Manner.AUDIT:
            return True
        accepted = self.pod.accepted.get(self._judge(name, held), "rPQ")
        return bool(accepted) if name.manner is Manner.LENIENT else form in accepted

    def _may(self, names: Names) -> bool:
        """Whether a pod is let in by what holds at one end of the change."""
        if not names or any(name.manner is Manner.AUDIT for name in names):
            return True
        (name,) = names
        if self.order.releases:
            return all(self.pod.accepted.get(each, "rPQ") for each in "PQ")
        return not self._asks(name) or bool(self.pod.accepted[name.digest])

    def _judged_plain(self, answering: str) -> str:
        return "I5: a plain pod depends on a replica" if self.kind == "plain" and answering != "nobody" else ""

    def _judged(self, allowed: bool, after: bool) -> str:
        if allowed and not any(self.may):
            return "I1: what every policy denies was admitted"
        if not allowed and all(self.may):
            return "I2: what every policy allows was refused"
        if after and allowed != self.may[-1]:
            return "I3: after it was done, the policy before answered"
        return ""


@cache
def _decided(controller: tuple[int, object]) -> tuple[int, str]:
    return controller[0], str(controller[1])


def _ordered(two: tuple) -> tuple:  # type: ignore[type-arg]
    return two if two[0] <= two[1] else two[::-1]


def _put(two: tuple, i: int, item: object) -> tuple:  # type: ignore[type-arg]
    return (two[0], item) if i else (item, two[1])


def _replica(state: State, i: int, *, up: bool, held: str) -> State:
    step, servers, replicas, controllers, done, request = state
    return State(step, servers, _put(replicas, i, (up, held)), controllers, done, request)


def _controlled(state: State, i: int, read: int, decided: object) -> State:
    step, servers, replicas, controllers, done, request = state
    return State(step, servers, replicas, _put(controllers, i, (read, decided)), done, request)


def check(change: Order) -> tuple[int, str]:
    """Visit every state for every kind of pod. Return the number of states, and the first bad way; empty for none."""
    total = 0
    for pod in RELEASED if change.releases else PODS:
        states, way = Model(change, pod).check()
        total += states
        if way:
            return total, f"{pod}: {' > '.join(way)}"
    return total, ""


RELEASED = ("plain", "good", "bad")
"""Two releases judge by one policy: a pod is allowed by both, or by none."""
