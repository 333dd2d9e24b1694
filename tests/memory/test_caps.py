"""Merging caps with what tenants write: against tables, and against the frameworks' own grammars."""

import copy
import json
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, event, example, given
from hypothesis import strategies as st

from tests.support import grammars
from tests.support.grammars import Fails
from tests.support.strategies import request_for
from webhook.api.jsonpatch import apply
from webhook.api.selectors import NOWHERE, NodeSelectorTerm, Requirement, Selector
from webhook.engine.engine import Engine
from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.gpu.selection import ANY, MAX_CHOICES, Selection
from webhook.memory import annotation, command_line, environment, frameworks
from webhook.memory.budget import (
    ALL,
    Budget,
    InvalidAnnotation,
    Wish,
    budget,
    card_of,
    nodes,
    smallest,
    wish,
)
from webhook.memory.command_line import PROGRAMS
from webhook.memory.frameworks import jax
from webhook.memory.frameworks.pytorch import parse, version
from webhook.memory.steps import WRITES, Cap, Step, StepKind, Torch, describe, natural, noted
from webhook.model import Action
from webhook.policy.model import Card, Policy, Pool, TorchVersion
from webhook.policy.resources import ResourceNames
from webhook.rules import walk

POLICY = Policy("p", ())
T4 = Card("Tesla-T4", 15360, 4)
CAP = budget(T4, POLICY)
HOSTS = Card("NVIDIA-GB10", 122880, 4)
"""A card that uses the host's memory."""
OURS = "per_process_memory_fraction:0.211"

A, C, H = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"
XO, XN = "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION"
OPTIONS, SEPARATE = "JAX_PJRT_CLIENT_CREATE_OPTIONS", "xla_gpu_temp_buffer_use_separate_color"
VIRTUAL = "FLAGS_use_virtual_memory_auto_growth"
CUPY, PADDLE, GROWTH = "CUPY_GPU_MEMORY_LIMIT", "FLAGS_gpu_memory_limit_mb", "TF_FORCE_GPU_ALLOW_GROWTH"

Env = dict[str, str | None]


def only(*frameworks: str, **changes: Any) -> Policy:
    return replace(POLICY, frameworks=frameworks, **changes)


def merge(env: Env, policy: Policy = POLICY, torch: Torch = None, cap: Budget = CAP) -> tuple[Step, ...]:
    return environment.merge(env, Cap(cap, policy, torch))


def kinds(env: Env, policy: Policy = POLICY, torch: Torch = None, cap: Budget = CAP) -> list[str]:
    return sorted(step.kind.name for step in merge(env, policy, torch, cap) if step.kind is not StepKind.ADD)


def merged(env: Env, policy: Policy = POLICY, torch: Torch = None, cap: Budget = CAP) -> Env:
    return environment.applied(env, merge(env, policy, torch, cap))


# PyTorch: environment, release, what it becomes, kinds of the steps that are more than additions

OLD, NEW = (2, 8), (2, 11)

TORCH: list[tuple[Env, Torch, Env, list[str]]] = [
    ({}, None, {A: OURS}, []),
    ({}, NEW, {A: OURS, C: OURS}, []),
    ({}, (2, 10), {A: OURS, C: OURS}, []),
    ({}, OLD, {A: OURS}, ["UNSURE"]),
    ({A: "expandable_segments:True"}, None, {A: f"expandable_segments:True,{OURS}"}, ["SET"]),
    ({A: "a:b , "}, NEW, {A: f"a:b,{OURS}", C: f"a:b,{OURS}"}, ["SET"]),
    ({A: f"x:[1:2, >:3] , {OURS}"}, None, {A: f"x:[1:2, >:3] , {OURS}"}, []),
    ({A: "per_process_memory_fraction:0.9"}, None, {A: OURS}, ["LOWER"]),
    ({A: "per_process_memory_fraction:0.9, a:b"}, None, {A: f"{OURS}, a:b"}, ["LOWER"]),
    (
        {A: "per_process_memory_fraction:0.1,a:b,per_process_memory_fraction:1"},
        NEW,
        {A: f"a:b,{OURS}", C: f"a:b,{OURS}"},
        ["LOWER"],
    ),
    ({A: "per_process_memory_fraction:50%"}, None, {A: "per_process_memory_fraction:50%"}, ["REFUSE"]),
    ({A: "per_process_memory_fraction:0"}, None, {A: "per_process_memory_fraction:0"}, ["REFUSE"]),
    ({A: "no list"}, None, {A: "no list"}, ["REFUSE"]),
    ({A: "no list"}, NEW, {A: "no list"}, ["REFUSE"]),
    ({A: None}, None, {A: None}, ["DEFEAT"]),
    ({A: "$(X)"}, NEW, {A: "$(X)"}, ["DEFEAT"]),
    ({A: "backend:cudaMallocAsync"}, None, {A: f"backend:cudaMallocAsync,{OURS}"}, ["DEFEAT", "SET"]),
    ({C: ""}, None, {C: ""}, ["REFUSE"]),
    ({C: ""}, NEW, {C: OURS, A: OURS}, ["SET"]),
    ({C: ""}, OLD, {C: "", A: OURS}, ["UNSURE"]),
    ({C: "max_split_size_mb:64"}, None, {C: "max_split_size_mb:64"}, ["DEFEAT"]),
    ({C: "max_split_size_mb:64"}, OLD, {C: "max_split_size_mb:64", A: OURS}, ["UNSURE"]),
    ({A: None, H: "="}, OLD, {A: None, H: "="}, ["UNSURE"]),
    ({C: "max_split_size_mb:64"}, NEW, {C: f"max_split_size_mb:64,{OURS}", A: OURS}, ["SET"]),
    ({C: "large_segment_size_mb:40"}, None, {C: f"large_segment_size_mb:40,{OURS}"}, ["SET"]),
    ({C: "per_process_memory_fraction:0.5"}, None, {C: OURS}, ["LOWER"]),
    ({C: None}, None, {C: None}, ["DEFEAT"]),
    ({C: None}, NEW, {C: None, A: OURS}, ["DEFEAT"]),
    ({C: "=", A: "a:b"}, None, {C: "=", A: "a:b"}, ["REFUSE"]),
    ({C: "a:b", A: "no list"}, NEW, {C: f"a:b,{OURS}", A: "no list"}, ["SET"]),
    ({H: "a:b"}, None, {H: "a:b"}, ["DEFEAT"]),
    ({H: "a:b"}, NEW, {H: "a:b", A: OURS, C: f"a:b,{OURS}"}, []),
    ({H: None}, NEW, {H: None, A: OURS}, ["DEFEAT"]),
    ({H: "="}, NEW, {H: "=", A: OURS}, ["REFUSE"]),
]


@pytest.mark.parametrize(("env", "torch", "after", "said"), TORCH)
def test_torch(env: Env, torch: Torch, after: Env, said: list[str]) -> None:
    policy = only("pytorch")
    assert merged(env, policy, torch) == after
    assert kinds(env, policy, torch) == said


def test_an_older_torch_gets_the_settings_of_the_policy_that_it_knows() -> None:
    policy = only("pytorch", older_settings={"max_split_size_mb": "64", "expandable_segments": "True"})
    assert merged({}, policy, (2, 8))[C] == "max_split_size_mb:64,expandable_segments:True"
    assert merged({}, policy, (2, 1))[C] == "max_split_size_mb:64,expandable_segments:True"
    assert merged({}, policy, (2, 0))[C] == "max_split_size_mb:64"
    assert merged({C: "max_split_size_mb:32,"}, policy, (2, 8))[C] == "max_split_size_mb:32,expandable_segments:True"
    assert merged({C: None}, policy, (2, 8)) == {C: None, A: OURS}
    assert C not in merged({}, policy, None)
    assert merged({}, policy, (2, 10))[C] == OURS


