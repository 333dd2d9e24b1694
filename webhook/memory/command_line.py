"""Finds programs in a container's command line that only an argument can limit."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from webhook.memory.budget import Budget
from webhook.memory.steps import Step, StepKind, Words, fraction
from webhook.memory.tables import ALONE, Form, Variable, VariableEffect


class Program(NamedTuple):
    """A program that no variable can cap.

    It is recognised by one of `commands`, followed by `verb` if there is one; by a Python module whose name begins with
    one of `modules`; or by its image, if the last part of the reference, or the last two parts, are in `images`. `flag`
    is the argument that takes a fraction of the card, and `without` says what happens without the argument. A program
    without a flag has `advice` instead. `variables` are variables that the program reads too.
    """

    name: str
    commands: frozenset[str]
    flag: str = ""
    verb: str = ""
    modules: tuple[str, ...] = ()
    images: frozenset[str] = frozenset()
    without: str = ""
    advice: str = ""
    source: str = ""
    variables: tuple[Variable, ...] = ()


_FAILS = (
    "so with torch 2.10 or newer it fails at its start under the cap of its slice, and with an older torch it may take "
    "that much"
)

PROGRAMS = (
    Program(
        "vLLM",
        frozenset({"vllm"}),
        "--gpu-memory-utilization",
        verb="serve",
        modules=("vllm.entrypoints", "dynamo.vllm", "huggingfaceserver"),
        images=frozenset({"vllm", "vllm-openai", "vllm-runtime", "huggingfaceserver"}),
        without=f"plans with 0.9 of the card, {_FAILS}",
        source=(
            "vllm vllm/config/cache.py, vllm/envs.py; ai-dynamo/dynamo components/src/dynamo/vllm/args.py and kserve "
            "python/huggingfaceserver take vLLM's arguments"
        ),
    ),
    Program(
        "SGLang",
        frozenset({"sglang"}),
        "--mem-fraction-static",
        verb="serve",
        modules=("sglang.launch_server", "dynamo.sglang"),
        images=frozenset({"sglang", "sglang-runtime"}),
        without=f"plans with most of the card, {_FAILS}",
        source="sglang python/sglang/srt/server_args.py; ai-dynamo/dynamo components/src/dynamo/sglang/args.py",
    ),
    Program(
        "TensorFlow Serving",
        frozenset({"tensorflow_model_server"}),
        "--per_process_gpu_memory_fraction",
        images=frozenset({"tensorflow/serving"}),
        without="takes the whole card, and reads no variable that limits it",
        source="tensorflow/serving tensorflow_serving/model_servers/main.cc",
    ),
    Program(
        "Triton",
        frozenset({"tritonserver"}),
        images=frozenset({"tritonserver"}),
        advice="limit each backend in its model's configuration; its PyTorch backend keeps torch's cap",
        source="triton-inference-server/server src/command_line_parser.cc",
    ),
    Program(
        "Ollama",
        frozenset({"ollama"}),
        verb="serve",
        images=frozenset({"ollama"}),
        advice="choose a model and OLLAMA_CONTEXT_LENGTH that fit; OLLAMA_GPU_OVERHEAD only plans",
        source="ollama envconfig/config.go, llm/llama_server.go",
        variables=(
            Variable(
                "OLLAMA_GPU_OVERHEAD",
                Form.BYTES,
                VariableEffect.PLAN,
                since="ollama 0.3.10; from 0.30 on hardly that",
                bad="taken for 0; more than the card wraps around",
                merge=ALONE,
                source="ollama envconfig/config.go, server/sched.go",
                written=False,
            ),
        ),
    ),
    Program(
        "llama.cpp",
        frozenset({"llama-server"}),
        images=frozenset({"llama.cpp"}),
        advice="choose --n-gpu-layers and --ctx-size that fit; LLAMA_ARG_FIT_TARGET only plans",
        source="llama.cpp tools/fit-params/README.md",
        variables=(
            Variable(
                "LLAMA_ARG_FIT_TARGET",
                Form.MIB,
                VariableEffect.PLAN,
                since="end of 2025; what is left free at the start",
                bad="the default",
                merge=ALONE,
                source="llama.cpp#18390, tools/fit-params/README.md",
                written=False,
            ),
        ),
    ),
    Program(
        "TensorRT-LLM",
        frozenset({"trtllm-serve"}),
        modules=("dynamo.trtllm",),
        images=frozenset({"tensorrtllm-runtime"}),
        advice="choose --kv_cache_free_gpu_memory_fraction that fits; it is a part of what is free when it starts",
        source="TensorRT-LLM tensorrt_llm/commands/serve.py",
    ),
    Program(
        "text-embeddings-inference",
        frozenset({"text-embeddings-router"}),
        images=frozenset({"text-embeddings-inference"}),
        advice="choose a model and --max-batch-tokens that fit",
        source="huggingface/text-embeddings-inference router/src/main.rs",
    ),
    Program(
        "whisper.cpp",
        frozenset({"whisper-server", "whisper-cli"}),
        images=frozenset({"whisper.cpp"}),
        advice="choose a model that fits",
        source="ggml-org/whisper.cpp examples/server/README.md",
    ),
    Program(
        "LocalAI",
        frozenset({"local-ai"}),
        images=frozenset({"localai", "local-ai"}),
        advice="choose models and context sizes that fit",
        source="mudler/LocalAI docs, model configuration",
    ),
    Program(
        "FFmpeg",
        frozenset({"ffmpeg"}),
        images=frozenset(
            {
                *("emby", "embyserver", "ffmpeg", "frigate", "go2rtc", "jellyfin", "plex", "pms-docker", "tdarr"),
                *("tdarr_node", "unmanic"),
            }
        ),
        advice="NVENC and NVDEC take memory of the card for each stream; allow few streams at a time",
        source="FFmpeg libavcodec/nvenc.c",
    ),
)

_COMMANDS = {command: program for program in PROGRAMS for command in program.commands}
_IMAGES = {image: program for program in PROGRAMS for image in program.images}
_LIMITED = {command: program for command, program in _COMMANDS.items() if program.flag}

NO_LIMIT = Words(
    "{name} has no memory limit that a pod can set, so it shares the card uncapped; {advice}",
    "{name}: has no limit to set",
)
LACKS_FLAG = Words("{name} is started without {flag}")
NO_FLAG = Words("{name} {without}; add {ours} {where}", "{name}: started without {flag}")
LARGER = Words("{flag} of {name} is {old}, more than its slice; use {ours}", "{name}: {flag} is above the slice")
UNKNOWN = Words(
    "{flag} of {name} is {old}, which is known only when it runs; use {ours}", "{name}: {flag} is not known"
)


class Start(NamedTuple):
    """How a container starts a program: the words with its arguments, and the place where more would be added.

    `clearly` is true if the container's command is certain to start it, so that arguments can be appended.
    """

    program: Program
    words: Sequence[str]
    where: str
    clearly: bool = False


ARGS = "to args"
"""The place for more arguments, if the program's arguments are the container's `args`."""


def start(reference: str, words: Sequence[str]) -> Start | None:
    """Return the program that a container starts: by its command, by a shell's script, or else by its image.

    The work is linear in the text of the words.
    """
    if program := started(words):
        return Start(program, words, ARGS, clearly=True)
    text = inline_script(words)
    script = _SCRIPT_WORDS.split(text) if text else []
    if script and (program := _started_in(script)):
        named = {word.rpartition("/")[2] for word in script}
        command = next((each for each in program.commands if each in named), program.name)
        return Start(program, script, f"to the {command} command in the script")
    if program := _of_image(reference):
        return Start(program, words, ARGS if not words or words[0].startswith("-") else "to the command that starts it")
    return None


def started(words: Sequence[str]) -> Program | None:
    """Return the program that a command clearly starts, by its name or as a Python module. A shell hides it."""
    if not words:
        return None
    command = words[0].rpartition("/")[2]
    program = _COMMANDS.get(command)
    if program is not None:
        return program if not program.verb or program.verb in words[1:2] else None
    if command.startswith("python") and "-m" in words[:-1]:
        module = words[words.index("-m") + 1]
        return next((p for p in PROGRAMS if any(f"{module}.".startswith(f"{name}.") for name in p.modules)), None)
    return None


_SHELLS = frozenset({"ash", "bash", "dash", "ksh", "sh", "zsh"})
_INLINE = re.compile(r"-[a-z]*c", re.ASCII)

_SCRIPT_WORDS = re.compile(r"[\s;&|()\"'`]+")
"""The separators of a script's words. The script is only searched for words, not parsed as a shell would."""


