"""Take GPU memory with PyTorch in processes that come to be in one way: `processes.py WAY`. Prints MiB, as JSON."""

import json
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

CHUNK = 64

# As in pretend/sitecustomize.py, which Python may have been told not to read.
sys.setdlopenflags(os.RTLD_LAZY)


def take() -> int:
    torch = import_module("torch")

    held: list[object] = []
    try:
        while len(held) * CHUNK < 20000:
            held.append(torch.empty(CHUNK << 20, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError:
        pass
    return len(held) * CHUNK


def child(queue: Any) -> None:
    queue.put(take())


def started(method: str) -> Any:
    context: Any = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    taken = queue.get(timeout=200)
    process.join()
    return taken


def threads() -> int:
    torch = import_module("torch")

    held: list[object] = []

    def greedy() -> None:
        try:
            while len(held) < 400:
                held.append(torch.empty(CHUNK << 20, dtype=torch.uint8, device="cuda"))
        except torch.cuda.OutOfMemoryError:
            pass

    together = [threading.Thread(target=greedy) for _ in range(4)]
    for one in together:
        one.start()
    for one in together:
        one.join()
    return len(held) * CHUNK


def program(**environment: str) -> Any:
    command = [sys.executable, __file__, "take"]
    ran = subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, check=True)
    return json.loads(ran.stdout)


def fraction(wanted: float) -> int:
    torch = import_module("torch")
    torch.cuda.set_per_process_memory_fraction(wanted)
    return take()


def private() -> int:
    torch = import_module("torch")
    torch.cuda.init()
    torch._C._cuda_setMemoryFraction(1.0, 0)
    return take()


def imported() -> int:
    torch = import_module("torch")
    return int(torch.cuda.is_initialized())


def workers() -> int:
    """Load data by two forked processes, then take memory: PyTorch's usual loop."""
    torch = import_module("torch")
    loader = torch.utils.data.DataLoader(list(range(8)), batch_size=2, num_workers=2)
    assert sum(int(batch.sum()) for batch in loader) == 28
    return take()


WAYS: dict[str, Callable[[], Any]] = {
    "take": take,
    "import": imported,
    "fork": lambda: started("fork"),
    "spawn": lambda: started("spawn"),
    "forkserver": lambda: started("forkserver"),
    "threads": threads,
    "data loader": workers,
    "program": program,
    "program with a path of its own": lambda: program(PYTHONPATH=os.environ["PYTHONPATH"].partition(":")[2]),
    "larger fraction": lambda: fraction(0.9),
    "smaller fraction": lambda: fraction(0.1),
    "private function": private,
}

if __name__ == "__main__":
    print(json.dumps(WAYS[sys.argv[1]]()), flush=True)