REST: list[tuple[str, Env, Env, list[str]]] = [
    ("jax", {}, {XO: "0.211", XN: "", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, []),
    ("jax", {XO: "0.9", XN: ""}, {XO: "0.211", XN: ""}, ["LOWER"]),
    ("jax", {XO: ".1"}, {XO: ".1", XN: ""}, []),
    ("jax", {XO: ""}, {XO: "0.211", XN: ""}, ["SET"]),
    ("jax", {XN: "4.0"}, {XN: "0.211"}, ["LOWER"]),
    ("jax", {XN: None}, {XN: None}, ["DEFEAT"]),
    ("jax", {XO: "$(F)"}, {XO: "$(F)", XN: ""}, ["DEFEAT"]),
    ("jax", {XO: "-1"}, {XO: "-1", XN: ""}, ["REFUSE"]),
    ("jax", {XO: "0.1", XN: "0.1"}, {XO: "0.1", XN: "0.1"}, ["UNSURE"]),
    ("jax", {XO: "0.1", XN: None}, {XO: "0.1", XN: None}, ["DEFEAT"]),
    ("jax", {XO: "0.1", XN: "", "XLA_PYTHON_CLIENT_ALLOCATOR": "Platform"}, {XO: "0.1", XN: ""}, ["DEFEAT"]),
    ("jax", {XO: "0.1", XN: "", "XLA_PYTHON_CLIENT_ALLOCATOR": "BFC"}, {XO: "0.1", XN: ""}, []),
    ("jax", {XO: "0.1", XN: "", "TF_FORCE_UNIFIED_MEMORY": None}, {XO: "0.1", XN: ""}, ["DEFEAT"]),
    ("pytorch", {A: OURS, "PYTORCH_NO_CUDA_MEMORY_CACHING": ""}, {A: OURS}, ["DEFEAT"]),
    ("tensorflow", {}, {GROWTH: "true"}, []),
    ("tensorflow", {GROWTH: "True"}, {GROWTH: "true"}, ["LOWER"]),
    ("tensorflow", {GROWTH: None}, {GROWTH: None}, ["UNSURE"]),
    ("tensorflow", {GROWTH: "true", "TF_GPU_ALLOCATOR": "cuda_malloc_async"}, {GROWTH: "true"}, ["DEFEAT"]),
    ("cupy", {}, {CUPY: "21.1%"}, []),
    ("cupy", {CUPY: "21.1%"}, {CUPY: "21.1%"}, []),
    ("cupy", {CUPY: "22%"}, {CUPY: "21.1%"}, ["LOWER"]),
    ("cupy", {CUPY: "0%"}, {CUPY: "21.1%"}, ["LOWER"]),
    ("cupy", {CUPY: "1073741824"}, {CUPY: "1073741824"}, []),
    ("cupy", {CUPY: "99999999999"}, {CUPY: "3408920576"}, ["LOWER"]),
    ("cupy", {CUPY: "0"}, {CUPY: "3408920576"}, ["LOWER"]),
    ("cupy", {CUPY: "1GiB"}, {CUPY: "1GiB"}, ["REFUSE"]),
    ("cupy", {CUPY: ""}, {CUPY: "21.1%"}, ["SET"]),
    ("cupy", {CUPY: "$(SHARE)"}, {CUPY: "$(SHARE)"}, ["DEFEAT"]),
    ("paddlepaddle", {PADDLE: "$(SHARE)"}, {PADDLE: "$(SHARE)"}, ["DEFEAT"]),
    ("paddlepaddle", {}, {PADDLE: "3251"}, []),
    ("paddlepaddle", {PADDLE: "3251"}, {PADDLE: "3251"}, []),
    ("paddlepaddle", {PADDLE: "1"}, {PADDLE: "1"}, []),
    ("paddlepaddle", {PADDLE: "3252"}, {PADDLE: "3251"}, ["LOWER"]),
    ("paddlepaddle", {PADDLE: "-1"}, {PADDLE: "3251"}, ["LOWER"]),
    ("paddlepaddle", {PADDLE: ""}, {PADDLE: "3251"}, ["LOWER"]),
    ("cuda", {}, {"CUDA_MODULE_LOADING": "LAZY"}, []),
    ("cuda", {"CUDA_MODULE_LOADING": "EAGER"}, {"CUDA_MODULE_LOADING": "EAGER"}, []),
]


@pytest.mark.parametrize(("framework", "env", "after", "said"), REST)
def test_other_frameworks(framework: str, env: Env, after: Env, said: list[str]) -> None:
    outcome = merged(env, only(framework))
    assert {name: outcome[name] for name in after} == after
    assert kinds(env, only(framework)) == said


def test_every_framework_writes_the_variables_of_its_table_and_where_the_memory_is_the_hosts_no_fraction() -> None:
    for framework in frameworks.walk():
        written = {variable.name for variable in framework.variables if variable.written}
        assert {step.name for step in framework.steps({}, Cap(CAP, POLICY))} == written
        defaults = {variable.name for variable in framework.variables if variable.default}
        cap = Cap(budget(HOSTS, POLICY), POLICY)
        there = {step.name for step in framework.steps({}, cap)}
        assert there == (defaults if framework.fractions_only else written), framework.name


def test_a_framework_that_is_not_named_by_the_policy_is_not_merged() -> None:
    for framework in frameworks.walk():
        steps = environment.merge({}, Cap(CAP, only(framework.name)), framework.image)
        assert {step.name for step in steps} == {step.name for step in framework.steps({}, Cap(CAP, POLICY))}


def test_a_framework_of_fractions_is_not_merged_where_the_memory_is_the_hosts() -> None:
    def merge(_: Mapping[str, str | None], cap: Cap) -> Iterator[Step]:
        assert not cap.budget.unified
        yield Step(StepKind.ADD, "X")

    for framework in frameworks.walk():
        own = replace(framework, merge=merge, fractions_only=True)
        assert "X" not in {step.name for step in own.steps({}, Cap(budget(HOSTS, POLICY), POLICY))}
        assert "X" in {step.name for step in own.steps({}, Cap(CAP, POLICY))}


# What takes a cap away: framework, variable, value, and whether it does

DEFEATED: list[tuple[str, str, str, bool]] = [
    ("jax", OPTIONS, "allocator:platform", True),
    ("jax", OPTIONS, "ml_framework_name:x;allocator:cuda_async", True),
    ("jax", OPTIONS, " allocator : vmm", True),
    ("jax", OPTIONS, "allocator:address;allocator:bfc", True),
    ("jax", OPTIONS, "memory_fraction:0.9", True),
    ("jax", OPTIONS, "allocator:bfc", False),
    ("jax", OPTIONS, "ml_framework_name:allocator", False),
    ("jax", OPTIONS, "", False),
    ("jax", "XLA_FLAGS", f"--xla_dump_to=/tmp --{SEPARATE}", True),
    ("jax", "XLA_FLAGS", f"--{SEPARATE}=true", True),
    ("jax", "XLA_FLAGS", f"--{SEPARATE}='1'", True),
    ("jax", "XLA_FLAGS", "/etc/flags", True),
    ("jax", "XLA_FLAGS", "--xla_gpu_command_buffer_update_mode=NEVER_UPDATE", True),
    ("jax", "XLA_FLAGS", "--xla_gpu_command_buffer_update_mode=ALWAYS_UPDATE", False),
    ("jax", "XLA_FLAGS", f"--{SEPARATE}=false --xla_gpu_autotune_level=0", False),
    ("jax", "XLA_FLAGS", f'--{SEPARATE}="0"', False),
    ("jax", "XLA_FLAGS", "", False),
    ("jax", "XLA_FLAGS", " ", True),  # the name of a file
    ("jax", "XLA_FLAGS", "\x0b--a", True),  # the same: XLA takes no other blanks than four
    ("jax", "XLA_FLAGS", f'--xla_dump_to="/tmp"--{SEPARATE}=true', True),
    ("jax", "XLA_FLAGS", f"--xla_dump_to='/tmp'--{SEPARATE}", True),
    ("jax", "XLA_FLAGS", f'--xla_dump_to="/a --{SEPARATE} b" --a', False),
    ("jax", "XLA_FLAGS", f"--xla_dump_to=/tmp'--{SEPARATE}'", False),
    ("jax", "XLA_FLAGS", f"--{SEPARATE}=0 x --{SEPARATE}", False),  # XLA stops at the word without a hyphen
    ("jax", "XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB", "8192", True),
    ("jax", "XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB", "00", False),
    ("jax", "PJRT_NAMES_AND_LIBRARY_PATHS", "mine:/plugin.json", True),
    ("jax", "PJRT_NAMES_AND_LIBRARY_PATHS", "", False),
    ("jax", "XLA_PYTHON_CLIENT_USE_TFRT_GPU_CLIENT", "1", False),
    ("jax", "JAX_PLATFORMS", "cuda", False),
    *(
        ("paddlepaddle", name, value, value.lower() in ("true", "1", "t", "yes", "y"))
        for name in grammars.VIRTUAL_MEMORY
        for value in ("true", "True", "TRUE", "1", "t", "yes", "Y", "false", "False", "0", "no", "", "2")
    ),
    ("paddlepaddle", "FLAGS_use_cuda_managed_memory", "true", False),
    ("paddlepaddle", "FLAGS_use_cuda_malloc_async_allocator", "true", False),
    ("paddlepaddle", "FLAGS_use_auto_growth_v2", "true", False),
    ("paddlepaddle", "FLAGS_use_system_allocator", "true", False),
    ("paddlepaddle", "FLAGS_allocator_strategy", "naive_best_fit", False),
    ("cupy", "CUPY_ENABLE_UMP", "1", False),
    ("pytorch", "PYTORCH_NO_CUDA_MEMORY_CACHING", "0", True),
    ("pytorch", "PYTORCH_NO_HIP_MEMORY_CACHING", "1", True),
    ("tensorflow", "TF_GPU_ALLOCATOR", "cuda_malloc", True),
    ("tensorflow", "TF_GPU_ALLOCATOR", "memory_guard", False),
]


FLAGS = st.lists(
    st.sampled_from(("--", "-", "a", "a_b", "=", '"', "'", "\\", " ", "\t", "\n", "\x0b", "é", f"--{SEPARATE}=1", "0"))
).map("".join)


@given(FLAGS)
def test_flags_of_xla_are_split_as_xla_splits_them(text: str) -> None:
    assert [*jax.split_flags(text)] == grammars.xla_flags(text)


@pytest.mark.parametrize(("framework", "name", "value", "taken"), DEFEATED)
def test_variables_that_take_a_cap_away(framework: str, name: str, value: str, taken: bool) -> None:
    steps = merge({name: value}, only(framework))
    defeats = [step for step in steps if step.kind is StepKind.DEFEAT]
    assert [(step.name, noted(step, CAP)) for step in defeats] == (
        [(name, f"{framework}: {name} takes the cap away")] if taken else []
    )
    if taken:
        assert merge({name: value}, only("cuda"))[-1].kind is not StepKind.DEFEAT
        (unknown,) = (step for step in merge({name: None}, only(framework)) if step.kind is StepKind.DEFEAT)
        assert noted(unknown, CAP) == f"{framework}: {name} is not known"


@pytest.mark.parametrize("prefix", ["JAX_", "JAX_PJRT_", "FLAGS_", "XLA_", "XLA_FLAGS", "PYTORCH_NO", "PJRT_", "TF_"])
def test_a_prefix_of_what_takes_a_cap_away_takes_it_away(prefix: str) -> None:
    (step,) = environment.from_elsewhere({}, [prefix])
    assert step.kind is StepKind.DEFEAT
    assert step.name.startswith(prefix)


@pytest.mark.parametrize("prefix", ["APP_", "JAX_PLATFORMS_", "FLAGS_gpu_", "jax_"])
def test_another_prefix_takes_nothing_away(prefix: str) -> None:
    assert not list(environment.from_elsewhere({}, [prefix]))


def test_text_generation_inference_is_told_by_its_image() -> None:
    name = "CUDA_MEMORY_FRACTION"
    assert name not in merged({})
    for env, value in (({}, "0.211"), ({name: "1.0"}, "0.211"), ({name: "0.2"}, "0.2")):
        steps = environment.merge(env, Cap(CAP, only("tgi")), "text-generation-inference")
        assert environment.applied(env, steps)[name] == value


def test_frameworks_that_the_policy_does_not_name_are_left_alone() -> None:
    assert merged({A: "no list", XO: "9"}, only()) == {A: "no list", XO: "9"}


def test_memory_that_is_the_hosts_is_only_limited_by_an_amount() -> None:
    cap = budget(HOSTS, POLICY)
    after = merged({}, cap=cap)
    assert {A, C, XO, XN}.isdisjoint(after)
    assert {GROWTH, "XLA_PYTHON_CLIENT_PREALLOCATE", "CUDA_MODULE_LOADING"} <= set(after)
    assert after[PADDLE] == str(cap.mib)
    assert after[CUPY] == str(cap.mib * 2**20)
    assert merged({CUPY: "10%"}, cap=cap)[CUPY] == str(cap.mib * 2**20)
    assert "pytorch: the GPU's memory is the host's" in annotation.of(POOL, Cap(cap, POLICY, (2, 11))).uncapped


# Properties

VERSIONS: list[grammars.Version] = [(1, 13), (2, 0), (2, 1), (2, 8), (2, 9), (2, 10), (2, 11), (2, 15)]

NUMBERS = st.sampled_from(
    ("0.1", ".1", "1e-1", "0.211", "0.212", "0.9", "1", "1.0", "4.0", "0", "-1", "nan", "50%", "0.1x", "much", "")
)
SETTING = st.one_of(
    st.builds("per_process_memory_fraction:{}".format, NUMBERS),
    st.sampled_from(
        (
            "expandable_segments:True",
            "expandable_segments : False",
            "max_split_size_mb:128",
            "garbage_collection_threshold:0.8",
            "roundup_power2_divisions:[256:1,512:2,>:8]",
            "roundup_power2_divisions:[ 256 : 1 ]",
            "roundup_bypass_threshold_mb:64",
            "backend:native",
            "backend:cudaMallocAsync",
            "large_segment_size_mb:40",
            "throw_on_cudamalloc_oom:True",
            "key=value",
            "word",
            "a:b;c:d",
            "x:[1:2",
            "",
        )
    ),
    st.text("ab:,[]=; \t\n\"'$é", max_size=6),
)
SETTINGS = st.builds("".join, st.lists(st.one_of(SETTING, st.sampled_from((",", ", ", ",,", " "))), max_size=6))
LISTS = st.one_of(SETTINGS, st.builds(",".join, st.lists(SETTING, max_size=4)))
VALUES = {
    A: LISTS,
    C: LISTS,
    H: LISTS,
    XO: NUMBERS,
    XN: NUMBERS,
    GROWTH: st.sampled_from(("true", "false", "True", "1", "")),
    CUPY: st.sampled_from(("10%", "99.9%", "0%", "150%", "1073741824", "99999999999", "0", "-1", "1e9", "1GiB", "")),
    PADDLE: st.sampled_from(("1024", "99999", "0", "-1", "+5", "abc", "")),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": st.sampled_from(("1", "0", "")),
    "XLA_PYTHON_CLIENT_ALLOCATOR": st.sampled_from(("platform", "CUDA_ASYNC", "bfc", "Default")),
    "TF_FORCE_UNIFIED_MEMORY": st.sampled_from(("1", "true", "0", "false")),
    "TF_GPU_ALLOCATOR": st.sampled_from(("cuda_malloc_async", "memory_guard")),
    OPTIONS: st.sampled_from(("allocator:platform", "allocator:bfc", "a:b;allocator:vmm", "memory_fraction:1", "a")),
    "XLA_FLAGS": st.sampled_from((f"--{SEPARATE}", f"--a=1 --{SEPARATE}=true", f"--{SEPARATE}=false", "--a")),
    **dict.fromkeys(grammars.VIRTUAL_MEMORY, st.sampled_from(("true", "TRUE", "1", "yes", "0", "false", "no", ""))),
    "PATH": st.just("/usr/bin"),
}
ENVIRONMENTS: st.SearchStrategy[Env] = st.fixed_dictionaries({}, optional=VALUES).map(lambda env: dict(env))
UNKNOWN = st.lists(st.sampled_from(sorted(VALUES)), max_size=2)
RELEASES = st.sampled_from((None, None, (2, 8), (2, 10), (2, 11)))
CAPS = st.builds(
    lambda memory, replicas: budget(Card("Tesla-T4", memory, replicas), POLICY),
    st.sampled_from((15360, 23028, 24564, 40960, 81920, 81559)),
    st.integers(2, 10),
)
POLICIES = st.sampled_from((POLICY, replace(POLICY, older_settings={"max_split_size_mb": "64"})))


@given(env=ENVIRONMENTS, torch=RELEASES, cap=CAPS, policy=POLICIES, hidden=UNKNOWN)
def test_merging_twice_changes_nothing(env: Env, torch: Torch, cap: Budget, policy: Policy, hidden: list[str]) -> None:
    env = {**env, **dict.fromkeys(hidden, None)}
    steps = merge(env, policy, torch, cap)
    written = [step.name for step in steps if step.kind in WRITES]
    assert len(written) == len(set(written))
    again = merge(environment.applied(env, steps), policy, torch, cap)
    assert not [step for step in again if step.kind in WRITES]
    assert all(describe(step, cap) for step in steps if step.kind is not StepKind.ADD)
    # What was said stays true, and is said in the same words: the record does not change.
    assert [noted(step, cap) for step in again] == [noted(step, cap) for step in steps if step.kind not in WRITES]
    assert {name for name in env if env[name] is None} == {
        n for n, v in environment.applied(env, steps).items() if v is None
    }


@given(env=ENVIRONMENTS, cap=CAPS, policy=POLICIES, hidden=UNKNOWN)
@example(env={C: "max_split_size_mb:64"}, cap=CAP, policy=POLICY, hidden=[])
def test_a_doubted_release_changes_nothing_and_says_nothing(
    env: Env, cap: Budget, policy: Policy, hidden: list[str]
) -> None:
    env = {**env, **dict.fromkeys(hidden, None)}
    note, *steps = environment.merge(env, Cap(cap, policy, (2, 8), doubted=True))
    assert note.kind is StepKind.UNSURE
    silent = merge(env, policy, None, cap)
    assert [(step.kind, step.name, step.value) for step in steps] == [(s.kind, s.name, s.value) for s in silent]


@given(env=ENVIRONMENTS, torch=RELEASES, cap=CAPS, policy=POLICIES, release=st.sampled_from(VERSIONS))
@example(env={C: "max_split_size_mb:64"}, torch=None, cap=CAP, policy=POLICY, release=(2, 8))
@example(env={C: "large_segment_size_mb:40,"}, torch=None, cap=CAP, policy=POLICY, release=(2, 11))
def test_an_environment_that_torch_accepts_is_still_accepted_with_a_cap(
    env: Env, torch: Torch, cap: Budget, policy: Policy, release: grammars.Version
) -> None:
    """Torch is the release that was declared, where one was; jax and CuPy never get worse."""
    if torch is not None:
        assume(release == torch or (torch == (2, 10) and release in ((2, 11), (2, 15))))
    after = merged(env, policy, torch, cap)
    for runs in (
        lambda e: grammars.torch(release, e),
        grammars.jax,
        lambda e: grammars.cupy(e, cap.card.memory * 2**20),
    ):
        try:
            runs(env)
        except Fails:
            continue
        runs(after)


@given(env=ENVIRONMENTS, torch=RELEASES, cap=CAPS, release=st.sampled_from([v for v in VERSIONS if v >= (2, 10)]))
@example(env={H: "backend:cudaMallocAsync"}, torch=(2, 10), cap=CAP, release=(2, 10))
def test_an_environment_without_objections_is_capped(
    env: Env, torch: Torch, cap: Budget, release: grammars.Version
) -> None:
    steps = merge(env, POLICY, torch, cap)
    after = environment.applied(env, steps)
    objected = {step.name for step in steps if step.kind not in WRITES}
    event(f"objections: {len(objected)}")
    highest = cap.permille / 1000
    card = cap.card.memory * 2**20
    if torch != (2, 8) and not any(name.startswith("PYTORCH") for name in objected):
        try:
            limit = grammars.torch(release, after)
        except Fails:
            limit = 0  # a setting of the tenant's that this release does not know
        assert limit is not None
        assert limit <= highest
    if not objected & {XO, XN, "XLA_PYTHON_CLIENT_ALLOCATOR", "TF_FORCE_UNIFIED_MEMORY", OPTIONS, "XLA_FLAGS"}:
        try:
            fraction = grammars.jax(after)
        except Fails:
            fraction = highest  # options of the tenant's that jax does not take
        assert fraction is not None
        assert 0 < fraction <= highest
    if CUPY not in objected:
        bytes_ = grammars.cupy(after, card)
        assert bytes_ is not None
        assert 0 < bytes_ <= max(card * highest + 1, cap.mib * 2**20)
    if not objected & {*grammars.VIRTUAL_MEMORY}:
        assert 0 < (grammars.paddle(after) or 0) <= cap.mib
    assert grammars.tensorflow_grows(after)


@given(text=LISTS)
@example(text="a:[1:2,3:4],b:c")
@example(text="a:[b:c")
@example(text="a:b c:d")
def test_a_list_of_settings_is_read_only_if_torch_reads_it(text: str) -> None:
    settings = parse(text)
    event(f"read: {settings is not None}")
    if settings is not None:
        assert [setting.key for setting in settings] == [key for key, _ in grammars.torch_list(text.rstrip(", "))]
        assert ",".join(setting.text for setting in settings) == text.rstrip(", ")


@given(cap=CAPS)
def test_every_spelling_of_a_cap_is_the_same_amount(cap: Budget) -> None:
    card = cap.card.memory
    for step in merge({}, cap=cap):
        assert step.value == step.value.strip()
        assert step.value.isascii()
    fraction = float(cap.fraction)
    assert fraction * card <= cap.mib
    assert float(cap.percent[:-1]) / 100 == pytest.approx(fraction)
    assert int(cap.bytes) == cap.mib * 2**20
    assert cap.card.replicas * (cap.mib + cap.context) + cap.reserve <= card


# What a pod says of its slice


@pytest.mark.parametrize(
    ("annotations", "wanted"),
    [
        ({}, ALL),
        ({"slicewarden.dev/gpu-memory": "2Gi"}, Wish(2048)),
        ({"slicewarden.dev/gpu-memory": "1Mi"}, Wish(1)),
        ({"slicewarden.dev/gpu-memory": "2G"}, Wish(1907)),
        ({"slicewarden.dev/gpu-memory": "1073741824"}, Wish(1024)),
        ({"slicewarden.dev/gpu-processes": "3"}, Wish(None, 3)),
        ({"slicewarden.dev/gpu-memory": "1Gi", "slicewarden.dev/gpu-processes": "2"}, Wish(1024, 2)),
    ],
)
def test_the_annotations_for_memory_and_processes_are_read(annotations: dict[str, object], wanted: Wish) -> None:
    assert wish(annotations) == wanted


@pytest.mark.parametrize("value", ["", "much", "0", "-1Gi", "1Ki", "2 Gi", "٢Gi", 2, True, []])
def test_a_value_that_is_no_amount_of_memory_is_refused(value: object) -> None:
    with pytest.raises(InvalidAnnotation, match="is not a quantity of memory"):
        wish({"slicewarden.dev/gpu-memory": value})


def test_the_message_says_if_quotes_are_missing() -> None:
    with pytest.raises(
        InvalidAnnotation,
        match=r'2 is not a whole number from 1 to 64; write one such as "2" with its quotes: an annotation is',
    ):
        wish({"slicewarden.dev/gpu-processes": 2})
    with pytest.raises(InvalidAnnotation, match=r"two.* such as 2$"):
        wish({"slicewarden.dev/gpu-processes": "two"})


@pytest.mark.parametrize("value", ["", "0", "-1", "65", "two", "1.5", 2, True, []])
def test_a_value_that_is_no_number_of_processes_is_refused(value: object) -> None:
    with pytest.raises(InvalidAnnotation, match="is not a whole number from 1 to 64"):
        wish({"slicewarden.dev/gpu-processes": value})


@pytest.mark.parametrize(
    ("wished", "mib", "fraction"),
    [
        (Wish(2048), 2048, "0.133"),
        (Wish(9999), 3251, "0.211"),
        (Wish(None, 2), 1369, "0.089"),
        (Wish(2048, 2), 1024, "0.066"),
        (Wish(None, 5), 240, "0.015"),
    ],
)
def test_the_annotations_divide_and_lower_the_slice(wished: Wish, mib: int, fraction: str) -> None:
    found = budget(T4, POLICY, wished)
    assert (found.mib, found.fraction, found.enough) == (mib, fraction, mib >= 512)


def test_processes_fit_their_slice_with_all_their_contexts() -> None:
    for count in range(1, 5):
        found = budget(T4, POLICY, Wish(None, count))
        assert T4.replicas * count * (found.mib + found.context) + found.reserve <= T4.memory


def test_the_policy_sets_reserves_by_product() -> None:
    policy = replace(POLICY, reserve_mib={"Tesla": 1024, "Tesla-T4": 2048})
    assert budget(T4, policy).reserve == 2048
    assert budget(Card("Tesla-P4", 7680, 2), policy).reserve == 1024
    assert budget(Card("NVIDIA-A10", 23028, 2), policy).reserve == 461
    assert budget(Card("NVIDIA-A10", 23028, 2), replace(policy, reserve_mib={"default": 300})).reserve == 300


@pytest.mark.parametrize(
    ("product", "memory", "kept"),
    [
        ("Tesla-T4", 15360, 388),
        ("NVIDIA-A10G", 23028, 435),
        ("NVIDIA-L4", 23034, 434),
        ("NVIDIA-GeForce-RTX-3060", 12288, 368),
        ("NVIDIA-GeForce-RTX-3080", 10240, 397),
        ("NVIDIA-RTX-4000-SFF-Ada-Generation", 20475, 460),
        ("NVIDIA-H200", 143771, 616),
    ],
)
@pytest.mark.parametrize("replicas", [2, 3, 4, 8])
def test_the_drivers_limits_of_all_slices_fit_into_what_it_gives_to_programs(
    product: str, memory: int, kept: int, replicas: int
) -> None:
    """`kept` is what the driver keeps: NVML's `reserved`, as docs/memory-caps.md has it with its sources."""
    assert replicas * budget(Card(product, memory, replicas), POLICY, driver=True).limit(1) <= memory - kept


# Which nodes count

POOL = Pool("shared", "time-slicing", frozenset({"trusted"}), Selector({"s": "t"}), ResourceNames((), shares=True))


def node(name: str, product: str, memory: int, replicas: int, **labels: str) -> Node:
    card = {
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.memory": str(memory),
        "nvidia.com/gpu.replicas": str(replicas),
    }
    return Node(name, {"s": "t", **card, **labels})


@pytest.mark.parametrize(
    ("memory", "replicas", "known"),
    [("9", "4", True), ("9", "2", True), ("9", "1", False), ("0", "4", False), ("", "4", False), ("9", "", False)],
)
def test_a_card_is_known_by_its_memory_and_by_two_slices_or_more(memory: str, replicas: str, known: bool) -> None:
    labels = {"nvidia.com/gpu.memory": memory, "nvidia.com/gpu.replicas": replicas}
    assert (card_of(Node("a", labels)) is not None) is known


def test_a_fraction_fits_the_tightest_card_and_an_amount_every_card() -> None:
    facts = Facts(nodes=(node("a", "Tesla-T4", 15360, 4), node("b", "NVIDIA-A100-40GB", 40960, 10)))
    found = smallest(POOL, POLICY, facts)
    assert found is not None
    assert (found.fraction, found.mib) == ("0.079", 3246)
    assert found.least == 79 * 15360 // 1000


def choice(key: str, operator: str, *values: str) -> NodeSelectorTerm:
    return NodeSelectorTerm((Requirement(key, operator, frozenset(values)),))


def named(name: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(fields=(Requirement("metadata.name", "In", frozenset({name})),))


@pytest.mark.parametrize(
    ("selection", "found"),
    [
        (ANY, {"a", "b", "c"}),
        (Selection(frozenset({("z", "1")})), {"a"}),
        (Selection(frozenset({("z", "9")})), {"a", "b", "c"}),
        (Selection(terms=frozenset({choice("z", "NotIn", "1")})), {"b", "c"}),
        (Selection(frozenset({("z", "2")}), frozenset({choice("z", "Exists")})), {"b"}),
        (Selection(terms=frozenset({choice("z", "In", "1"), choice("z", "In", "2")})), {"a", "b"}),
        # A node that one of the terms waits for may have any card.
        (Selection(terms=frozenset({choice("z", "In", "1"), choice("z", "In", "9")})), {"a", "b", "c"}),
        (Selection(terms=frozenset({choice("z", "In", "1"), NOWHERE})), {"a", "b", "c"}),
        (Selection(terms=frozenset({named("b")})), {"b"}),
        (Selection(terms=frozenset({named("b"), named("d")})), {"a", "b", "c"}),
        (Selection(terms=frozenset(choice("z", "NotIn", str(n)) for n in range(2, 2 + MAX_CHOICES))), {"a", "b", "c"}),
        (Selection(terms=frozenset()), {"a", "b", "c"}),
    ],
)
def test_the_nodes_that_a_pod_may_land_on(selection: Selection, found: set[str]) -> None:
    facts = Facts(
        nodes=(
            node("a", "Tesla-T4", 15360, 4, z="1"),
            node("b", "NVIDIA-A100-40GB", 40960, 4, z="2"),
            node("c", "NVIDIA-A100-40GB", 40960, 8),
            Node("other", {"s": "none", "z": "1"}),
        )
    )
    assert {each.name for each, _ in nodes(POOL, facts, selection)} == found


def test_the_cache_frees_an_old_snapshot_when_newer_ones_are_used() -> None:
    snapshots = [Facts(nodes=(node("a", "Tesla-T4", 15360, 4),)) for _ in range(3)]
    oldest = weakref.ref(snapshots[0])
    for each in snapshots:
        assert smallest(POOL, POLICY, each)
        assert smallest(POOL, POLICY, each, Wish(None, 2))
    del each, snapshots[0]
    assert oldest() is None


def test_one_node_with_unified_memory_disables_fractions_in_its_pool() -> None:
    unified = Node("gb10", {"s": "t", "nvidia.com/gpu.product": "NVIDIA-GB10-SHARED"})
    found = smallest(POOL, POLICY, Facts(nodes=(node("a", "Tesla-T4", 15360, 4), unified)))
    assert found is not None
    assert found.unified
    assert A not in merged({}, cap=found)


# Arguments


def step(image: str, words: list[str], *, append: bool = True) -> Step | None:
    start = command_line.start(image, words)
    return start and command_line.merge(start, CAP, append=append)


VLLM = "--gpu-memory-utilization"


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("any", ["vllm", "serve", "model"]),
        ("any", ["/usr/bin/vllm", "serve"]),
        ("vllm-openai", ["python3", "-u", "-m", "vllm.entrypoints.openai.api_server", "--port", "80"]),
        ("any", ["sglang", "serve"]),
        ("any", ["python", "-m", "sglang.launch_server", "--model", "m"]),
        ("any", ["python3", "-m", "dynamo.vllm", "--model", "m"]),
        ("any", ["python3", "-m", "dynamo.sglang", "--model", "m"]),
        ("any", ["python", "-m", "huggingfaceserver"]),
        ("any", ["/usr/bin/tensorflow_model_server", "--rest_api_port=8501"]),
    ],
)
def test_a_program_that_is_clearly_started_is_given_its_argument(image: str, words: list[str]) -> None:
    found = step(image, words)
    assert found is not None
    assert found.kind is StepKind.ADD
    assert found.value.endswith("=0.211")
    assert step(image, [*words, found.value]) is None
    told = step(image, words, append=False)
    assert told is not None
    assert told.kind is StepKind.UNSURE
    assert found.value in describe(told, CAP)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("vllm-openai", ["--model", "m"]),
        ("vllm-openai", []),
        ("vllm-openai", ["sh", "-c", "vllm serve m"]),
        ("any", ["tritonserver"]),
        ("ollama", []),
        ("any", ["llama-server", "-m", "x"]),
        ("any", ["vllm", "serve", VLLM, "0.9"]),
        ("any", ["vllm", "serve", f"{VLLM}=0.1", "--gpu_memory_utilization=0.9"]),
        ("any", ["vllm", "serve", VLLM]),
    ],
)
def test_a_program_that_is_unclear_or_has_no_limit_is_only_reported(image: str, words: list[str]) -> None:
    found = step(image, words)
    assert found is not None
    assert found.kind is StepKind.UNSURE


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("any", []),
        ("any", ["vllm", "bench"]),
        ("any", ["python", "train.py", "-m"]),
        ("any", ["python", "-m", "vllm_like"]),
        ("any", ["vllm", "serve", VLLM, "0.2"]),
        ("serving", []),
        ("any", ["sh", "-c", "python -m http.server"]),
        ("any", ["sh", "-c"]),
        ("any", ["bash", "vllm"]),
        ("any", ["echo", "-c", "vllm serve"]),
        ("any", ["sh", "-c", "echo vllm_like"]),
    ],
)
def test_other_programs_are_left_alone(image: str, words: list[str]) -> None:
    assert step(image, words) is None