def inline_script(words: Sequence[str]) -> str:
    """Return the script that a command gives to a shell by `-c`; empty if it gives no script."""
    if not words or words[0].rpartition("/")[2] not in _SHELLS:
        return ""
    at = next((index for index, word in enumerate(words) if _INLINE.fullmatch(word)), len(words))
    return next((word for word in words[at + 1 :] if word != "--"), "")


def _started_in(script: Sequence[str]) -> Program | None:
    """Return the program that a script starts or names, if an argument can limit it."""
    for index, word in enumerate(script):
        name = word.rpartition("/")[2]
        if (name in _COMMANDS or name.startswith("python")) and (program := started(script[index : index + _FEW])):
            return program
    return next((_LIMITED[word] for word in script if word in _LIMITED), None)


_FEW = 8
"""Words after `python` among which `-m` stands."""


def _of_image(reference: str) -> Program | None:
    folder, _, last = reference.partition("@")[0].rpartition("/")
    name = last.partition(":")[0]
    return _IMAGES.get(name) or _IMAGES.get(f"{folder.rpartition('/')[2]}/{name}")


def merge(start: Start, budget: Budget, *, append: bool) -> Step | None:
    """Return the step that limits a program, or None.

    A step of kind ADD has the argument to append as its value. This needs `append`, and no such argument yet.
    """
    program = start.program
    if budget.unified:
        return None
    if not program.flag:
        return Step(StepKind.UNSURE, program.name, NO_LIMIT, details=(("advice", program.advice),))
    value = _value(program.flag, start.words)
    ours = f"{program.flag}={budget.fraction}"
    details = (("flag", program.flag), ("ours", ours), ("without", program.without), ("where", start.where))
    if value is None and append and start.clearly:
        return Step(StepKind.ADD, program.name, LACKS_FLAG, ours, details=details)
    if value is None:
        return Step(StepKind.UNSURE, program.name, NO_FLAG, details=details)
    number = fraction(value)
    if number is None and "$" in value:
        return Step(StepKind.UNSURE, program.name, UNKNOWN, old=value, details=details)
    if number is None or not 0 < number <= budget.permille / 1000:
        return Step(StepKind.UNSURE, program.name, LARGER, old=value, details=details)
    return None


def limited(start: Start, step: Step | None, budget: Budget) -> str:
    """Return the program's name if an argument limits its memory to its slice; else "".

    The argument may be one that `step` appends. An argument in a script does not count,
    because it may belong to another program.
    """
    if (
        not start.program.flag
        or start.where != ARGS
        or budget.unified
        or (step is not None and step.kind is not StepKind.ADD)
    ):
        return ""
    return start.program.name


def _value(flag: str, words: Sequence[str]) -> str | None:
    """Return the value of an argument, written as one word or as two. The last one counts."""
    value, dashed = None, flag.replace("_", "-")
    for word, after in zip(words, [*words[1:], ""], strict=False):
        name, equals, text = word.partition("=")
        if name.replace("_", "-") == dashed:
            value = text if equals else after
    return value
