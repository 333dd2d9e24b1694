"""Plans how one pod is capped: its budget, the steps for its containers, and its record.

The rule `uncapped-memory` and `explain` only present the plan.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from webhook.allowance import LETTERS, Allowance
from webhook.api.pods import Container, EnvVar, Pod
from webhook.facts import images
from webhook.facts.images import ImageSetting
from webhook.gpu import requests
from webhook.gpu.claims import containers_of, slice_of
from webhook.gpu.requests import GPURequest
from webhook.gpu.review import PodReview
from webhook.gpu.selection import Selection
from webhook.memory import annotation, command_line, environment, frameworks, hami
from webhook.memory.annotation import Record
from webhook.memory.budget import MEMORY, PROCESSES, Budget, InvalidAnnotation, Wish, smallest, wish
from webhook.memory.driver import images as image_limits
from webhook.memory.driver import nodes
from webhook.memory.driver.images import ImageLimit
from webhook.memory.frameworks import pytorch
from webhook.memory.shim import delivery
from webhook.memory.shim.delivery import Delivery
from webhook.memory.steps import LOWER, Cap, Step, StepKind, noted
from webhook.model import Finding, Path
from webhook.policy.model import Pool
from webhook.text.words import listed, shown

Shim = Callable[[Container, Mapping[str, EnvVar]], Delivery | None]
"""Gives the shim to a container with these variables, if possible; None if the pod gets no shim."""


class CapRefusal(NamedTuple):
    """The reason why a pod is refused instead of capped.

    `annotation` is the faulty annotation, or empty. `budget` is None if it is unknown.
    """

    message: str
    annotation: str = ""
    budget: Budget | None = None


class Lowered(NamedTuple):
    """A lowered variable that still has its new value, with its value before and its entry in the record."""

    entry: str
    name: str
    old: str
    path: Path


class ContainerPlan(NamedTuple):
    """The steps that cap one container: `steps` for its variables (`env`), and `argument` for its command."""

    name: str
    path: Path
    env: Mapping[str, EnvVar]
    steps: tuple[Step, ...]
    argument: Step | None
    lowered_before: tuple[Lowered, ...] = ()
    shim: Delivery | None = None
    limited: str = ""
    """The program that an argument limits, empty for none."""
    hami: str = ""
    """The sign that HAMi-core limits the container, empty for none."""
    image: str = ""
    limit: int = 0
    """The MiB to which NVIDIA's hook has the driver limit the container, 0 if no variables say so."""
    driven: bool = False
    """Whether the driver limits the container, by the hook or by the agent."""
    image_limit: ImageLimit | None = None
    """Why the driver's limit may be that of its image; None if it cannot, or if the driver does not limit it."""

    @property
    def hooked(self) -> bool:
        """Whether NVIDIA's hook limits the container to `limit`, as far as the variables of its image are known."""
        return bool(self.limit) and not (self.image_limit is not None and self.image_limit.known)

    @property
    def shown(self) -> str:
        """The container's name as the record writes it."""
        return _shown(self.name)

    @property
    def all_steps(self) -> tuple[Step, ...]:
        """The steps for the container's variables, and the one for its argument."""
        return self.steps if self.argument is None else (*self.steps, self.argument)