IN_A_SCRIPT = "to the vllm command in the script"
IMAGE_VLLM = "registry.example.com/rtalaricw/vllm:0.1"


@pytest.mark.parametrize(
    ("image", "words", "where"),
    [
        ("vllm/vllm-openai", ["--model", "m"], "to args"),
        ("vllm/vllm-openai", [], "to args"),
        ("vllm/vllm-openai", ["/start.sh"], "to the command that starts it"),
        ("kserve/huggingfaceserver:v0.15", ["--model_id=m"], "to args"),
        ("any", ["bash", "-c", "vllm serve m --port 80"], IN_A_SCRIPT),
        ("any", ["/bin/bash", "-lc", "set -e\nexec /opt/bin/vllm serve m \\\n  --port 80"], IN_A_SCRIPT),
        (
            IMAGE_VLLM,
            ["sh", "-c", "python -u -m vllm.entrypoints.api_server --model m"],
            "to the vLLM command in the script",
        ),
        ("any", ["sh", "-ec", "pip install vllm && python serve.py"], IN_A_SCRIPT),
        ("any", ["sh", "-c", "python3 -m dynamo.sglang"], "to the SGLang command in the script"),
        ("tensorflow/serving:2.14.1-gpu", [], "to args"),
        ("registry.example.com/tensorflow/serving@sha256:0", ["--rest_api_port=1"], "to args"),
    ],
)
def test_an_argument_is_to_be_added_where_it_counts(image: str, words: list[str], where: str) -> None:
    found = step(image, words)
    assert found is not None
    assert describe(found, CAP).endswith(f"=0.211 {where}")


