"""Take GPU memory with PyTorch in a task and in an actor of Ray, whose daemon starts both. Prints MiB, as JSON."""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def take() -> int:
    sys.path.insert(0, str(Path(__file__).parent))
    return int(import_module("processes").take())


class Actor:
    def take(self) -> int:
        return take()


def main() -> None:
    ray: Any = import_module("ray")
    ray.init(num_cpus=1, num_gpus=2, include_dashboard=False, object_store_memory=80 * 2**20, log_to_driver=False)
    on_a_gpu = {"num_cpus": 0, "num_gpus": 1}
    task = ray.get(ray.remote(**on_a_gpu)(take).remote(), timeout=200)
    actor = ray.get(ray.remote(**on_a_gpu)(Actor).remote().take.remote(), timeout=200)
    ray.shutdown()
    print(json.dumps([task, actor]))


if __name__ == "__main__":
    main()