class CapPlan(NamedTuple):
    """The plan of how one pod is capped in its pool.

    `record` is the record that the pod should have, and `before` the one that it has. `noted` is true if something was
    lowered, or is uncapped only in this pod.
    """

    pod: Pod
    pool: Pool
    cap: Cap
    containers: tuple[ContainerPlan, ...]
    before: Record | None
    record: Record
    noted: bool
    late: str = ""
    """Why the driver's limits are set only after the start of its containers, by the agent; empty if variables do."""
    shim: tuple[Finding, ...] = ()
    """The parts of the shim that the pod lacks, in addition to those that its containers lack."""

    @property
    def budget(self) -> Budget:
        """The memory that one process may take."""
        return self.cap.budget

    @property
    def advice(self) -> str:
        """A warning if the GPU uses the host's memory; otherwise empty."""
        if not self.budget.unified:
            return ""
        everywhere = [each.title for each in frameworks.walk() if each.fractions_only and not each.image]
        return (
            f"the GPUs of pool {self.pool.name} use the host's memory, so a fraction of it caps nothing; "
            f"{' and '.join(everywhere)} have no cap there"
        )

    def missing(self, names: Sequence[str]) -> str:
        """Return a sentence: which variables the pod lacks, and the effect."""
        may = "learns only from the driver's refusal that it has" if self.cap.driver else "may take more than its"
        return (
            f"the container does not set {listed(names, 3)}, so a process {may} {self.budget.least} MiB of a GPU in "
            f"pool {self.pool.name}"
        )

    def past(self, lowered: Lowered) -> str:
        """Return a sentence about a variable that was lowered earlier."""
        return f"Slicewarden lowered {lowered.name} from {lowered.old} to what a slice of pool {self.pool.name} allows"

    def records(self, *, changes: bool) -> bool:
        """Return whether the record must be written into the pod. `changes` says whether the plan changes the pod.

        Only a pod that is created can be written to. The record is not updated when the image changes later.
        """
        if self.pod.template or (self.before is not None and self.before.stands_for(self.record)):
            return False
        there, old = self.pod.annotations.get(annotation.KEY), self.pod.old
        if old is not None and not changes and old.annotations.get(annotation.KEY) == there:
            return False
        return changes or self.noted or there is not None


def plan(review: PodReview, pool: Pool, allowance: Allowance) -> CapPlan | CapRefusal:
    """Plan the caps of a pod in a pool with capped pods. Reading its settings costs units. Raises TooLarge."""
    pod, cap = review.subject, size(review, pool)
    if isinstance(cap, CapRefusal):
        return cap
    before = _before(pod, pool, cap)
    asking = {request.container.path: request.container for request in review.requests}
    if review.claims:
        asking |= containers_of(review.claims)
    try:
        shim = _shim(review, pool, cap)
    except InvalidAnnotation as error:
        return CapRefusal(error.message, error.annotation, cap.budget)
    plugins = {entry.container.path: entry.name for entry in review.extended_resources if entry.name in hami.RESOURCES}
    driven = _driven(review) if cap.driver and not cap.budget.unified else {}
    late = nodes.in_the_way(review, pool) if driven else ""
    limits = {} if late else {at: cap._replace(limit=cap.budget.limit(slices)) for at, slices in driven.items()}
    containers = tuple(
        [
            _container(one, limits.get(at, cap), before, shim, plugins.get(at, ""), allowance)
            for at, one in asking.items()
        ]
    )
    if driven:
        doubts = _image_limits(review, {path: (asking[path], cap.budget.limit(n)) for path, n in driven.items()})
        containers = tuple(
            [
                part._replace(driven=at in driven, image_limit=doubts.get(at))
                for at, part in zip(asking, containers, strict=True)
            ]
        )
    lists = _lists(containers, cap)
    if before is not None and before.lowered:
        lists["lowered"][:0] = before.still({past.entry for part in containers for past in part.lowered_before})
    read = lists["shim"]
    shimmed = cap._replace(shim=True) if read and len(read) == len(containers) else cap
    record = annotation.of(pool, shimmed, **lists)
    given = any(part.shim is not None and part.shim.given for part in containers)
    lacking = tuple(delivery.pod_findings(pod)) if given else ()
    return CapPlan(pod, pool, cap, containers, before, record, noted=any(lists.values()), late=late, shim=lacking)


def _driven(review: PodReview) -> Mapping[Path, int]:
    """Return the slices of each container that the driver can limit, by path: no claims and no MIG devices."""
    by_path: dict[Path, list[GPURequest]] = {}
    for request in review.requests:
        by_path.setdefault(request.container.path, []).append(request)
    counted = {path: requests.slices(own) for path, own in by_path.items()}
    return {path: slices for path, slices in counted.items() if slices}