@pytest.mark.parametrize("value", ["0.95", "0", "nan", "50%"])
def test_an_argument_in_a_script_is_compared_with_the_slice(value: str) -> None:
    found = step("any", ["bash", "-c", f'vllm serve "$MODEL" {VLLM} {value} --port 80'])
    assert found is not None
    assert f"{VLLM} of vLLM is " in describe(found, CAP)
    assert "more than its slice" in describe(found, CAP)


@pytest.mark.parametrize("words", [["sh", "-c", f"vllm serve m {VLLM}=$UTIL"], ["vllm", "serve", f"{VLLM}=$(UTIL)"]])
def test_an_argument_that_a_variable_gives_is_not_known(words: list[str]) -> None:
    found = step("any", words)
    assert found is not None
    assert "known only when it runs; use --gpu-memory-utilization=0.211" in describe(found, CAP)


def test_a_small_argument_in_a_script_is_no_cap_on_record() -> None:
    start = command_line.start("any", ["sh", "-c", f"vllm serve m {VLLM}=0.2"])
    assert start is not None
    assert command_line.merge(start, CAP, append=True) is None
    assert command_line.limited(start, None, CAP) == ""


@pytest.mark.parametrize(
    "image",
    [
        *("ghcr.io/onedr0p/plex:1.40", "docker.io/jellyfin/jellyfin", "ghcr.io/haveagitgat/tdarr_node@sha256:0"),
        *("ghcr.io/blakeblackshear/frigate:0.14-tensorrt", "localai/localai:latest-gpu-nvidia-cuda-12"),
        *("ghcr.io/huggingface/text-embeddings-inference:89-1.5", "ghcr.io/ggml-org/whisper.cpp:main-cuda"),
    ],
)
def test_a_program_without_a_limit_is_said_to_share_the_card(image: str) -> None:
    found = step(image, [])
    assert found is not None
    assert "shares the card uncapped" in describe(found, CAP)
    assert found.words.note


