"""The commands: one file each, with its options and the function that runs it. Only the one that runs is imported."""

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "check": "judge manifests as the webhook would",
    "audit": "judge everything that runs in a live cluster",
    "diff": "compare two policies: what would a change do?",
    "test": "run a policy's tests",
    "place": "simulate workloads on the nodes of a cluster: where do they land?",
    "facts": "write the facts of a cluster to a file for Git",
    "policy": "work on the policy itself: write one, lint it",
    "serve": "run the admission webhook",
    "controller": "keep a cluster in step with its GPUSharingPolicy",
    "agent": "watch this node's GPUs; set limits, evict, kill and freeze where the policy says so",
    "usage": "show who held and used the shared GPUs, and for how long",
    "idle": "show who holds a slice of a shared GPU without work",
    "advise": "advise the right size of what holds slices, by the peaks that were seen",
    "top": "show what each container does on the shared GPUs now",
    "ui": "show the same as a page in the browser, live",
    "thaw": "thaw the containers that this node's agent has frozen",
    "demo": "take a tour: the real webhook on loopback, and a sample cluster",
    "explain": "show how memory caps are calculated, and who may be paused",
    "rules": "list the rules, or show the page of one",
    "schema": "print the JSON Schema of a policy or of its tests, for editors",
    "doctor": "check the installation in a live cluster",
    "prove": "try each way to a GPU on a live cluster",
    "registration": "print the webhook configurations that a policy needs",
    "fallback": "print the part of a policy that the API server can enforce by itself",
    "certs": "issue certificates, and keep those of a cluster valid",
    "completion": "print a shell completion script",
    "help": "show the help of a command",
    "version": "print the version",
}
"""The name and purpose of each command; the module of that name has it as `command`."""
