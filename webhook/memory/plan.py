"""The plan of how one pod is capped: its budget, the steps for its containers, and the record of them.

The rule `uncapped-memory`, the annotation and `explain` only write it out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from webhook.facts import Facts
from webhook.gpus import asks
from webhook.memory import annotation, command_line, environment
from webhook.memory.annotation import Record
from webhook.memory.budget import MEMORY, Budget, Refused, Selection, Wish, smallest, wish
from webhook.memory.frameworks import pytorch
from webhook.memory.steps import Cap, Kind, Step, noted
from webhook.model import Path, shown
from webhook.pods import Container, EnvVar, Pod
from webhook.policy import Policy, Pool


class Problem(NamedTuple):
    """The reason why a pod is refused instead of being capped.

    `annotation` is the one at fault, empty where none is; `budget` is None where it is not known.
    """

    message: str
    annotation: str = ""
    budget: Budget | None = None


class Lowered(NamedTuple):
    """A variable that holds what it was lowered to earlier, its former value, and the entry of the record for it."""

    entry: str
    name: str
    old: str
    path: Path


class ContainerPlan(NamedTuple):
    """The steps for one container: `steps` for its variables, which stand in `env`, and `argument`."""

    name: str
    path: Path
    env: Mapping[str, EnvVar]
    steps: tuple[Step, ...]
    argument: Step | None
    lowered_before: tuple[Lowered, ...]


@dataclass(frozen=True, eq=False)
class Plan:
    """How one pod is capped in its pool. The steps and the record are computed when they are asked for."""

    pod: Pod
    pool: Pool
    cap: Cap

    @property
    def budget(self) -> Budget:
        """The memory that one process may take."""
        return self.cap.budget

    @cached_property
    def before(self) -> Record | None:
        """The record that stands in the pod; a template has none."""
        there = None if self.pod.template else self.pod.annotations.get(annotation.KEY)
        if there is None:
            return None
        plain = annotation.plain(self.pool.name, self.cap)
        return plain if there == plain.text else annotation.read(there)

    @cached_property
    def containers(self) -> tuple[ContainerPlan, ...]:
        """The steps for every container that asks for a GPU."""
        containers = {ask.container.path: ask.container for ask in asks(self.pod, self.cap.policy)}
        return tuple([_container(container, self.cap, self.before) for container in containers.values()])

    @cached_property
    def record(self) -> Record:
        """The record that belongs in the pod."""
        lowered, uncapped = [], []
        for part in self.containers:
            steps = part.steps if part.argument is None else (*part.steps, part.argument)
            uncapped += [f"{part.name}: {noted(step, self.budget)}" for step in steps if step.words.note]
            lowered += [annotation.lowered(part.name, step.name, step.old) for step in steps if step.kind is Kind.LOWER]
        if self.before is not None:
            past = {past.entry for part in self.containers for past in part.lowered_before}
            lowered = [*self.before.still(past), *lowered]
        return annotation.of(self.pool.name, self.cap, lowered, uncapped)

    def records(self, *, changes: bool) -> bool:
        """Tell whether the record has to be written into the pod, which the plan `changes` or not.

        Only what is created can be written into; the record need not follow an image that is exchanged later.
        """
        if self.pod.template or (self.before is not None and self.before.stands_for(self.record)):
            return False
        there, old = self.pod.annotations.get(annotation.KEY), self.pod.old
        if old is not None and not changes and old.annotations.get(annotation.KEY) == there:
            return False
        return changes or there is not None or self.record != annotation.plain(self.pool.name, self.cap)


def plan(pod: Pod, pool: Pool, policy: Policy, facts: Facts) -> Plan | Problem:
    """Plan the caps of a pod that belongs in a pool whose pods are capped."""
    try:
        wished = wish(pod.annotations)
    except Refused as error:
        return Problem(error.message, error.annotation)
    selection = Selection.of(pod, pool)
    budget = smallest(pool, policy, facts, wished, selection)
    whole = budget if wished.memory is None else smallest(pool, policy, facts, wished._replace(memory=None), selection)
    try:
        torch, doubted = pytorch.release(pod.annotations, policy.torch(pod.namespace, pool.name), strict=policy.strict)
    except Refused as error:
        return Problem(error.message, error.annotation, budget)
    if budget is None or whole is None:
        return Problem(
            f"no cap can be sized: no node of pool {pool.name} has the labels nvidia.com/gpu.memory and "
            "nvidia.com/gpu.replicas; wait for GPU Feature Discovery, or give the pool `assume` in the policy"
        )
    return _too_small(pool, budget, whole, wished) or Plan(pod, pool, Cap(budget, policy, torch, doubted))


def _too_small(pool: Pool, budget: Budget, whole: Budget, wished: Wish) -> Problem | None:
    """Say what is wrong with the size of a slice, or with the part of it that the pod asks for."""
    if not whole.enough:
        way = "the pool needs fewer replicas, or the pod another pool"
        if wished.processes > 1:
            way = "ask for fewer processes, or for another pool"
        message = f"a slice of pool {pool.name} is too small for a framework: {whole.arithmetic}; {way}"
        return Problem(message, budget=budget)
    most = whole.least * wished.processes
    if wished.memory is not None and wished.memory > most:
        each = f" for each of {wished.processes} processes" if wished.processes > 1 else ""
        return Problem(
            f"{wished.memory} MiB are more than a slice of pool {pool.name} has: {whole.arithmetic}{each}; ask for "
            f"{most}Mi at most",
            MEMORY,
            budget,
        )
    if not budget.enough:
        return Problem(
            f"what the pod asks for of a slice of pool {pool.name} is too small for a framework: {budget.arithmetic}; "
            "ask for more memory or fewer processes",
            budget=budget,
        )
    return None


def _container(container: Container, cap: Cap, before: Record | None) -> ContainerPlan:
    env = container.variables(environment.KNOWN)
    values = {name: variable.value for name, variable in env.items()}
    image = container.image
    steps = environment.merge(values, cap, image)
    if container.spec.get("envFrom"):
        steps = (*steps, *environment.from_elsewhere(environment.applied(values, steps), container.env_from))
    argument = command_line.merge(image, container.words, cap.budget, append=cap.policy.append_arguments)
    history = before.history(container.name, values) if before is not None and before.lowered else ()
    past = tuple([Lowered(entry, name, old, (*env[name].path, "value")) for entry, name, old in history])
    name = shown(container.name, quotes=False)[:63]
    return ContainerPlan(name, container.path, env, steps, argument, past)
