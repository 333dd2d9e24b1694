"""Read by every Python that runs on the pretended card, before anything else."""

import os
import sys
from importlib.util import find_spec

# PyTorch is linked to NVIDIA's other libraries, which are there by name alone: what is missing in them must not be
# looked for until it is called. For others that would be wrong: TensorFlow then serves its own SSL to Python's.
if find_spec("torch"):
    sys.setdlopenflags(os.RTLD_LAZY)

# JAX looks for this file before it loads the driver (jax/_src/hardware_utils.py).
_exists = os.path.exists
os.path.exists = lambda path: path == "/dev/nvidia0" or _exists(path)