def test_programs_have_a_flag_or_advice() -> None:
    assert all(bool(program.flag) != bool(program.advice) for program in PROGRAMS)
    assert all(bool(program.flag) == bool(program.without) for program in PROGRAMS)


# Versions and records


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("2.11", (2, 11)),
        ("2.11.0", (2, 11)),
        ("2.10.0+cu130", (2, 10)),
        ("2.10.0a0+git1234", (2, 9)),
        ("2.10.0rc1", (2, 9)),
        ("2.12.0.dev20260101", (2, 11)),
        ("1.13.1", (1, 13)),
        ("2", None),
        ("v2.11", None),
        ("new", None),
        ("", None),
        ("٢.١١", None),
        ("2.11\n", None),
        ("2.11+" + "1" * 35, (2, 11)),
        ("2.11+" + "1" * 36, None),
        ("2.0.0rc1", (2, 0)),
    ],
)
def test_a_version_is_read(text: str, release: tuple[int, int] | None) -> None:
    assert version(text) == release


def test_a_record_is_bounded_and_read_back() -> None:
    many = [annotation.lowered("c" * 63, A, "9" * 500) + str(index) for index in range(50)]
    one = annotation.of(POOL, Cap(CAP, POLICY), lowered=many, uncapped=many)
    assert len(one.text) < 4096
    assert one.text.isascii()
    assert annotation.read(one.text) == one
    assert annotation.of(POOL, Cap(CAP, POLICY), lowered=one.lowered, uncapped=one.uncapped).lowered == one.lowered


