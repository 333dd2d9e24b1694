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
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        if name in os.environ:
            torch.cuda.memory._set_allocator_settings(os.environ[name])
            return


def jax() -> float | None:
    client = import_module("jaxlib.xla_client")
    fraction = client.generate_pjrt_gpu_plugin_options().get("memory_fraction")
    return None if fraction is None else float(fraction)


def cupy() -> float | None:
    memory = import_module("cupy.cuda.memory")
    limit = memory._parse_limit_string()
    return None if limit["fraction"] is None else float(limit["fraction"])


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
