"""Let a framework's own parser read many environments: `parse.py FRAMEWORK`, a JSON list of them on standard input.

Prints a JSON list: for each environment the fraction of the card that the framework read, null where it took the value
and does not say, or the error it raised.
"""

import json
import os
import sys
from importlib import import_module


def pytorch() -> None:
    torch = import_module("torch")
    torch.cuda.init()
    torch._C._accelerator_setAllocatorSettings(os.environ["PYTORCH_ALLOC_CONF"])


def jax() -> float:
    client = import_module("jaxlib.xla_client")
    return float(client.generate_pjrt_gpu_plugin_options()["memory_fraction"])


def cupy() -> float:
    memory = import_module("cupy.cuda.memory")
    return float(memory._parse_limit_string()["fraction"])


def main() -> None:
    read = {each.__name__: each for each in (pytorch, jax, cupy)}[sys.argv[1]]
    found: list[float | str | None] = []
    for environment in json.load(sys.stdin):
        os.environ.update(environment)
        try:
            found.append(read())
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
        for name in environment:
            del os.environ[name]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
