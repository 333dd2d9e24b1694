"""Take GPU memory with TensorFlow, configured in one way: `tensorflow_devices.py WAY`. Prints MiB, as JSON."""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

CHUNK = 64


def take(tf: Any, device: str = "GPU:0") -> int:
    held: list[object] = []
    try:
        while len(held) * CHUNK < 20000:
            with tf.device(device):
                held.append(tf.raw_ops.Empty(shape=[CHUNK << 20], dtype=tf.uint8))
    except tf.errors.ResourceExhaustedError:
        pass
    return len(held) * CHUNK


def gpu(tf: Any) -> Any:
    return tf.config.list_physical_devices("GPU")[0]


def logical(tf: Any, *limits: int) -> list[int]:
    configurations = [tf.config.LogicalDeviceConfiguration(memory_limit=limit) for limit in limits]
    tf.config.set_logical_device_configuration(gpu(tf), configurations)
    return [take(tf, f"GPU:{index}") for index in range(len(limits))]


def growth(tf: Any) -> list[int]:
    tf.config.experimental.set_memory_growth(gpu(tf), True)
    return [take(tf)]


def session(tf: Any, fraction: float) -> list[int]:
    v1 = tf.compat.v1
    v1.disable_eager_execution()
    options = v1.GPUOptions(per_process_gpu_memory_fraction=fraction, allow_growth=True)
    with v1.Session(config=v1.ConfigProto(gpu_options=options)) as one:
        return [device.memory_limit_bytes >> 20 for device in one.list_devices() if device.device_type == "GPU"]


def imported(_: Any) -> list[int]:
    context = import_module("tensorflow.python.eager.context")
    return [int(context.context()._initialized)]


WAYS: dict[str, Callable[[Any], list[int]]] = {
    "take": lambda tf: [take(tf)],
    "import": imported,
    "growth": growth,
    "one large device": lambda tf: logical(tf, 8000),
    "one small device": lambda tf: logical(tf, 1000),
    "two devices": lambda tf: logical(tf, 4000, 2000),
    "session": lambda tf: session(tf, 0.9),
}

if __name__ == "__main__":
    print(json.dumps(WAYS[sys.argv[1]](import_module("tensorflow"))), flush=True)