@pytest.mark.parametrize("value", [None, "", "9", "0.2", "3250"])
def test_a_variable_that_no_longer_holds_its_lowered_value_has_no_history(value: str | None) -> None:
    record = annotation.Record("shared", "0.211", 3251, (annotation.lowered("train", CUPY, "9"),))
    assert list(record.history("train", {CUPY: value})) == []
    assert list(record.history("train", {})) == []
    assert list(record.history("other", {CUPY: "21.1%"})) == []


@pytest.mark.parametrize("value", ["21.1%", "3251", str(3251 * 2**20), "0.211"])
def test_a_variable_that_holds_its_lowered_value_has_a_history(value: str) -> None:
    entry = annotation.lowered("train", CUPY, "9")
    record = annotation.Record("shared", "0.211", 3251, (entry,))
    assert list(record.history("train", {CUPY: value})) == [(entry, CUPY, "9")]


@pytest.mark.parametrize(
    "changes", [{"pool": 1}, {"fraction": 0.2}, {"mib": "3"}, {"mib": True}, {"lowered": "x"}, {"uncapped": [1]}]
)
def test_a_record_with_a_field_of_another_type_is_none(changes: dict[str, Any]) -> None:
    whole = {"pool": "shared", "fraction": "0.211", "mib": 3251}
    assert annotation.read(json.dumps(whole)) == annotation.Record("shared", "0.211", 3251)
    assert annotation.read(json.dumps({**whole, **changes})) is None


