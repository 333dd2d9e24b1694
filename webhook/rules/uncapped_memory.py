"""A container on a time-sliced GPU has no limit on its GPU memory.

Time-slicing divides time, not memory: one process can take the whole GPU, and the others on it fail. Each framework has
its own limit, which needs no change to an image. Slicewarden sets it by environment variables, sized so that all slices
fit on the smallest GPU that the pod may land on. The limit is cooperative: it binds a framework's own allocator in one
process, and a program can lift it. Variables cap PyTorch from 2.10 on, JAX, CuPy and PaddlePaddle. Where the policy has
`memory.shim: Inject`, a short Python file caps older PyTorch and TensorFlow too. Only an argument limits vLLM, SGLang
and TensorFlow Serving.

If the tenant set a limit too, the stricter one is used; everything else that the tenant wrote is kept. The annotation
`slicewarden.dev/memory-caps` says what was lowered and what is not capped. `slicewarden.dev/gpu-memory` asks for less
than the slice, `slicewarden.dev/gpu-processes` divides it, and `slicewarden.dev/torch-version` lets Slicewarden write
`PYTORCH_CUDA_ALLOC_CONF`, on which torch before 2.10 would fail. If the policy refuses what takes a cap away, only the
policy can say that the torch is older (`memory.torch.versions`).

`NVIDIA_GPU_MEMORY_LIMIT` and `NVIDIA_GPU_MEMORY_REQUEST` are limits of NVIDIA's driver, which a hook of the container
toolkit sets before the program starts (nvidia-container-toolkit v1.20.1, cmd/nvidia-cdi-hook). A newer hook reads both
names in the plural first, so both spellings are judged, and written. Slicewarden writes them where the policy has
`memoryLimit: Driver` and the pool selects its nodes by `slicewarden.dev/memory-limits: "true"`, unless a known node of
the pool cannot set limits: the hook would keep the container from starting there. A tenant's limit stands if it is no
larger than the slice, and a larger one is lowered. Values with which the container would not start are refused, and
where Slicewarden writes none also a request without a limit.

Under containerd the variables of the image go before those of the pod. A list of images (`slicewarden facts --images`)
shows which ones an image sets, and `imageLimits` of the pool says what happens to a container whose image sets a wider
limit, or is in no list by its digest: only the agent corrects it, a warning, or a denial.

A slice by a claim is as large as what the claim takes of the device (`capacity.requests.memory`), whatever the pool's
replicas are. The containers that use a claim share it, and the record names the claim. A pod with an unknown claim gets
no cap from it, and a warning; with `memory.defeats: Deny` it is refused until the claim is known.

Way out: leave the variables to Slicewarden, or set a limit that is no larger than the message names.
"""

from collections.abc import Iterator

from webhook.cel.clauses import Clause
from webhook.cel.write import all_of, array, text
from webhook.gpu.claims import free
from webhook.gpu.review import PodReview
from webhook.memory import annotation, frameworks
from webhook.memory.plan import CapPlan, CapRefusal, ContainerPlan, plan
from webhook.memory.steps import ADD, WRITES, Step, StepKind, describe
from webhook.memory.tables import Form
from webhook.model import Action, Finding, Fix
from webhook.policy.model import Policy
from webhook.text.words import shown

SINCE = "0.1"

LOOKS_AT = ("gpu", "claim")

MENDS = True


def check(review: PodReview) -> Iterator[Finding]:
    """Flag containers that ask for a time-sliced GPU and have no memory limit within their slice of it."""
    pod, placement = review.subject, review.placement
    if review.names_claims:
        yield from _unsized(review)
    if placement is None or placement.pool is None or placement.pool.sharing not in review.policy.capped_sharing:
        return
    planned = plan(review, placement.pool, review.allowance)
    if isinstance(planned, CapRefusal):
        if planned.annotation:
            yield Finding(pod.at("metadata", "annotations", planned.annotation), planned.message)
        else:
            yield Finding(pod.at("spec"), planned.message, parts=(planned.message,))
        return
    if planned.advice:
        yield Finding(pod.at("spec"), planned.advice, advice=True, parts=(planned.advice,))
    findings = list(planned.shim)
    for part in planned.containers:
        findings += _container(part, planned)
    yield from _recorded(findings, planned)


