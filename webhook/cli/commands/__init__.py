"""The commands: one file each, with its options and its run. Only the one that is asked for is imported."""

from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "check": "judge manifests as the webhook would",
    "audit": "judge everything that runs in a live cluster",
    "diff": "say what a change of policy would do",
    "test": "hold policies to the tests that are kept beside them",
    "policy": "look after the policy itself: lint it",
    "serve": "run the admission webhook",
    "demo": "a tour: the real webhook on loopback, and a sample cluster",
    "explain": "say how memory caps come about",
    "rules": "list the rules, or show the page of one",
    "schema": "print the JSON Schema of a policy or of its tests, for editors",
    "registration": "print the webhook configurations that a policy needs",
    "completion": "print what has a shell complete all this",
    "certs": "issue certificates, and keep those of a cluster",
}
"""The name and purpose of each command; the module of that name has it as `command`."""
