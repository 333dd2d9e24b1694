"""The delivery of the shim: by the engine, as in a cluster."""

import copy
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cost import calls
from tests.support.policies import FACTS, POLICY, facts_of, policy_of
from tests.support.strategies import request_for
from webhook.api.jsonpatch import apply
from webhook.engine.engine import Engine
from webhook.facts.images import LIST, ImageVariables, config_map
from webhook.facts.snapshot import Facts
from webhook.memory import annotation
from webhook.memory.shim import delivery, flags
from webhook.memory.shim.delivery import CHOICE, CODE, FOLDER, IMAGE_PATH, VOLUME, code
from webhook.model import Action, Verdict
from webhook.policy.model import Policy, PythonPath
from webhook.rules import walk
from webhook.text.words import sha256

Item = dict[str, Any]

SAMPLE, CLUSTER, RULES = policy_of(POLICY), facts_of(FACTS), walk()
INJECT = replace(SAMPLE, shim=True)
STRICT = replace(INJECT, defeats=Action.DENY)


def pod(*containers: Item, **annotations: str) -> Item:
    asks = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    said = {f"slicewarden.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "train",
            "namespace": "vision",
            "annotations": {"slicewarden.dev/trust": "trusted", **said},
        },
        "spec": {"containers": [{"name": "train", "image": "torch:2.4", **asks, **one} for one in containers or ({},)]},
    }


def mutated(item: Item, policy: Policy = INJECT) -> Item:
    patch = Engine(policy, RULES).mutate(request_for(item), CLUSTER).patch
    after: Item = json.loads(json.dumps(apply(item, patch)))
    return after


def judged(item: Item, policy: Policy = INJECT) -> Verdict:
    return Engine(policy, RULES).validate(request_for(item), CLUSTER)


def variables(item: Item, index: int = 0) -> dict[str, str]:
    return {entry["name"]: entry.get("value") for entry in item["spec"]["containers"][index]["env"]}


def record(item: Item) -> annotation.Record:
    read = annotation.read(item["metadata"]["annotations"][annotation.KEY])
    assert read is not None
    return read


def test_the_text_is_short_and_plain() -> None:
    assert code().isascii()
    assert len(code()) < 8192


def test_a_pod_that_says_what_its_image_sets_is_given_the_shim() -> None:
    after = mutated(pod(python_path=""))
    assert judged(after).allowed
    assert after["metadata"]["annotations"][CODE] == code()
    assert after["spec"]["volumes"] == [delivery.volume()]
    assert after["spec"]["containers"][0]["volumeMounts"] == delivery.mounts()
    env = variables(after)
    assert env["PYTHONPATH"] == FOLDER
    assert (env["SLICEWARDEN_MEMORY_FRACTION"], env["SLICEWARDEN_MEMORY_MIB"]) == ("0.211", "3251")
    assert record(after).shim == (f"train: {delivery.CAPS}",)
    assert not record(after).uncapped
    assert not Engine(INJECT, RULES).mutate(request_for(after), CLUSTER).patch


@pytest.mark.parametrize("policy", [SAMPLE, replace(INJECT, frameworks=("jax",))])
def test_without_the_policys_word_nothing_is_delivered(policy: Policy) -> None:
    after = mutated(pod(python_path=""), policy)
    assert "volumes" not in after["spec"]
    assert CODE not in after["metadata"]["annotations"]


def test_the_authors_own_path_comes_after_ours() -> None:
    after = mutated(pod({"env": [{"name": "PYTHONPATH", "value": "/app:$(MORE)"}]}))
    assert variables(after)["PYTHONPATH"] == f"{FOLDER}:/app:$(MORE)"
    assert judged(after).allowed


def test_the_policy_may_say_what_an_image_sets() -> None:
    for entry, given_ in (
        (PythonPath("/app", images=("torch:",)), True),
        (PythonPath("/app", frozenset({"vision"}), frozenset({"shared"})), True),
        (PythonPath("/app", frozenset({"other"})), False),
        (PythonPath("/app", pools=frozenset({"exclusive"})), False),
        (PythonPath("/app", images=("other",)), False),
    ):
        after = mutated(pod(), replace(INJECT, python_paths=(entry,)))
        assert (CODE in after["metadata"]["annotations"]) is given_
        if given_:
            assert variables(after)["PYTHONPATH"] == f"{FOLDER}:/app"
    both = replace(INJECT, python_paths=(PythonPath("/app"),))
    assert variables(mutated(pod(python_path="/src"), both))["PYTHONPATH"] == f"{FOLDER}:/src"