def test_a_record_is_read_with_at_most_one_entry_more_than_are_written() -> None:
    whole = {"pool": "shared", "fraction": "0.211", "mib": 3251, "lowered": [str(number) for number in range(20)]}
    record = annotation.read(json.dumps(whole))
    assert record is not None
    assert len(record.lowered) == annotation.MAX_ENTRIES + 1


@pytest.mark.parametrize(("least", "permille", "enough"), [(512, 1, True), (511, 1, False), (512, 0, False)])
def test_a_budget_is_enough_from_512_mib(least: int, permille: int, enough: bool) -> None:
    assert replace(CAP, least=least, permille=permille).enough is enough


@pytest.mark.parametrize(
    ("text", "whole"), [("9" * 19, True), ("9" * 20, False), ("٩", False), ("", False), ("-1", False)]
)
def test_a_whole_number_has_at_most_19_digits(text: str, whole: bool) -> None:
    assert natural(text) is whole


@given(st.one_of(st.text(max_size=20), st.sampled_from(("[" * 9000, "[" * 4000, "null", "[]", '{"pool":1}', "1e999"))))
def test_other_texts_are_not_read_as_a_record(text: str) -> None:
    assert annotation.read(text) is None


# In the pod: what the policy decides, and what later webhooks undo


def pod(env: dict[str, str] | None = None, *, replicas: int = 1, **spec: Any) -> dict[str, Any]:
    container = {
        "name": "train",
        "env": [{"name": name, "value": value} for name, value in (env or {}).items()],
        "resources": {"limits": {"nvidia.com/gpu": replicas}},
    }
    metadata = {"name": "train", "namespace": "vision", "annotations": {"slicewarden.dev/trust": "trusted"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{**container, **spec}]}}


def engine_of(policy: Policy, **changes: Any) -> Engine:
    return Engine(replace(policy, **changes), walk())


