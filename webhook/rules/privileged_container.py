"""A container has a privilege that gives it devices it did not request.

A privileged container has every device of its node. A Windows host process is no container at all. Some capabilities
let a container help itself: with SYS_ADMIN, NVIDIA's toolkit accepts variables that it is configured to ignore
(nvidia-container-toolkit internal/config/image/privileged.go); BPF rewrites the program that keeps devices from
containers; DAC_READ_SEARCH opens any file of the node, such as the kubelet's key (open_by_handle_at(2)). Two others
harm neighbours: PERFMON reads the stacks of all processes of the node (perf_event_open(2)), and SYS_TIME sets its
clock. The rule judges pods that request a GPU, and pods that nothing keeps off GPU nodes (the policy's guard).

Way out: remove the privilege, or remove the toleration that lets the pod onto GPU nodes. An administrator can exempt
an agent of the system in the policy, by its namespace and service account.
"""

from collections.abc import Iterator

from webhook.catalog.capabilities import CAPABILITIES, capability
from webhook.cel.clauses import ANY_POD, Clause
from webhook.cel.write import array, text
from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.policy.model import Policy
from webhook.text.words import shown

SINCE = "0.1"

LOOKS_AT = ("privileges",)


def check(review: PodReview) -> Iterator[Finding]:
    """Flag privileged containers, Windows host processes and capabilities that give devices."""
    privileges = review.exposure.privileges
    if not privileges or not review.exposed:
        return
    ways = f"remove it{review.agents_way}"
    for path, name, _, _ in privileges:
        if name == "privileged":
            message = "privileged: true gives the container every device of its node, also its GPUs if it has some"
            yield Finding(path, f"{message}; {ways}")
        elif name == "hostProcess":
            yield Finding(path, f"hostProcess: true makes the container a process of its node; {ways}")
        else:
            yield Finding(path, f"capability {shown(name)} lets the container {CAPABILITIES[capability(name)]}; {ways}")


def fallback(_: Policy) -> Iterator[Clause]:
    """Exact for pods that certainly may see a GPU."""
    # the letters whose upper case is ASCII's: runtimes take it (containerd, Go's strings.ToUpper)
    others = "".join(f".replace({text(letter)}, {text(letter.upper())})" for letter in "\u0131\u017f")
    names = array(sorted((*CAPABILITIES, *(f"CAP_{name}" for name in CAPABILITIES))))
    one = (
        "c.?securityContext.?privileged.orValue(false)"
        " || c.?securityContext.?windowsOptions.?hostProcess.orValue(false)"
        f" || c.?securityContext.?capabilities.?add.orValue([]).exists(name, name{others}.upperAscii() in {names})"
    )
    of_pod = "variables.whole && object.spec.?securityContext.?windowsOptions.?hostProcess.orValue(false)"
    yield Clause(
        f"!variables.exposed || !(({of_pod}) || variables.containers.exists(c, {one}))",
        "privileged, hostProcess, or a capability lets a container take devices that it was not given, or harm other "
        "pods of its node; remove it",
        places=f"'container ' + variables.containers.filter(c, {one}).map(c, c.name).join(', ')",
        asked=ANY_POD,
    )
