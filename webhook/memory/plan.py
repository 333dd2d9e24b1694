"""Plans how one pod is capped: its budget, the steps for its containers, and the record of them.

The rule `uncapped-memory` and `explain` only write the plan out.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from webhook.allowance import LETTERS, Allowance
from webhook.api.pods import Container, EnvVar, Pod
from webhook.gpu.review import PodReview
from webhook.memory import annotation, command_line, environment, frameworks
from webhook.memory.annotation import Record
from webhook.memory.budget import MEMORY, Budget, Refused, Selection, Wish, smallest, wish
from webhook.memory.frameworks import pytorch
from webhook.memory.steps import Cap, Kind, Step, noted
from webhook.model import Path
from webhook.policy.model import Pool
from webhook.text.words import shown


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
    lowered_before: tuple[Lowered, ...] = ()

    @property
    def all_steps(self) -> tuple[Step, ...]:
        """The steps for its variables, then the one for its argument."""
        return self.steps if self.argument is None else (*self.steps, self.argument)


class Plan(NamedTuple):
    """How one pod is capped in its pool.

    `record` belongs in the pod, and `before` is the one that stands there; `noted` says that something was lowered or
    is uncapped in this pod alone.
    """

    pod: Pod
    pool: Pool
    cap: Cap
    containers: tuple[ContainerPlan, ...]
    before: Record | None
    record: Record
    noted: bool

    @property
    def budget(self) -> Budget:
        """The memory that one process may take."""
        return self.cap.budget

    @property
    def advice(self) -> str:
        """A warning where the GPU's memory is the host's; nothing elsewhere."""
        if not self.budget.unified:
            return ""
        without = " and ".join(framework.title for framework in frameworks.walk() if framework.fractions_only)
        return (
            f"the GPUs of pool {self.pool.name} name the host's memory as theirs, of which a fraction is no cap: "
            f"{without} have none"
        )

    def missing(self, names: Sequence[str]) -> str:
        """Say that variables are missing, and what to do."""
        return (
            f"no {', '.join(names)}, so a process may take more than its {self.budget.least} MiB of a GPU of pool "
            f"{self.pool.name}; create it where Slicewarden's mutating webhook is in force, and undo none of its "
            "changes"
        )

    def past(self, lowered: Lowered) -> str:
        """Say that a variable was lowered earlier."""
        return f"{lowered.name} was {lowered.old}, and was set to what a slice of pool {self.pool.name} allows"

    def records(self, *, changes: bool) -> bool:
        """Tell whether the record has to be written into the pod, which the plan `changes` or not.

        Only what is created can be written into; the record need not follow an image that is exchanged later.
        """
        if self.pod.template or (self.before is not None and self.before.stands_for(self.record)):
            return False
        there, old = self.pod.annotations.get(annotation.KEY), self.pod.old
        if old is not None and not changes and old.annotations.get(annotation.KEY) == there:
            return False
        return changes or self.noted or there is not None


def plan(review: PodReview, pool: Pool) -> Plan | Problem:
    """Plan the caps of a pod that belongs in a pool whose pods are capped."""
    pod, cap = review.subject, size(review, pool)
    if isinstance(cap, Problem):
        return cap
    before = _before(pod, pool, cap)
    asking = {request.container.path: request.container for request in review.requests}
    containers = tuple([_container(container, cap, before, review.allowance) for container in asking.values()])
    lowered: list[str] = []
    uncapped: list[str] = []
    for part in containers:
        if spoken := [step for step in part.all_steps if step.words.note or step.kind is Kind.LOWER]:
            name = shown(part.name, quotes=False)[:63]
            uncapped += [f"{name}: {noted(step, cap.budget)}" for step in spoken if step.words.note]
            lowered += [annotation.lowered(name, step.name, step.old) for step in spoken if step.kind is Kind.LOWER]
    if before is not None:
        lowered = [*before.still({past.entry for part in containers for past in part.lowered_before}), *lowered]
    record = annotation.of(pool, cap, lowered, uncapped)
    return Plan(pod, pool, cap, containers, before, record, noted=bool(lowered or uncapped))


def size(review: PodReview, pool: Pool) -> Cap | Problem:
    """Size the cap of a pod that belongs in a pool whose pods are capped."""
    pod, policy, facts = review.subject, review.policy, review.facts
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
    return _too_small(pool, budget, whole, wished) or Cap(budget, policy, torch, doubted)


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


def _before(pod: Pod, pool: Pool, cap: Cap) -> Record | None:
    """Read the record that stands in a pod; a template has none."""
    there = None if pod.template else pod.annotations.get(annotation.KEY)
    if there is None:
        return None
    plain = annotation.plain(pool, cap)
    return plain if there == plain.text else annotation.read(there)


def _container(container: Container, cap: Cap, before: Record | None, allowance: Allowance) -> ContainerPlan:
    env = container.variables(environment.KNOWN)
    values = {name: variable.value for name, variable in env.items()}
    allowance.spend("settings", sum(len(value or "") for value in values.values()) // LETTERS)
    image = container.image
    steps = environment.merge(values, cap, image)
    if container.spec.get("envFrom"):
        steps = (*steps, *environment.from_elsewhere(environment.applied(values, steps), container.env_from))
    argument = command_line.merge(image, container.words, cap.budget, append=cap.policy.append_arguments)
    past: tuple[Lowered, ...] = ()
    if before is not None and before.lowered:
        history = before.history(container.name, values)
        past = tuple([Lowered(entry, name, old, (*env[name].path, "value")) for entry, name, old in history])
    return ContainerPlan(container.name, container.path, env, steps, argument, past)
