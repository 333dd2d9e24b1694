"""Finds programs in a container's command line that only an argument can limit."""

from collections.abc import Sequence
from typing import NamedTuple

from webhook.memory.budget import Budget
from webhook.memory.steps import Step, StepKind, Words, fraction
from webhook.memory.tables import ALONE, Form, Variable, VariableEffect


class Program(NamedTuple):
    """A program that no variable can cap.

    One of `commands` starts it, with `verb` as the next word if there is one. So does a Python module whose name begins
    with `module`, or an image named `image`. `flag` is the argument that takes a fraction of the card; without a flag
    there is `advice`. It also reads `variables`.
    """

    name: str
    commands: frozenset[str]
    flag: str = ""
    verb: str = ""
    module: str = ""
    image: str = ""
    advice: str = ""
    source: str = ""
    variables: tuple[Variable, ...] = ()


PROGRAMS = (
    Program(
        "vLLM",
        frozenset({"vllm"}),
        "--gpu-memory-utilization",
        verb="serve",
        module="vllm.entrypoints",
        image="vllm-openai",
        source="vllm vllm/config/cache.py, vllm/envs.py",
    ),
    Program(
        "SGLang",
        frozenset({"sglang"}),
        "--mem-fraction-static",
        verb="serve",
        module="sglang.launch_server",
        image="sglang",
        source="sglang python/sglang/srt/server_args.py",
    ),
    Program(
        "Triton",
        frozenset({"tritonserver"}),
        image="tritonserver",
        advice="limit each backend in its model's configuration; its PyTorch backend keeps torch's cap",
        source="triton-inference-server/server src/command_line_parser.cc",
    ),
    Program(
        "Ollama",
        frozenset({"ollama"}),
        verb="serve",
        image="ollama",
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
        image="llama.cpp",
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
)

_COMMANDS = {command: program for program in PROGRAMS for command in program.commands}
_IMAGES = {program.image: program for program in PROGRAMS if program.image}

NO_LIMIT = Words("{name} has no memory limit that a pod can set; {advice}", "{name}: has no limit to set")
LACKS_FLAG = Words("{name} is started without {flag}")
NO_FLAG = Words(
    "{name} cannot be limited by environment variables; add {ours} to args (shell scripts are not inspected)",
    "{name}: started without {flag}",
)
LARGER = Words("{flag} of {name} is {old}, more than its slice; use {ours}", "{name}: {flag} is above the slice")


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
        return next((p for p in PROGRAMS if p.module and f"{module}.".startswith(f"{p.module}.")), None)
    return None


def program(image: str, words: Sequence[str]) -> tuple[Program | None, bool]:
    """Return the program of a container, and whether its command clearly starts it. Else it is known by the image."""
    clearly = started(words)
    return (_IMAGES.get(image), False) if clearly is None else (clearly, True)


def merge(program: Program, words: Sequence[str], budget: Budget, *, append: bool) -> Step | None:
    """Return the step that limits a program, or None.

    A step of kind ADD has the argument to append as its value. This needs `append`, and no such argument yet.
    """
    if budget.unified:
        return None
    if not program.flag:
        return Step(StepKind.UNSURE, program.name, NO_LIMIT, details=(("advice", program.advice),))
    value = _value(program.flag, words)
    ours = f"{program.flag}={budget.fraction}"
    details = (("flag", program.flag), ("ours", ours))
    if value is None and append:
        return Step(StepKind.ADD, program.name, LACKS_FLAG, ours, details=details)
    if value is None:
        return Step(StepKind.UNSURE, program.name, NO_FLAG, details=details)
    number = fraction(value)
    if number is None or not 0 < number <= budget.permille / 1000:
        return Step(StepKind.UNSURE, program.name, LARGER, old=value, details=details)
    return None


def limited(program: Program, step: Step | None, budget: Budget) -> str:
    """Return the program's name if an argument limits it to its slice, also one that a step appends; else ""."""
    if not program.flag or budget.unified or (step is not None and step.kind is not StepKind.ADD):
        return ""
    return program.name


def _value(flag: str, words: Sequence[str]) -> str | None:
    """Return the value of an argument, written as one word or as two. The last one counts."""
    value = None
    for word, after in zip(words, [*words[1:], ""], strict=False):
        name, equals, text = word.partition("=")
        if name.replace("_", "-") == flag:
            value = text if equals else after
    return value
