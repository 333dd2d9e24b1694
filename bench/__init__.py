"""The benchmarks that the README's figures come from."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "tests"))  # `cluster`, the control plane, has its home there
