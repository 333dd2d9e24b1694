"""A claim for GPUs shares them against the policy, or NVIDIA's driver refuses it.

Dynamic resource allocation checks what a claim, a template or a DeviceClass tells NVIDIA's driver only when a pod is
on its node. The driver reads it strictly there, and refuses unknown fields and values. An empty `timeSlicingConfig`
crashes the driver (dra-driver-nvidia-gpu api/nvidia.com/resource/v1beta1/validate.go), and with it every claim of the
node. `adminAccess` takes devices that others hold, and belongs in namespaces labelled for it. `allocationMode: All`
takes every GPU of a node. A toleration without a key tolerates every taint of a device (DeviceTaintRule), by which
administrators and drivers take a GPU away from pods. Each alternative of a request counts, because the scheduler may
choose any.

The rule reads requests for classes of pools and for NVIDIA's own, requests that select by NVIDIA's names, and the
requests of a claim that configures NVIDIA's driver. It cannot see which devices another device class has, if the claim
only names the class.

Way out: write the configuration as the message says, request a count of devices, or leave `adminAccess` to
administrators.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from webhook.api import quantity
from webhook.api.devices import DeviceClaim, DeviceConfig, DeviceRequest
from webhook.catalog.gpu_requests import ADMIN_ACCESS
from webhook.cel.clauses import Clause, RequestKind
from webhook.cel.write import all_of, any_of, array, text
from webhook.facts.snapshot import Facts
from webhook.model import Finding, Path
from webhook.policy.model import FORBIDDEN, Policy
from webhook.review import Review
from webhook.text.spelling import Guesses
from webhook.text.words import shown

SINCE = "0.1"

DRIVER = "gpu.nvidia.com"
API_VERSION = "resource.nvidia.com/v1beta1"
TIME_SLICING, MPS = "TimeSlicing", "MPS"

_REFUSES = "NVIDIA's driver refuses"


def check(review: Review[DeviceClaim]) -> Iterator[Finding]:
    """Flag configurations that NVIDIA's driver or the policy refuses.

    Also flag requests that take every GPU of a node, use `adminAccess`, or tolerate every taint.
    """
    claim = review.subject
    ours = [config for config in claim.configs if config.driver == DRIVER]
    for config in ours:
        for path, message in _refused(config, review.policy, review.allowance.guesses):
            yield Finding(path, message)
    for request in claim.requests:
        if ours or _of_nvidia(request) or review.policy.pools_of_class(request.device_class):
            yield from _excessive(request, claim, review.facts)
            yield from _tolerant(request)


def _of_nvidia(request: DeviceRequest) -> bool:
    return any("nvidia" in text.casefold() for text in (request.device_class, *request.selectors))


def _excessive(request: DeviceRequest, claim: DeviceClaim, facts: Facts) -> Iterator[Finding]:
    if request.admin:
        if facts.namespaces.get(claim.namespace, {}).get(ADMIN_ACCESS) != "true":
            yield Finding(
                (*request.path, "adminAccess"),
                f"adminAccess: true takes devices that others hold, and namespace {shown(claim.namespace)} has no "
                f"label "
                f"{ADMIN_ACCESS}=true; remove it",
            )
    elif request.everything:
        yield Finding(
            (*request.path, "allocationMode"),
            "allocationMode: All takes every GPU of a node; use ExactCount and a count",
        )


def _tolerant(request: DeviceRequest) -> Iterator[Finding]:
    for path, toleration in request.tolerations:
        if toleration.get("operator") == "Exists" and not toleration.get("key"):
            effect = toleration.get("effect")
            yield Finding(
                path,
                f"tolerates every device taint{f' of effect {shown(effect, quotes=False)}' if effect else ''}, so the "
                "claim takes GPUs that were drained or broke; name the key of one taint, or remove it",
            )


# Configuration of the driver

Said = tuple[Path, str]


def _refused(config: DeviceConfig, policy: Policy, guesses: Guesses) -> Iterator[Said]:
    path, parameters = config.path, config.parameters
    if not isinstance(parameters, dict):
        yield path, f"{_REFUSES} parameters that are not a map; give them a kind, or remove them"
        return
    if parameters.get("apiVersion") != API_VERSION:
        yield (*path, "apiVersion"), f"{_REFUSES} {shown(parameters.get('apiVersion'))}; use {API_VERSION}"
        return
    match parameters.get("kind"):
        case "GpuConfig":
            yield from _unknown(guesses, parameters, path, "apiVersion", "kind", "sharing")
            yield from _sharing(parameters.get("sharing"), (*path, "sharing"), policy, guesses, sliced=True)
        case "MigDeviceConfig":
            yield from _unknown(guesses, parameters, path, "apiVersion", "kind", "sharing")
            yield from _sharing(parameters.get("sharing"), (*path, "sharing"), policy, guesses, sliced=False)
        case "VfioDeviceConfig":
            return
        case kind:
            yield (*path, "kind"), f"{_REFUSES} kind {shown(kind)}; use GpuConfig or MigDeviceConfig"


def _unknown(guesses: Guesses, value: Any, path: Path, *known: str) -> Iterator[Said]:
    """Find unknown keys; case counts, for the driver decodes strictly (api.go)."""
    if not isinstance(value, dict):
        yield path, f"{_REFUSES} {shown(value)} here; write a map"
        return
    for key in [key for key in value if key not in known][:20]:
        near = guesses.nearest(key, known)
        hint = f"did you mean {near}?" if near else f"known are {', '.join(known)}"
        yield (*path, key), f"{_REFUSES} this key; {hint}"


def _sharing(value: Any, path: Path, policy: Policy, guesses: Guesses, *, sliced: bool) -> Iterator[Said]:
    """Judge `sharing`. `sliced` is whether a time slice can be set, which is not possible for MIG devices."""
    if value is None:
        return
    known = ("strategy", "timeSlicingConfig", "mpsConfig") if sliced else ("strategy", "mpsConfig")
    yield from _unknown(guesses, value, path, *known)
    if not isinstance(value, dict):
        return
    strategy, slicing, mps = (value.get(key) for key in ("strategy", "timeSlicingConfig", "mpsConfig"))
    at = (*path, "strategy")
    if strategy not in (TIME_SLICING, MPS):
        yield at, f"{_REFUSES} strategy {shown(strategy)}; use {TIME_SLICING} or {MPS}, or remove sharing"
    elif strategy == MPS and policy.limits.mps == FORBIDDEN:
        yield at, f"policy {policy.name} forbids {MPS}; remove sharing"
    elif strategy == TIME_SLICING and not any(pool.sharing == "time-slicing" for pool in policy.pools):
        yield at, f"policy {policy.name} has no time-sliced pool; remove sharing"
    if strategy == TIME_SLICING and mps is not None:
        yield (*path, "mpsConfig"), f"{_REFUSES} mpsConfig together with {TIME_SLICING}; remove it"
    if strategy == MPS and slicing is not None:
        yield (*path, "timeSlicingConfig"), f"{_REFUSES} timeSlicingConfig together with {MPS}; remove it"
    if slicing is not None and sliced:
        yield from _time_slice(slicing, (*path, "timeSlicingConfig"), guesses)
    if mps is not None:
        yield from _mps(mps, (*path, "mpsConfig"), guesses)


def _time_slice(value: Any, path: Path, guesses: Guesses) -> Iterator[Said]:
    yield from _unknown(guesses, value, path, "interval")
    if not isinstance(value, dict):
        return
    if value.get("interval") is None:
        yield (
            path,
            "NVIDIA's driver crashes on a timeSlicingConfig without an interval; add one, or remove timeSlicingConfig",
        )
    elif value["interval"] not in ("Default", "Short", "Medium", "Long"):
        yield (
            (*path, "interval"),
            f"{_REFUSES} interval {shown(value['interval'])}; use Default, Short, Medium or Long",
        )


def _mps(value: Any, path: Path, guesses: Guesses) -> Iterator[Said]:
    total, each = "defaultPinnedDeviceMemoryLimit", "defaultPerDevicePinnedMemoryLimit"
    percentage = "defaultActiveThreadPercentage"
    yield from _unknown(guesses, value, path, percentage, total, each, "multiUser")
    if not isinstance(value, dict):
        return
    share = value.get(percentage)
    if share is not None and not (type(share) is int and 0 <= share <= 100):
        yield (*path, percentage), f"{_REFUSES} {shown(share)}; use a number from 0 to 100"
    if not isinstance(value.get("multiUser"), bool | None):
        yield (*path, "multiUser"), f"{_REFUSES} {shown(value['multiUser'])}; use true or false"
    yield from _memory(value.get(total), (*path, total))
    limits = value.get(each)
    if not isinstance(limits, Mapping | None):
        yield (*path, each), f"{_REFUSES} {shown(limits)} here; write a map"
        return
    for device, limit in (limits or {}).items():
        if not (device.isascii() and device.isdigit()) and not device.startswith(("GPU-", "MIG-")):
            yield (
                (*path, each, device),
                f"{_REFUSES} {shown(device)}, which is not an index or UUID of a device; correct it",
            )
        yield from _memory(limit, (*path, each, device))


def _memory(limit: Any, path: Path) -> Iterator[Said]:
    if limit is None:
        return
    try:
        enough = quantity.parse(limit) >= 2**20
    except ValueError:
        yield path, f"{_REFUSES} {shown(limit)}, which is not a quantity; use one such as 4Gi"
        return
    if not enough:
        yield path, f"{_REFUSES} {shown(limit)}, which is less than 1Mi; raise it"


def fallback(policy: Policy) -> Iterator[Clause]:
    """Weaker: the fallback reads only a part of the driver's configuration.

    It reads the version, the kind and the strategy, and whether an interval is absent.
    """
    of_nvidia = (
        "([one.?deviceClassName.orValue('')] + one.?selectors.orValue([]).map(s, s.?cel.?expression.orValue('')))"
        ".exists(t, t.lowerAscii().contains('nvidia'))"
    )
    ours = f"variables.configs.exists(c, c.?opaque.?driver.orValue('') == {text(DRIVER)})"
    labelled = f"variables.labels[?{text(ADMIN_ACCESS)}].orValue('') == 'true'"
    excessive = (
        f"(one.?adminAccess.orValue(false) ? !({labelled}) : one.?allocationMode.orValue('') == 'All')"
        f" && ({of_nvidia} || {ours})"
    )
    yield Clause(
        f"request.operation != 'CREATE' || !variables.requested.exists(one, {excessive})",
        "a claim takes devices that others hold, or every GPU of a node; use ExactCount and a count, and leave "
        "adminAccess to namespaces that an administrator labels for it",
        asked=(RequestKind.DEVICES,),
    )
    strategies = [TIME_SLICING] if any(pool.sharing == "time-slicing" for pool in policy.pools) else []
    strategies += [MPS] if policy.limits.mps != FORBIDDEN else []
    sharing = (
        f"(p.kind == 'VfioDeviceConfig' || !('sharing' in p) || type(p.sharing) != map"
        f" || (p.sharing.?strategy.orValue('') in {array(strategies)}"
        " && (p.kind != 'GpuConfig' || !('timeSlicingConfig' in p.sharing) || type(p.sharing.timeSlicingConfig) != map"
        " || 'interval' in p.sharing.timeSlicingConfig)))"
    )
    fine = all_of(
        (
            f"p.?apiVersion.orValue('') == {text(API_VERSION)}",
            f"p.?kind.orValue('') in {array(('GpuConfig', 'MigDeviceConfig', 'VfioDeviceConfig'))}",
            sharing,
        )
    )
    driven = f"c.?opaque.?driver.orValue('') == {text(DRIVER)}"
    parameters = any_of(("type(p) != map", fine))
    yield Clause(
        f"variables.configs.all(c, !({driven}) || [c.?opaque.?parameters.orValue('')].all(p, {parameters}))",
        "NVIDIA's driver or the policy refuses this configuration of devices, or the driver crashes on it; "
        "`slicewarden check` says what to write",
        asked=(RequestKind.DEVICES,),
    )