def _image_limits(review: PodReview, driven: Mapping[Path, tuple[Container, int]]) -> Mapping[Path, ImageLimit | None]:
    """Judge the images of containers that the driver limits, each with its MiB, by path."""
    namespaces = sorted(review.policy.sharing_namespaces)
    return {
        path: image_limits.judge(review.facts, namespaces, container.reference, most)
        for path, (container, most) in driven.items()
    }


def _lists(containers: Iterable[ContainerPlan], cap: Cap) -> dict[str, list[str]]:
    """Return the entries of the record about containers, by list."""
    lists: dict[str, list[str]] = {name: [] for name in annotation.LISTS}
    for part in containers:
        for step in part.all_steps:
            if step.words.note and not cap.driver:
                lists["uncapped"].append(f"{part.shown}: {noted(step, cap.budget)}")
            if step.kind is LOWER:
                lists["lowered"].append(annotation.lowered(part.shown, step.name, step.old))
        if part.driven:
            lists["driver"].append(part.shown)
        if part.hooked:
            lists["hook"].append(f"{part.shown}: {part.limit} MiB")
        if part.hami:
            lists["hami"].append(f"{part.shown}: {part.hami}")
        if part.limited:
            lists["argument"].append(f"{part.shown}: {part.limited}")
        if part.shim is not None:
            if part.shim.note:
                lists["uncapped"].append(f"{part.shown}: no shim: {part.shim.note}")
            if part.shim.unread:
                lists["uncapped"].append(f"{part.shown}: no shim: {part.shim.unread} does not read it")
            if part.shim.caps:
                lists["shim"].append(f"{part.shown}: {delivery.CAPS}")
    return lists


def _shim(review: PodReview, pool: Pool, cap: Cap) -> Shim:
    """Return the function that gives the shim to the containers of a pod. Raises Refused.

    The PYTHONPATH of an image comes from the pod's annotation, else from the list of images, else from the policy.
    """
    pod, policy = review.subject, cap.policy
    stated = delivery.image_path(pod)
    if cap.driver or not delivery.wanted(pod, policy, cap.budget):
        return lambda _, __: None
    runs = pod.old is not None and not pod.template

    def deliver(container: Container, env: Mapping[str, EnvVar]) -> Delivery:
        if stated is not None:
            known = ImageSetting(stated)
        else:
            known = images.find(review.facts, sorted(policy.sharing_namespaces), container.reference)
            if known.path is None and not known.why:
                known = ImageSetting(policy.python_path(pod.namespace, pool.name, container.reference))
        return delivery.deliver(container, env, cap.budget, known, strict=policy.strict, runs=runs)

    return deliver


def size(review: PodReview, pool: Pool) -> Cap | CapRefusal:
    """Compute the cap of a pod that belongs to a pool with capped pods."""
    pod, policy, facts = review.subject, review.policy, review.facts
    try:
        wished = wish(pod.annotations)
    except InvalidAnnotation as error:
        return CapRefusal(error.message, error.annotation)
    if review.claims:
        wished = wished._replace(claimed=slice_of(review.claims, pool))
    selection = Selection.of(pod, pool)
    budget = smallest(pool, policy, facts, wished, selection)
    whole = budget if wished.memory is None else smallest(pool, policy, facts, wished._replace(memory=None), selection)
    try:
        torch, doubted = pytorch.release(pod.annotations, policy.torch(pod.namespace, pool.name), strict=policy.strict)
    except InvalidAnnotation as error:
        return CapRefusal(error.message, error.annotation, budget)
    if budget is None and wished.claimed is not None:
        return CapRefusal(
            f"no ResourceSlice with the memory of pool {pool.name}'s devices is known, so the "
            f"{wished.claimed.mib} MiB of {shown(wished.claimed.by, quotes=False)} are no fraction of a GPU; ask an "
            "administrator to set `assume` for the pool"
        )
    if budget is None or whole is None:
        return CapRefusal(
            f"no node of pool {pool.name} has the labels nvidia.com/gpu.memory and nvidia.com/gpu.replicas, so no "
            f"cap can "
            "be computed; wait for GPU Feature Discovery, or ask an administrator to set `assume` for the pool"
        )
    cap = Cap(budget, policy, torch, doubted, driver=pool.driver_limits)
    return _too_small(review, pool, budget, whole, wished) or cap