def listed(**paths: str) -> Facts:
    """The sample's facts, and a list of images: `torch_2_4` stands for torch:2.4."""
    known = {f"docker.io/library/{name.replace('_', ':', 1).replace('_', '.')}": path for name, path in paths.items()}
    item = config_map([(image, ImageVariables(path)) for image, path in known.items()], "gpu-operator")
    return replace(CLUSTER, config_maps={("gpu-operator", LIST): item["data"]})


@pytest.mark.parametrize(
    ("facts", "policy", "said", "path"),
    [
        (listed(torch_2_4="/app"), INJECT, None, "/app"),
        (listed(torch_2_4=""), INJECT, None, ""),
        (listed(torch_2_4="/app"), replace(INJECT, python_paths=(PythonPath("/policy"),)), None, "/app"),
        (listed(torch_2_4="/app"), INJECT, "/pod", "/pod"),
        (listed(torch_2_5="/app"), replace(INJECT, python_paths=(PythonPath("/policy"),)), None, "/policy"),
        (listed(torch_2_5="/app"), INJECT, None, None),
    ],
)
def test_what_the_pod_says_goes_before_the_list_of_images_and_that_before_the_policy(
    facts: Facts, policy: Policy, said: str | None, path: str | None
) -> None:
    item = pod(**({} if said is None else {"python_path": said}))
    after = apply(item, Engine(policy, RULES).mutate(request_for(item), facts).patch)
    assert (CODE in after["metadata"]["annotations"]) is (path is not None)
    if path is not None:
        assert variables(dict(after))["PYTHONPATH"] == (f"{FOLDER}:{path}" if path else FOLDER)


def test_a_list_that_cannot_be_read_keeps_the_policys_word_from_being_used() -> None:
    broken = replace(CLUSTER, config_maps={("gpu-operator", LIST): {"images.json": "{"}})
    item, policy = pod(), replace(INJECT, python_paths=(PythonPath(""),))
    after = dict(apply(item, Engine(policy, RULES).mutate(request_for(item), broken).patch))
    assert "volumes" not in after["spec"]
    assert any("gpu-operator/slicewarden-images cannot be read" in entry for entry in record(after).uncapped)


def test_a_list_of_images_is_no_sharing_configuration() -> None:
    item = config_map([("docker.io/library/torch:2.4", ImageVariables("/app"))], "gpu-operator")
    assert Engine(INJECT, RULES).validate(request_for(dict(item)), CLUSTER).results == ()


