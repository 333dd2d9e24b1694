"""Lists the CEL functions that a fallback calls and that some API servers lack."""

from webhook.engine.registration import API_VERSION
from webhook.model import Object

CALLS = (
    "[[1]].flatten().distinct().slice(0, 1).all(i, v, i <= v) && [1].exists(i, v, i <= v)"
    " && [1].transformList(i, v, v).size() == 1"
    " && {'a': 1}.transformMap(k, v, v).transformMapEntry(k, v, {k: v}).size() == 1"
)
"""An expression that calls every function of a fallback that Kubernetes 1.30 does not have.

Comprehensions with two variables came with 1.32 and lists version 3 with 1.34. A new expression may use them one
release later (apiserver pkg/cel/environment/base.go).
"""

LACKING = (
    "there is no fallback, because this API server lacks CEL functions that it calls, such as flatten; Kubernetes 1.35 "
    "has them"
)
"""The sentence about an API server that refuses CALLS."""

INVALID = 422
"""The HTTP status of a policy whose expressions do not compile."""


def calling(policy: Object) -> Object:
    """Return a patch of an installed policy that makes it call the functions.

    Sent as a dry run, it shows if they exist.
    """
    spec = {"validations": [{"expression": CALLS}]}
    return {
        "apiVersion": API_VERSION,
        "kind": policy["kind"],
        "metadata": {"name": policy["metadata"]["name"]},
        "spec": spec,
    }