def _too_small(review: PodReview, pool: Pool, budget: Budget, whole: Budget, wished: Wish) -> CapRefusal | None:
    """Describe the fault in the size of a slice, or in the part of it that the pod requests."""
    if not whole.enough:
        way = "ask an administrator for fewer replicas in the pool"
        if wished.claimed is not None:
            way = f"request more memory in {shown(wished.claimed.by, quotes=False)}"
        if wished.processes > 1:
            way = f"set {PROCESSES} to fewer processes"
        message = f"a slice of pool {pool.name} is too small for a framework: {whole.arithmetic}"
        return CapRefusal(f"{message}; {way}{_or_whole(review)}", budget=budget)
    most = whole.least * wished.processes
    if wished.memory is not None and wished.memory > most:
        each = f" for each of {wished.processes} processes" if wished.processes > 1 else ""
        return CapRefusal(
            f"{wished.memory} MiB is more than a slice of pool {pool.name} has: {whole.arithmetic}{each}; use "
            f"{MEMORY}: {most}Mi or less{_or_whole(review)}",
            MEMORY,
            budget,
        )
    if not budget.enough:
        return CapRefusal(
            f"this part of a slice of pool {pool.name} is too small for a framework: {budget.arithmetic}; ask for more "
            f"memory or fewer processes{_or_whole(review)}",
            budget=budget,
        )
    return None


def _or_whole(review: PodReview) -> str:
    """Say how the pod gets a whole GPU instead of a slice; empty if no pool would give it one."""
    way = review.whole_gpu_way
    return f", or {way} for a whole GPU" if way else ""


def _before(pod: Pod, pool: Pool, cap: Cap) -> Record | None:
    """Read the record in a pod. A template has none."""
    there = None if pod.template else pod.annotations.get(annotation.KEY)
    if there is None:
        return None
    plain = annotation.plain(pool, cap)
    return plain if there == plain.text else annotation.read(there)


def _container(
    container: Container, cap: Cap, before: Record | None, shim: Shim, plugin: str, allowance: Allowance
) -> ContainerPlan:
    env = container.variables(_READ)
    values = {name: variable.value for name, variable in env.items() if name in environment.KNOWN}
    words, image = container.words, container.image
    letters = sum(map(len, filter(None, values.values()))) + sum(map(len, words))
    allowance.spend("settings", letters // LETTERS)
    steps = environment.merge(values, cap, image)
    if container.spec.get("envFrom"):
        steps = (*steps, *environment.from_elsewhere(environment.applied(values, steps), container.env_from))
    if cap.driver:
        steps = tuple([step for step in steps if step.kind not in _BY_VARIABLE_ALONE])
    start = command_line.start(container.reference, words)
    argument = limited = None
    if start is not None:
        argument = command_line.merge(start, cap.budget, append=cap.policy.append_arguments)
        limited = command_line.limited(start, argument, cap.budget)
    past: tuple[Lowered, ...] = ()
    if before is not None and before.lowered:
        history = before.history(_shown(container.name), values, cap.limit or cap.budget.slice)
        past = tuple([Lowered(entry, name, old, (*env[name].path, "value")) for entry, name, old in history])
    return ContainerPlan(
        container.name,
        container.path,
        env,
        steps,
        argument,
        past,
        shim(container, env),
        limited or "",
        hami.sign(container, env, plugin),
        image,
        cap.limit,
    )


def _shown(name: str) -> str:
    """Return a container's name as the record has it: unusual characters are escaped."""
    return shown(name, quotes=False)[:63]


_READ = environment.KNOWN | delivery.READ | hami.READ
"""The variables of a container that a plan looks at."""

_BY_VARIABLE_ALONE = frozenset({StepKind.DEFEAT, StepKind.UNSURE})
"""The kinds of steps for a lost or uncertain cap. They do no harm if the driver limits memory."""
