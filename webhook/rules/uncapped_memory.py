"""A container on a time-sliced GPU has no limit on the GPU memory it takes.

Time-slicing divides time and not memory: one process can take the whole card, and its neighbours fail. What
can be had without touching images is each framework's own limit, set by environment and sized so that all
slices of the smallest card fit on which the pod may land. It is cooperative: it binds a framework's own allocator in
one process, and a program can lift it. PyTorch is capped from 2.10 on, JAX, CuPy and PaddlePaddle in all versions;
TensorFlow has no such limit and is only kept from taking the whole card at its start. vLLM and SGLang are limited
by an argument alone.

The stricter of the tenant's limit and ours stands, and what else the tenant wrote is kept. The annotation
`slicewarden.dev/memory-caps` says what was lowered and what is not capped. `slicewarden.dev/gpu-memory` asks for less
than the slice, `slicewarden.dev/gpu-processes` divides it, and `slicewarden.dev/torch-version` lets
`PYTORCH_CUDA_ALLOC_CONF` be written, on which torch before 2.10 would fail. That the torch is older only the policy can
say (`memory.torch.versions`) where what takes a cap away is refused.

Way out: leave the variables to Slicewarden, or set a limit no larger than the message names.
"""

from collections.abc import Iterator, Mapping, Sequence

from webhook import arguments, caps, record
from webhook.allowance import LETTERS
from webhook.budget import MEMORY, Budget, Refused, Selection, Wish, quoted, smallest, wish
from webhook.caps import Kind, Step
from webhook.facts import Facts
from webhook.frameworks import CAPPED_SINCE, version
from webhook.gpus import asks
from webhook.model import Action, Finding, Fix, shown
from webhook.placement import place
from webhook.pods import Container, EnvVar, Pod
from webhook.policy import Policy, Pool
from webhook.record import Record

MENDS = True


def check(pod: Pod, policy: Policy, facts: Facts) -> Iterator[Finding]:
    """Flag containers that ask for a time-sliced GPU and are not capped at their slice of it."""
    placement = place(pod, policy, facts)
    if placement is None or placement.pool is None or placement.pool.sharing not in policy.capped_sharing:
        return
    pool = placement.pool
    try:
        wished = wish(pod.annotations)
    except Refused as error:
        yield Finding(pod.at("metadata", "annotations", error.annotation), error.message)
        return
    said = pod.annotations.get(caps.TORCH_VERSION)
    stated = policy.torch(pod.namespace, pool.name)
    torch = stated if said is None else version(said) if isinstance(said, str) else None
    if said is not None and torch is None:
        message = f"{shown(said)} is no version such as {quoted(said, '2.11')}"
        yield Finding(pod.at("metadata", "annotations", caps.TORCH_VERSION), message)
        return
    selection = Selection.of(pod, pool)
    cap = smallest(pool, policy, facts, wished, selection)
    whole = cap if wished.memory is None else smallest(pool, policy, facts, wished._replace(memory=None), selection)
    problem = _size(pod, pool, cap, whole, wished)
    if problem is not None:
        yield problem
    elif cap is not None:
        if cap.unified:
            yield Finding(
                pod.at("spec"),
                f"the GPUs of pool {pool.name} name the host's memory as theirs, of which a fraction is no cap: "
                "PyTorch and jax have none",
                advice=True,
            )
        older = stated is not None and stated < CAPPED_SINCE
        doubted = said is not None and not older and policy.defeats is Action.DENY
        yield from _judged(pod, pool, policy, cap, torch, doubted=doubted)


def _size(pod: Pod, pool: Pool, cap: Budget | None, whole: Budget | None, wished: Wish) -> Finding | None:
    """Say what is wrong with the size of a slice, or of what the pod wishes of the whole of it."""
    if cap is None or whole is None:
        return Finding(
            pod.at("spec"),
            f"no cap can be sized: no node of pool {pool.name} has the labels nvidia.com/gpu.memory and "
            "nvidia.com/gpu.replicas; wait for GPU Feature Discovery, or give the pool `assume` in the policy",
        )
    if not whole.enough:
        way = "the pool needs fewer replicas, or the pod another pool"
        if wished.processes > 1:
            way = "ask for fewer processes, or for another pool"
        return Finding(
            pod.at("spec"), f"a slice of pool {pool.name} is too small for a framework: {whole.arithmetic}; {way}"
        )
    if wished.memory is not None and wished.memory > whole.least * wished.processes:
        each = f" for each of {wished.processes} processes" if wished.processes > 1 else ""
        return Finding(
            pod.at("metadata", "annotations", MEMORY),
            f"{wished.memory} MiB are more than a slice of pool {pool.name} has: {whole.arithmetic}{each}; ask for "
            f"{whole.least * wished.processes}Mi at most",
        )
    if not cap.enough:
        return Finding(
            pod.at("spec"),
            f"what the pod asks for of a slice of pool {pool.name} is too small for a framework: {cap.arithmetic}; "
            "ask for more memory or fewer processes",
        )
    return None