UNKNOWN: list[tuple[Item, str]] = [
    ({}, "its image's PYTHONPATH is not known; say slicewarden.dev/python-path"),
    (
        {"env": [{"name": "PYTHONPATH", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
        "PYTHONPATH is not known before the pod runs",
    ),
    ({"envFrom": [{"secretRef": {"name": "s"}, "prefix": "PY"}]}, "envFrom may set PYTHONPATH; set it under env"),
]


@pytest.mark.parametrize(("container", "why"), UNKNOWN)
def test_a_path_that_is_not_known_is_left_alone_and_recorded(container: Item, why: str) -> None:
    after = mutated(pod(container))
    assert "volumes" not in after["spec"]
    assert record(after).uncapped[:2] == ("pytorch before 2.10", "tensorflow")
    assert f"train: no shim: {why}" in record(after).uncapped
    assert judged(after).allowed


def with_a_loader() -> Item:
    """A pod whose container says its path, and whose init container does not."""
    item = pod({"env": [{"name": "PYTHONPATH", "value": ""}]})
    item["spec"]["initContainers"] = [{**pod()["spec"]["containers"][0], "name": "load"}]
    return item


def test_each_container_is_recorded_by_itself() -> None:
    after = mutated(with_a_loader())
    assert record(after).shim == (f"train: {delivery.CAPS}",)
    assert any(entry.startswith("load: no shim: its image's PYTHONPATH is not") for entry in record(after).uncapped)
    assert "volumeMounts" not in after["spec"]["initContainers"][0]


def test_init_containers_have_it_and_others_do_not() -> None:
    item = pod(python_path="")
    item["spec"]["initContainers"] = [{**copy.deepcopy(item["spec"]["containers"][0]), "name": "load"}]
    item["spec"]["containers"].append({"name": "side", "image": "proxy"})
    after = mutated(item)
    assert after["spec"]["initContainers"][0]["volumeMounts"] == delivery.mounts()
    assert "volumeMounts" not in after["spec"]["containers"][1]
    assert judged(after).allowed


def test_a_program_that_an_argument_limits_is_recorded() -> None:
    started = pod({"command": ["vllm", "serve", "m", "--gpu-memory-utilization=0.2"]}, python_path="")
    assert record(mutated(started)).argument == ("train: vLLM",)
    started["spec"]["containers"][0]["command"].pop()
    assert not record(mutated(started)).argument


def test_a_pod_may_do_without_unless_the_policy_is_strict() -> None:
    item = pod(python_path="", memory_shim="off")
    assert "volumes" not in mutated(item)["spec"]
    assert judged(mutated(item)).allowed
    assert mutated(item, STRICT)["spec"]["volumes"] == [delivery.volume()]


@pytest.mark.parametrize(("name", "value"), [(CHOICE, "on"), (IMAGE_PATH, "/a\n/b"), (IMAGE_PATH, "/" * 5000)])
def test_annotations_that_say_nothing_are_refused(name: str, value: str) -> None:
    item = pod()
    item["metadata"]["annotations"][name] = value
    (denied,) = judged(mutated(item)).having(Action.DENY)
    assert denied.finding.path == ("metadata", "annotations", name)


def container(item: Item) -> Item:
    first: Item = item["spec"]["containers"][0]
    return first


def set_variable(name: str, value: str) -> Callable[[Item], None]:
    def harm(item: Item) -> None:
        container(item)["env"].append({"name": name, "value": value})

    return harm


HARMS: dict[str, Callable[[Item], Any]] = {
    "another text": lambda item: item["metadata"]["annotations"].update({CODE: ""}),
    "no text": lambda item: item["metadata"]["annotations"].pop(CODE),
    "another field": lambda item: item["spec"]["volumes"][0]["downwardAPI"]["items"][0].update(
        fieldRef={"fieldPath": "metadata.name"}
    ),
    "no volume": lambda item: item["spec"]["volumes"].clear(),
    "no mount": lambda item: container(item)["volumeMounts"].pop(),
    "a writable mount": lambda item: container(item)["volumeMounts"][0].update(readOnly=False),
    "a mount over the folder": lambda item: container(item)["volumeMounts"].append(
        {"name": "v", "mountPath": f"/a/..{FOLDER}/"}
    ),
    "a mount in the folder": lambda item: container(item)["volumeMounts"].append(
        {"name": "v", "mountPath": f"{FOLDER}/sitecustomize"}
    ),
    "a device in the folder": lambda item: container(item).update(
        volumeDevices=[{"name": "v", "devicePath": f"{FOLDER}/usercustomize.py"}]
    ),
    "the message in its place": lambda item: container(item).update(
        terminationMessagePath=f"{FOLDER}/sitecustomize.py"
    ),
    "another path": set_variable("PYTHONPATH", "/app"),
    "a path before ours": set_variable("PYTHONPATH", f"/app:{FOLDER}"),
    "a larger fraction": set_variable("SLICEWARDEN_MEMORY_FRACTION", "0.9"),
    "no fraction": set_variable("SLICEWARDEN_MEMORY_FRACTION", "nan"),
    "more MiB": set_variable("SLICEWARDEN_MEMORY_MIB", "3252"),
    "no MiB": set_variable("SLICEWARDEN_MEMORY_MIB", "0"),
}


@pytest.mark.parametrize("harm", HARMS)
def test_what_a_later_webhook_undoes_is_denied(harm: str) -> None:
    item = mutated(pod(python_path=""))
    HARMS[harm](item)
    assert not judged(item).allowed


DEFEATS: dict[str, Item] = {
    "-I": {"command": ["/usr/bin/python3.11", "-uI", "x.py"]},
    "-E": {"command": ["python", "-E", "-m", "x"]},
    "-S after an option with a value": {"command": ["python", "-Wignore", "-S", "x.py"]},
    "-I after a value of its own": {"command": ["python", "-X", "importtime", "-uI", "x.py"]},
    "-S after a warning about a module": {"command": ["python", "-Wcommon", "-S", "x.py"]},
    "tini": {"command": ["/usr/bin/tini", "-g", "-e", "143", "--", "python", "-I", "x.py"]},
    "dumb-init": {"command": ["dumb-init", "-r", "15:2", "python3", "-S", "x.py"]},
    "timeout": {"command": ["timeout", "-k", "5", "--signal", "INT", "60", "python3", "-S", "x.py"]},
    "nice": {"command": ["nice", "-n", "5", "ionice", "-c2", "python", "-E", "x.py"]},
    "env": {"command": ["/usr/bin/env", "A=b", "python", "-I", "x.py"]},
    "env -S": {"command": ["env", "-S", "python -I x.py"]},
    "env -S in one word": {"command": ["env", "-SA=b python -I", "x.py"]},
    "env -i": {"command": ["env", "-i", "PATH=/bin", "python", "x.py"]},
    "env -u": {"command": ["env", "-u", "PYTHONPATH", "python", "x.py"]},
    "env -u in one word": {"command": ["env", "-uPYTHONPATH", "python", "x.py"]},
    "env -i and a shell": {"command": ["env", "-i", "sh", "-c", "python x.py"]},
    "a shell": {"command": ["sh", "-c", "exec python -I x.py"]},
    "a shell after others": {"command": ["bash", "-lec", "cd /app && A=b /usr/bin/python3.12 -I x.py"]},
    "a shell with args": {"command": ["sh", "-c"], "args": ["if true; then exec timeout 60 'python' \"-I\" x.py; fi"]},
    "a shell in a shell": {"command": ["sh", "-c", "bash -c 'python -E x.py'"]},
    "env with another path": {"command": ["env", "PYTHONPATH=/x", "python", "x.py"]},
    "env with no path": {"command": ["env", "PYTHONPATH=", "python", "x.py"]},
    "env with another path first": {"command": ["env", "PYTHONPATH=/x:/slicewarden", "python", "x.py"]},
    "env -i with another path": {"command": ["env", "-i", "PYTHONPATH=/x", "python", "x.py"]},
    "env -u with another path": {"command": ["env", "-u", "PYTHONPATH", "PYTHONPATH=/x", "python", "x.py"]},
    "env -S with another path": {"command": ["env", "-S", "PYTHONPATH=/x python x.py"]},
    "env with what only a shell replaces": {"command": ["env", "PYTHONPATH=$PYTHONPATH:/x", "python", "x.py"]},
    "env -i with a folder that looks like a path": {
        "command": ["env", "-iC", "PYTHONPATH=/slicewarden", "python", "x"]
    },
    "a shell with another path": {"command": ["sh", "-c", "A=b PYTHONPATH='/x' exec python x.py"]},
    "a shell without the container's path": {
        "command": ["env", "-i", "sh", "-c", "PYTHONPATH=$PYTHONPATH:/x python x"]
    },
    "another home": {"env": [{"name": "PYTHONHOME", "value": "/x"}]},
}


@pytest.mark.parametrize("name", DEFEATS)
def test_what_keeps_python_from_reading_it_is_warned_of_or_refused(name: str) -> None:
    item = mutated(pod(DEFEATS[name], python_path=""))
    verdict = judged(item)
    assert verdict.allowed
    assert "shim" in verdict.having(Action.WARN)[0].text
    assert not judged(mutated(pod(DEFEATS[name], python_path=""), STRICT), STRICT).allowed


@pytest.mark.parametrize(
    "command",
    [
        ["python", "-u", "train.py", "-I"],
        ["python", "-X", "importtime", "-c", "-E"],
        ["python", "-c", "-I"],
        ["python", "-mEIS"],
        ["python", "--check-hash-based-pycs", "always", "-"],
        ["bash", "-ES"],
        ["tini", "--", "train", "python", "-I"],
        ["timeout", "60", "python", "x.py", "-I"],
        ["env", "-u", "HOME", "python", "x.py"],
        ["env", "-i", "PYTHONPATH=/slicewarden", "python", "x.py"],
        ["env", "PYTHONPATH=/x", "env", "PYTHONPATH=/slicewarden:/x", "python", "x.py"],
        ["env", "PYTHONPATH=$(PYTHONPATH):/x", "python", "x.py"],
        ["env", "PYTHONPATH=/x", "train"],
        ["sh", "-c", "PYTHONPATH=/app:$PYTHONPATH python x.py"],
        ["sh", "-c", 'PYTHONPATH="${PYTHONPATH}:/app" exec python x.py'],
        ["sh", "-c", "MY_PYTHONPATH=/x python x.py"],
        ["sh", "-c", "echo 'python -I'; python x.py -I"],
        ["sh", "-c", "echo python -I"],
        ["sh", "-c", "python -I helper.py; exec python train.py"],
        ["sh", "-c"],
        ["env", "-S"],
        ["timeout"],
        [],
    ],
)
def test_other_words_are_no_defeat(command: list[str]) -> None:
    verdict = judged(mutated(pod({"command": command}, python_path=""), STRICT), STRICT)
    assert verdict.allowed
    assert not [result for result in verdict.results if "shim" in result.text]


ASSIGNED = st.lists(
    st.sampled_from(("PYTHONPATH=/x", "PYTHONPATH=", f"PYTHONPATH={FOLDER}", f"PYTHONPATH={FOLDER}:/x", "A=b")),
    max_size=3,
)
CALLS = st.lists(
    st.tuples(st.lists(st.sampled_from(("-i", "-uPYTHONPATH", "-uHOME")), max_size=2), ASSIGNED).map(
        lambda call: ["env", *call[0], *call[1]]
    ),
    max_size=2,
)


@settings(max_examples=60)
@given(started=CALLS, own=ASSIGNED | st.just(["PYTHONPATH=$PYTHONPATH:/y"]), shell=st.booleans())
def test_what_clears_the_path_is_found_as_programs_clear_it(
    started: list[list[str]], own: list[str], shell: bool
) -> None:
    """The oracle is what `env` and a shell do."""

    def command(program: str) -> list[str]:
        last = ["sh", "-c", " ".join([*own, program])] if shell else program.split()
        return [*(word for call in started for word in call), *last]

    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{FOLDER}:/app"}
    real = command(f"{shutil.which('printenv')} PYTHONPATH")
    printed = subprocess.run(real, env=environment, capture_output=True, text=True, check=False).stdout
    assert (flags.unread(command("python")) == "") is (printed.strip().partition(":")[0] == FOLDER)


@pytest.mark.parametrize("container", [each for each, _ in UNKNOWN if each])
def test_a_path_that_is_not_known_is_warned_of_or_refused(container: Item) -> None:
    """It is no defeat where the image's path is not known either: no container would get the shim there."""
    for policy, path, actions in (
        (INJECT, {"python_path": ""}, [Action.WARN]),
        (STRICT, {"python_path": ""}, [Action.DENY]),
        (STRICT, {}, []),
    ):
        verdict = judged(mutated(pod(container, **path), policy), policy)
        assert [each.action for each in verdict.results if "gets no memory shim" in each.text] == actions


def test_an_update_names_no_other_home_of_python() -> None:
    old, new = (mutated(pod({"env": [{"name": "PYTHONHOME", "value": each}]}, python_path=""), STRICT) for each in "ab")
    engine = Engine(STRICT, RULES)
    assert engine.validate(request_for(old, operation="UPDATE", old=old), CLUSTER).allowed
    assert not engine.validate(request_for(new, operation="UPDATE", old=old), CLUSTER).allowed


@pytest.mark.parametrize("name", DEFEATS)
def test_the_record_lists_no_shim_that_python_does_not_read(name: str) -> None:
    record = json.loads(mutated(pod(DEFEATS[name], python_path=""))["metadata"]["annotations"][annotation.KEY])
    assert "shim" not in record
    (entry,) = [entry for entry in record["uncapped"] if "shim" in entry]
    assert entry.endswith(" does not read it")


@given(
    st.lists(
        st.sampled_from(
            ["env", "-S", "-i", "timeout", "sh", "-c", "python", "-I", "tini", "--", "'", '"', "\\", ";", "5"]
        )
        | st.text(max_size=8),
        max_size=12,
    )
)
def test_no_command_line_raises(words: list[str]) -> None:
    flags.unread(words)
    flags.unread(["sh", "-c", " ".join(words)])


@pytest.mark.parametrize("part", ["'", '"', '\\"', "env -S ", "sh -c '", "a;", "$(", "python "])
def test_the_work_is_linear_in_a_script(part: str) -> None:
    def work(count: int) -> int:
        return calls(lambda: flags.unread(["sh", "-c", part * count]))

    assert work(20_000) < 12 * work(2_000)


def test_a_tenants_volume_of_our_name_is_refused() -> None:
    item = pod(python_path="")
    item["spec"]["volumes"] = [{"name": VOLUME, "emptyDir": {}}]
    (denied,) = judged(mutated(item)).having(Action.DENY)
    assert denied.finding.path == ("spec", "volumes", 0)


def test_a_smaller_cap_of_the_author_stands() -> None:
    env = [
        {"name": "SLICEWARDEN_MEMORY_FRACTION", "value": "0.1"},
        {"name": "SLICEWARDEN_MEMORY_MIB", "value": "99999"},
    ]
    after = variables(mutated(pod({"env": env}, python_path="")))
    assert (after["SLICEWARDEN_MEMORY_FRACTION"], after["SLICEWARDEN_MEMORY_MIB"]) == ("0.1", "3251")


def test_a_text_of_the_last_release_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    item = mutated(pod(python_path=""))
    item["metadata"]["annotations"][CODE] = "earlier"
    assert not judged(item).allowed
    monkeypatch.setattr(delivery, "_digests", lambda: {sha256("earlier")})
    assert judged(item).allowed


def test_a_pod_that_runs_without_it_may_exchange_its_image() -> None:
    old = mutated(pod(), SAMPLE)
    new = copy.deepcopy(old)
    container(new)["image"] = "torch:2.9"
    known = replace(INJECT, python_paths=(PythonPath("/app"),))
    request = request_for(new, operation="UPDATE", old=old)
    assert Engine(known, RULES).validate(request, CLUSTER).allowed
    assert not Engine(known, RULES).mutate(request, CLUSTER).patch


def test_a_pod_that_runs_with_it_may_exchange_its_image_and_not_its_text() -> None:
    old = mutated(with_a_loader())
    new = copy.deepcopy(old)
    container(new)["image"] = "torch:2.9"
    new["spec"]["initContainers"][0]["image"] = "torch:2.9"
    known = replace(INJECT, python_paths=(PythonPath("/app"),))
    assert Engine(known, RULES).validate(request_for(new, operation="UPDATE", old=old), CLUSTER).allowed
    new["metadata"]["annotations"][CODE] += "#"
    denied = Engine(known, RULES).validate(request_for(new, operation="UPDATE", old=old), CLUSTER)
    assert "changed-shim" in {result.rule for result in denied.having(Action.DENY)}


PATHS = st.text("/abc:$() ", max_size=12)


@given(own=st.none() | PATHS, image=st.none() | PATHS, stated=st.none() | PATHS)
def test_what_is_mutated_is_accepted_and_mutated_once(own: str | None, image: str | None, stated: str | None) -> None:
    item = pod({} if own is None else {"env": [{"name": "PYTHONPATH", "value": own}]})
    if stated is not None:
        item["metadata"]["annotations"][IMAGE_PATH] = stated
    policy = INJECT if image is None else replace(INJECT, python_paths=(PythonPath(image),))
    after = mutated(item, policy)
    assert judged(after, policy).allowed
    assert mutated(after, policy) == after
    known = next((path for path in (own, stated, image) if path is not None), None)
    assert (CODE in after["metadata"]["annotations"]) is (known is not None)
    if known is not None:
        first, *rest = variables(after)["PYTHONPATH"].split(":")
        assert first == FOLDER
        assert rest == [part for part in known.split(":") if part]