def test_a_variable_that_defeats_a_cap_is_denied_under_a_strict_policy(
    sample_policy: Policy, sample_facts: Facts
) -> None:
    strict = engine_of(sample_policy, defeats=Action.DENY)
    for env in (
        {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        {C: "max_split_size_mb:64"},
        {XO: "$(ELSEWHERE)"},
        {OPTIONS: "allocator:platform"},
        {VIRTUAL: "true"},
    ):
        assert engine_of(sample_policy).judge(request_for(pod(env)), sample_facts).allowed
        (denied,) = strict.judge(request_for(pod(env)), sample_facts).having(Action.DENY)
        assert denied.rule == "uncapped-memory"
    elsewhere = strict.judge(request_for(pod(envFrom=[{"secretRef": {"name": "s"}}])), sample_facts)
    assert "uncapped-memory" not in {denied.rule for denied in elsewhere.having(Action.DENY)}
    for prefixes in (["PYTORCH_CUDA_"], ["APP_", "P"], ["JAX_"], ["FLAGS_"]):
        sources = [{"prefix": prefix, "secretRef": {"name": "s"}} for prefix in prefixes]
        assert engine_of(sample_policy).judge(request_for(pod(envFrom=sources)), sample_facts).allowed
        (denied,) = strict.judge(request_for(pod(envFrom=sources)), sample_facts).having(Action.DENY)
        assert denied.rule == "uncapped-memory"
    for env in ({OPTIONS: "allocator:bfc"}, {VIRTUAL: "false"}, {"FLAGS_use_cuda_managed_memory": "true"}):
        assert strict.judge(request_for(pod(env)), sample_facts).allowed
    harmless = [{"prefix": "APP_", "secretRef": {"name": "s"}}]
    assert strict.judge(request_for(pod(envFrom=harmless)), sample_facts).allowed


def test_the_image_of_a_running_pod_may_be_changed(sample_policy: Policy, sample_facts: Facts) -> None:
    engine = engine_of(sample_policy)
    item = pod(image="pytorch")
    old = dict(apply(item, engine.mutate(request_for(item), sample_facts).patch))
    now = copy.deepcopy(old)
    now["spec"]["containers"][0]["image"] = "vllm/vllm-openai:v0.9"
    verdict = engine.validate(request_for(now, operation="UPDATE", old=old), sample_facts)
    assert verdict.allowed
    assert "vLLM" in verdict.having(Action.WARN)[0].text
    del now["metadata"]["annotations"][annotation.KEY]
    assert not engine.validate(request_for(now, operation="UPDATE", old=old), sample_facts).allowed


def test_an_argument_is_appended_where_the_policy_says_so(sample_policy: Policy, sample_facts: Facts) -> None:
    started = pod(command=["vllm", "serve"], args=["model"])
    appending = engine_of(sample_policy, append_arguments=True)
    verdict = appending.judge(request_for(started), sample_facts)
    assert verdict.allowed
    assert not verdict.results
    after = apply(started, verdict.patch)
    assert after["spec"]["containers"][0]["args"] == ["model", f"{VLLM}=0.211"]
    assert not appending.mutate(request_for(dict(after)), sample_facts).patch
    undone = {**after, "spec": {**after["spec"], "containers": [{**after["spec"]["containers"][0], "args": ["model"]}]}}
    assert not appending.validate(request_for(undone), sample_facts).allowed


def test_the_policy_may_say_which_torch_a_namespace_runs(sample_policy: Policy, sample_facts: Facts) -> None:
    known = engine_of(sample_policy, torch_versions=(TorchVersion((2, 11), frozenset({"vision"})),))
    assert written(known, pod(), sample_facts)[C] == OURS
    annotated = pod()
    annotated["metadata"]["annotations"]["slicewarden.dev/torch-version"] = "2.8"
    assert C not in written(known, annotated, sample_facts)
    other = engine_of(sample_policy, torch_versions=(TorchVersion((2, 11), frozenset({"visitors"})),))
    assert C not in written(other, pod(), sample_facts)


def test_a_pod_that_claims_an_older_torch_is_not_excused(sample_policy: Policy, sample_facts: Facts) -> None:
    item = pod({C: "max_split_size_mb:64"})
    item["metadata"]["annotations"]["slicewarden.dev/torch-version"] = "2.8"
    request = request_for(item)
    assert engine_of(sample_policy).judge(request, sample_facts).allowed
    strict = replace(sample_policy, defeats=Action.DENY)
    for stated in ((), (TorchVersion((2, 11), frozenset({"vision"})),), (TorchVersion((2, 8), frozenset({"other"})),)):
        verdict = engine_of(strict, torch_versions=stated).judge(request, sample_facts)
        (denied,) = verdict.having(Action.DENY)
        assert C in denied.finding.message
        assert "ask an administrator to add your torch to memory.torch.versions in the policy" in denied.finding.message
    known = engine_of(strict, torch_versions=(TorchVersion((2, 8), frozenset({"vision"})),))
    (told,) = known.judge(request, sample_facts).having(Action.WARN)
    assert "PyTorch 2.8 cannot be capped" in told.finding.message
    assert known.judge(request, sample_facts).allowed
    item["metadata"]["annotations"]["slicewarden.dev/torch-version"] = "2.11"
    assert engine_of(strict).judge(request_for(item), sample_facts).allowed


def written(engine: Engine, item: dict[str, Any], facts: Facts) -> dict[str, str]:
    after = apply(item, engine.mutate(request_for(item), facts).patch)
    return {entry["name"]: entry["value"] for entry in after["spec"]["containers"][0]["env"]}


def test_a_cap_that_a_later_webhook_raises_is_denied(sample_policy: Policy, sample_facts: Facts) -> None:
    engine = engine_of(sample_policy)
    for env in ({}, {A: "per_process_memory_fraction:0.9,a:b"}, {CUPY: "0"}):
        item = pod(env)
        after = apply(item, engine.mutate(request_for(item), sample_facts).patch)
        assert engine.validate(request_for(dict(after)), sample_facts).allowed
        raised = set()
        for index, entry in enumerate(after["spec"]["containers"][0]["env"]):
            value = entry["value"]
            for kept, more in (("0.211", "0.212"), ("21.1%", "50%"), ("3251", "3252"), ("3408920576", "3408920577")):
                value = value.replace(kept, more)
            if value != entry["value"]:
                undone = copy.deepcopy(dict(after))
                undone["spec"]["containers"][0]["env"][index]["value"] = value
                assert not engine.validate(request_for(undone), sample_facts).allowed, value
                raised.add(entry["name"])
        assert raised == {A, XO, CUPY, PADDLE}


def test_a_pod_that_chooses_its_card_is_sized_by_it(sample_policy: Policy, sample_facts: Facts) -> None:
    big = Node("big", {**sample_facts.nodes[1].labels, "nvidia.com/gpu.memory": "81920", "zone": "a"})
    facts = Facts(sample_facts.namespaces, (*sample_facts.nodes, big))
    anywhere, there = pod(), pod()
    there["spec"]["nodeSelector"] = {"zone": "a"}
    engine = engine_of(sample_policy)
    assert written(engine, anywhere, facts)[PADDLE] == "3251"
    assert written(engine, there, facts)[PADDLE] == str((81920 - 1639) // 4 - 512)


def test_mps_is_capped_only_where_the_policy_says_so(sample_policy: Policy, sample_facts: Facts) -> None:
    pools = tuple(replace(each, sharing="mps") if each.name == "shared" else each for each in sample_policy.pools)
    item = pod()
    assert XO not in str(engine_of(sample_policy, pools=pools).mutate(request_for(item), sample_facts).patch)
    capped = engine_of(sample_policy, pools=pools, capped_sharing=frozenset({"mps"}))
    assert written(capped, item, sample_facts)[XO] == "0.211"


def test_init_containers_and_sidecars_have_the_whole_slice(sample_policy: Policy, sample_facts: Facts) -> None:
    """Each asks for the pod's one slice in its turn, so that none of them runs beside another."""
    item = pod()
    item["spec"]["initContainers"] = [{**item["spec"]["containers"][0], "name": "prepare"}]
    after = apply(item, engine_of(sample_policy).mutate(request_for(item), sample_facts).patch)
    first, second = after["spec"]["initContainers"][0], after["spec"]["containers"][0]
    assert first["env"] == second["env"] != []


def test_a_pod_on_the_hosts_memory_is_told_so(sample_policy: Policy, sample_facts: Facts) -> None:
    labels = {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.product": "NVIDIA-GB10"}
    size = {"nvidia.com/gpu.memory": "122880", "nvidia.com/gpu.replicas": "4"}
    facts = Facts(sample_facts.namespaces, (Node("spark", {**labels, **size}),))
    engine, item = engine_of(sample_policy), pod({A: "per_process_memory_fraction:0.9"})
    verdict = engine.judge(request_for(item), facts)
    assert verdict.allowed
    (told,) = verdict.having(Action.WARN)
    assert "a fraction of it caps nothing" in told.finding.message
    after = apply(item, verdict.patch)
    assert after["spec"]["containers"][0]["env"][0]["value"] == "per_process_memory_fraction:0.9"
    assert "host's" in after["metadata"]["annotations"][annotation.KEY]
    assert not engine.mutate(request_for(dict(after)), facts).patch
    unsized = Facts(sample_facts.namespaces, (Node("spark", labels),))
    without = tuple(replace(each, assume=None) for each in sample_policy.pools)
    assert not engine_of(sample_policy, pools=without).judge(request_for(item), unsized).allowed


# The card by which a pod is capped


IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "by its name": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["none"]}]},
    "by a value that is no label's": {
        "matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["no label"]}],
    },
    "by two bounds": {"matchExpressions": [{"key": "nvidia.com/gpu.memory", "operator": "Lt", "values": ["2", "3"]}]},
    "by a label that no node has": {"matchExpressions": [{"key": "x", "operator": "Exists"}]},
}


@pytest.mark.parametrize("bound", ["20000", "0" * 21 + "20000", "0" * 60 + "1"])
@pytest.mark.parametrize("impossible", IMPOSSIBLE)
def test_no_term_that_matches_nothing_sizes_a_cap_by_a_larger_card(
    sample_policy: Policy, bound: str, impossible: str
) -> None:
    labels = {"nvidia.com/gpu.sharing-strategy": "time-slicing"}
    facts = Facts(
        namespaces={"vision": {"slicewarden.dev/trust": "trusted"}},
        nodes=(
            node("t4", "Tesla-T4", 15360, 4, **labels),
            node("a100", "NVIDIA-A100-SXM4-80GB", 81920, 2, **labels),
        ),
    )
    large = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-A100-SXM4-80GB"]}
    dummy = IMPOSSIBLE[impossible]
    dummy = {**dummy, "matchExpressions": [large, *dummy.get("matchExpressions", ())]}
    small = {"matchExpressions": [{"key": "nvidia.com/gpu.memory", "operator": "Lt", "values": [bound]}]}
    item = pod()
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [dummy, small]}}
    item["spec"]["affinity"] = {"nodeAffinity": required}
    assert sized(sample_policy, facts, item) == "0.211"
    # The honest neighbour selects the larger card alone, and has what that has.
    required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] = [{"matchExpressions": [large]}]
    assert sized(sample_policy, facts, item) == "0.480"


def sized(policy: Policy, facts: Facts, item: dict[str, Any]) -> str:
    patched = apply(item, engine_of(policy).mutate(request_for(item), facts).patch)
    env = {each["name"]: each["value"] for each in dict(patched)["spec"]["containers"][0]["env"]}
    return str(env["PYTORCH_ALLOC_CONF"]).partition(":")[2]