def _judged(
    pod: Pod, pool: Pool, policy: Policy, cap: Budget, torch: caps.Torch, *, doubted: bool
) -> Iterator[Finding]:
    findings: list[Finding] = []
    lowered: list[str] = []
    uncapped: list[str] = []
    past: set[str] = set()
    known = torch is not None and torch >= CAPPED_SINCE
    there = None if pod.template else pod.annotations.get(record.KEY)
    plain = record.of(pool.name, cap, policy, (), (), torch_known=known)
    before = plain if there == plain.text else record.read(there)
    for container in {ask.container.path: ask.container for ask in asks(pod, policy)}.values():
        env = container.variables(caps.KNOWN)
        values = {name: variable.value for name, variable in env.items()}
        pod.allowance.spend("settings", sum(len(value or "") for value in values.values()) // LETTERS)
        image = container.image
        tgi = image == "text-generation-inference"
        steps = caps.merge(values, cap, policy, torch, tgi=tgi, doubted=doubted)
        if container.spec.get("envFrom"):
            steps = (*steps, *caps.from_elsewhere(caps.applied(values, steps), container.env_from))
        findings += _found(container, env, steps, pool, policy, cap, template=pod.template)
        argument = arguments.merge(image, container.words, cap, append=policy.append_arguments)
        if argument is not None:
            findings.append(_argument(container, argument))
            steps = (*steps, argument)
        name = shown(container.name, quotes=False)[:63]
        uncapped += [f"{name}: {step.short}" for step in steps if step.short]
        lowered += [record.lowered(name, step.name, step.old) for step in steps if step.kind is Kind.LOWER]
        for entry, variable, old in before.history(name, values) if before is not None and before.lowered else ():
            past.add(entry)
            message = f"{variable} was {old}, and was set to what a slice of pool {pool.name} allows"
            findings.append(Finding((*env[variable].path, "value"), message, advice=True))
    if before is not None:
        lowered = [*before.still(past), *lowered]
    wanted = record.of(pool.name, cap, policy, lowered, uncapped, torch_known=known)
    yield from findings if pod.template else _recorded(pod, findings, before, wanted, noted=bool(lowered or uncapped))


def _found(
    container: Container,
    env: Mapping[str, EnvVar],
    steps: Sequence[Step],
    pool: Pool,
    policy: Policy,
    cap: Budget,
    *,
    template: bool,
) -> Iterator[Finding]:
    """Turn the steps of one container into findings, those that add variables into one."""
    missing = [step for step in steps if step.kind is Kind.ADD]
    for step in steps if len(missing) < len(steps) else ():
        entry = env.get(step.name)
        if step.kind is Kind.ADD:
            continue
        if entry is None:
            advice = step.kind is Kind.UNSURE or policy.defeats is not Action.DENY
            yield Finding(container.path, step.message, advice=advice)
        elif step.kind in caps.WRITES:
            path = (*entry.path, "value")
            yield Finding(path, step.message, (Fix(path, step.value),))
            if step.kind is Kind.LOWER and template:
                yield Finding(path, f"{step.message}; its pods are given {shown(step.value)}", advice=True)
        elif step.kind is Kind.REFUSE:
            yield Finding((*entry.path, "value"), step.message)
        else:
            advice = step.kind is Kind.UNSURE or policy.defeats is not Action.DENY
            yield Finding(entry.path, step.message, advice=advice)
    if missing:
        path = (*container.path, "env")
        names = [step.name for step in missing]
        yield Finding(
            path,
            f"no {', '.join(names)}, so a process may take more than its {cap.least} MiB of a GPU of pool "
            f"{pool.name}; create it where Slicewarden's mutating webhook is in force, and undo none of its changes",
            (Fix(path, [{"name": step.name, "value": step.value} for step in missing]),),
            parts=tuple([f"{pool.name}: {name}" for name in names]),
        )


def _argument(container: Container, step: Step) -> Finding:
    path = (*container.path, "args")
    if step.kind is Kind.ADD:
        return Finding(path, f"{step.message}; add {step.value}", (Fix(path, [step.value]),))
    return Finding(path, step.message, advice=True)


def _recorded(
    pod: Pod, findings: list[Finding], before: Record | None, wanted: Record, *, noted: bool
) -> Iterator[Finding]:
    """Have what is found written down: with the first change, or by itself where there is something to note."""
    there = pod.annotations.get(record.KEY)
    first = next((index for index, finding in enumerate(findings) if finding.fixes), None)
    written = before is not None and before.stands_for(wanted)
    # Only what is created can be written into; of an image that is exchanged later the record need not know.
    kept = pod.old is not None and first is None and pod.old.annotations.get(record.KEY) == there
    if not written and not kept and (first is not None or noted or there is not None):
        fix = Fix(pod.at("metadata", "annotations"), {record.KEY: wanted.text})
        if first is None:
            path = pod.at("metadata", "annotations", record.KEY)
            findings.append(Finding(path, "does not say how the pod is capped; leave it to Slicewarden", (fix,)))
        else:
            findings[first] = findings[first]._replace(fixes=(*findings[first].fixes, fix))
    yield from findings
