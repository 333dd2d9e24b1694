"""A table of the capabilities that let a container take devices, or harm the other pods of its node."""

_DEVICES = "take devices that it was not given"

CAPABILITIES = {
    **dict.fromkeys(("ALL", "SYS_ADMIN", "SYS_MODULE", "SYS_RAWIO", "SYS_BOOT", "BPF", "DAC_READ_SEARCH"), _DEVICES),
    "PERFMON": "read the stacks of all processes of its node",
    "SYS_TIME": "change the clock of its node",
}
"""Capabilities that let a container take devices, or harm the other pods of its node, and what each lets it do.

SYS_ADMIN makes the toolkit accept variables that its configuration forbids (nvidia-container-toolkit
internal/config/image/privileged.go). BPF can replace the programs that keep devices from containers. SYS_BOOT loads
another kernel (kexec_load(2)). DAC_READ_SEARCH opens every file on the node by its handle (open_by_handle_at(2)), even
the kubelet's key. PERFMON samples every process of the node, in other containers too (perf_event_open(2)). The node has
one clock for all containers (time_namespaces(7)): with a wrong one, certificates and leases are invalid.

Three groups are left out. Runtimes grant MKNOD by default (moby oci/caps/defaults.go), and the device cgroup makes it
harmless. SYS_PTRACE without `hostPID` reaches only the pod's own processes. RDMA needs NET_ADMIN, IPC_LOCK and
SYS_RESOURCE, which open no device.
"""


def capability(name: str) -> str:
    """Return a capability's name in the runtimes' form: upper case, without `CAP_`."""
    return name.upper().removeprefix("CAP_")