def _unsized(review: PodReview) -> Iterator[Finding]:
    """Report that a pod gets no cap because its claims, which may be slices, are unknown.

    A template only warns: its claim may come later, and before its pods, which are judged again.
    """
    pod, policy = review.subject, review.policy
    if not any(pool.device_classes.patterns and pool.sharing in policy.capped_sharing for pool in policy.pools):
        return
    if not pod.namespace or free(pod, policy, review.facts):
        return
    advice = pod.template or not policy.strict
    way = "add it or its template to the facts" if advice else "create it or its template first, and try again"
    message = f"the claim is not known here, so its containers get no memory cap; {way}"
    for each in review.claim_entries:
        if each.contents is None:
            yield Finding(each.path, message, advice=advice)


def _recorded(findings: list[Finding], planned: CapPlan) -> Iterator[Finding]:
    """Add the record to the first change, or make it a separate change if there is no other."""
    first = next((index for index, finding in enumerate(findings) if finding.fixes), None)
    if planned.records(changes=first is not None):
        fix = Fix(planned.pod.at("metadata", "annotations"), {annotation.KEY: planned.record.text})
        if first is None:
            path = planned.pod.at("metadata", "annotations", annotation.KEY)
            message = "this annotation is missing or does not say how the pod is capped"
            findings.append(Finding(path, message, (fix,), left_out=True))
        else:
            findings[first] = findings[first]._replace(fixes=(*findings[first].fixes, fix))
    yield from findings


def _container(part: ContainerPlan, planned: CapPlan) -> Iterator[Finding]:
    """Turn the steps for one container into findings, those that add variables into one."""
    missing = [step for step in part.steps if step.kind is ADD]
    for step in part.steps if len(missing) < len(part.steps) else ():
        if step.kind is not ADD:
            yield from _variable(step, part, planned)
    if missing:
        path, names = (*part.path, "env"), [step.name for step in missing]
        fix = Fix(path, [{"name": step.name, "value": step.value} for step in missing])
        message, parts = planned.missing(names), tuple([f"{planned.pool.name}: {name}" for name in names])
        yield Finding(path, message, (fix,), parts=parts, left_out=True)
    if (argument := part.argument) is not None:
        path, message = (*part.path, "args"), describe(argument, planned.budget)
        if argument.kind is ADD:
            yield Finding(path, f"{message}; add {argument.value}", (Fix(path, [argument.value]),))
        else:
            yield Finding(path, message, advice=True)
    if (limit := part.image_limit) is not None and (limit.known or planned.pool.image_limits is not None):
        advice = planned.pool.image_limits is not Action.DENY
        yield Finding((*part.path, "image"), limit.why, advice=advice)
    if part.shim is not None:
        yield from part.shim.findings
    for lowered in part.lowered_before:
        yield Finding(lowered.path, planned.past(lowered), advice=True)


def _variable(step: Step, part: ContainerPlan, planned: CapPlan) -> Iterator[Finding]:
    """Turn a step for an existing or a missing variable into findings."""
    message = describe(step, planned.budget)
    advice = step.kind is StepKind.UNSURE or not planned.cap.policy.strict
    if step.name not in part.env:
        yield Finding(part.path, message, advice=advice, parts=(message,))
        return
    variable = part.env[step.name].path
    value = (*variable, "value")
    if step.kind in WRITES:
        yield Finding(value, message, (Fix(value, step.value),))
        if step.kind is StepKind.LOWER and planned.pod.template:
            yield Finding(value, f"{message}; Slicewarden gives its pods {shown(step.value)}", advice=True)
    elif step.kind is StepKind.REFUSE:
        yield Finding(value, message)
    else:
        yield Finding(variable, message, advice=advice)


def fallback(policy: Policy) -> Iterator[Clause]:
    """Weaker: the fallback checks only variables that are written for every card.

    It reads no values, and no changed annotations.
    """
    capped = [pool.name for pool in policy.pools if pool.sharing in policy.capped_sharing and not pool.driver_limits]
    names = [
        variable.name
        for framework in frameworks.walk()
        if policy.caps(framework.name) and not framework.image and not framework.fractions_only
        for variable in framework.variables
        if variable.written and variable.form not in (Form.FRACTION, Form.SETTINGS)
    ]
    if capped and names:
        yield Clause(
            f"size(variables.pools) == 0 || !variables.pools.all(p, p in {array(capped)})"
            " || variables.containers.all(i, c, size(variables.asks[i]) == 0"
            f" || {all_of(f'{text(name)} in variables.names[i]' for name in names)})",
            f"a container on a time-sliced GPU does not set {' and '.join(names)}, so it may take all memory; "
            "Slicewarden's mutating webhook writes them, and did not run",
        )
