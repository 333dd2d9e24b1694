"""CUDA itself: no variable caps it. Loading modules lazily leaves more of the card to the frameworks."""

from webhook.memory.tables import ABSENT, ALONE, Form, Variable, VariableEffect

TITLE = "CUDA"
ORDER = 6
CAPPED = ""

HAMI_LIMIT = "CUDA_DEVICE_MEMORY_LIMIT"
"""HAMi-core's limit for all cards; with `_0` at its end, for the first one."""

VARIABLES = (
    Variable(
        "CUDA_MODULE_LOADING",
        Form.TEXT,
        VariableEffect.NONE,
        since="CUDA 11.7, and the default from 12.2 on; contexts take less memory, which is all it does",
        bad="taken for the default",
        merge=ABSENT,
        source="CUDA C++ Programming Guide, lazy loading; pytorch#86509",
        text="LAZY",
        default=True,
    ),
    Variable(
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
        Form.TEXT,
        VariableEffect.HARD,
        since="only with an MPS daemon, for each client; the device plugin sets it there",
        bad="not tried",
        merge=ALONE,
        source="k8s-device-plugin cmd/mps-control-daemon/mps/daemon.go",
        written=False,
    ),
    Variable(
        HAMI_LIMIT,
        Form.TEXT,
        VariableEffect.NONE,
        since="HAMi-core; hard where its library is preloaded, and nothing elsewhere",
        bad="no limit",
        merge=ALONE,
        source="HAMi-core src/multiprocess/multiprocess_memory_limit.c",
        written=False,
    ),
)
