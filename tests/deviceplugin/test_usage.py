"""Sharing configurations against what a policy says of them, and who uses which key."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.policies import policy_of
from webhook import rules
from webhook.api import admission
from webhook.deviceplugin.usage import key_of, users
from webhook.documents.goyaml_writer import write
from webhook.engine.engine import Engine
from webhook.facts.kinds import kept
from webhook.facts.snapshot import Facts
from webhook.model import Action

POLICY = """\
apiVersion: slicewarden.dev/v1alpha1
kind: GPUSharingPolicy
metadata: {name: p}
spec:
  pools: [{name: a, sharing: none, trust: [trusted], nodes: {matchLabels: {a: b}}, resources: [nvidia.com/gpu]}]
"""


def engine(sharing: str) -> Engine:
    return Engine(policy_of(f"{POLICY}  sharing: {sharing}\n"), rules.walk())


def config_map(text: str, name: str = "c", namespace: str = "gpu-operator") -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"any": text}}


def sharing(section: str, **more: Any) -> str:
    switches = "".join(f"{key}: {value}, " for key, value in more.items())
    entry = "{name: nvidia.com/gpu, replicas: 2}"
    return f"sharing: {{{section}: {{failRequestsGreaterThanOne: true, {switches}resources: [{entry}]}}}}"


PLAIN, RENAMED, MPS = sharing("timeSlicing"), sharing("timeSlicing", renameByDefault="true"), sharing("mps")


@pytest.mark.parametrize(
    ("said", "text", "place"),
    [
        ("{renameByDefault: Forbidden}", RENAMED, "renameByDefault: is true"),
        ("{renameByDefault: Forbidden}", PLAIN, ""),
        ("{renameByDefault: Required}", PLAIN, "renameByDefault: is missing"),
        ("{renameByDefault: Required}", sharing("timeSlicing", renameByDefault="false"), "renameByDefault: is false"),
        ("{renameByDefault: Required}", RENAMED, ""),
        ("{renameByDefault: Allowed}", PLAIN, ""),
        ("{renameByDefault: Allowed}", RENAMED, ""),
        ("{mps: Forbidden}", MPS, "sharing.mps: policy p forbids MPS"),
        ("{mps: Forbidden}", PLAIN, ""),
        ("{mps: Allowed}", MPS, ""),
        ("{maxReplicas: 2}", PLAIN, ""),
        ("{maxReplicas: 64}", MPS.replace("replicas: 2", "replicas: 48"), ""),
        ("{maxReplicas: 64}", MPS.replace("replicas: 2", "replicas: 49"), "MPS takes 48 at most"),
    ],
)
def test_a_policy_limits_renaming_mps_and_replicas(said: str, text: str, place: str) -> None:
    verdict = engine(said).judge(admission.decode(admission.wrap(config_map(text))), Facts())
    messages = [result.finding.message for result in verdict.having(Action.DENY)]
    assert [place in message for message in messages] == ([True] if place else [])


# Who uses what


def daemon_set(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    volumes = [{"name": "v", "configMap": {"name": "c"}}, {"name": "e", "configMap": {"name": "entry-point"}}]
    pod = {"containers": [*containers], "volumes": volumes, **spec}
    metadata = {"name": "d", "namespace": "gpu"}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": {"template": {"spec": pod}}}


def container(name: str, mount: str = "", command: tuple[str, ...] = (), **env: str) -> dict[str, Any]:
    return {
        "name": name,
        "image": "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
        "command": [*command],
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "volumeMounts": [{"name": "e", "mountPath": "/bin"}, *([{"name": "v", "mountPath": mount}] if mount else [])],
    }


PLUGIN = container("plugin")
MANAGER = container("config-manager", "/available-configs", ("config-manager",))


def test_nodes_choose_a_key_where_a_config_manager_runs() -> None:
    (found,) = Facts.of([daemon_set(MANAGER, PLUGIN)]).installations
    assert (found.config_map, found.chosen, found.key) == ("c", True, "")


@pytest.mark.parametrize(
    ("plugin", "key"),
    [
        (container("plugin", "/etc/plugin", CONFIG_FILE="/etc/plugin/config.yaml"), "config.yaml"),
        (container("plugin", "/etc/plugin", ("nvidia-device-plugin", "--config-file=/etc/plugin/x")), "x"),
        (container("plugin", "/etc/plugin", ("nvidia-device-plugin", "--config-file", "/etc/plugin/x")), "x"),
    ],
)
def test_a_plugin_without_a_config_manager_reads_one_file(plugin: dict[str, Any], key: str) -> None:
    (found,) = Facts.of([daemon_set(plugin)]).installations
    assert (found.config_map, found.chosen, found.key) == ("c", False, key)


def test_a_file_that_is_mounted_alone_and_one_that_is_renamed() -> None:
    single = container("plugin", "/etc/config.yaml", CONFIG_FILE="/etc/config.yaml")
    single["volumeMounts"][-1]["subPath"] = "any"
    renamed = container("plugin", "/etc/plugin", CONFIG_FILE="/etc/plugin/config.yaml")
    items = {"volumes": [{"name": "v", "configMap": {"name": "c", "items": [{"key": "any", "path": "config.yaml"}]}}]}
    for item in (daemon_set(single), daemon_set(renamed, **items)):
        (found,) = Facts.of([item]).installations
        assert (found.config_map, found.key) == ("c", "any")


@pytest.mark.parametrize(
    "item",
    [
        daemon_set(container("gpu-feature-discovery", "/available-configs", ("gpu-feature-discovery",)), MANAGER),
        daemon_set(container("mps-control-daemon-ctr", "/available-configs", ("mps-control-daemon",)), MANAGER),
        daemon_set(PLUGIN),
        daemon_set({"name": "web", "image": "nginx", "volumeMounts": [{"name": "v", "mountPath": "/x"}]}),
    ],
    ids=["feature discovery", "mps", "no configuration", "another"],
)
def test_a_daemon_set_without_the_plugin_is_no_installation(item: dict[str, Any]) -> None:
    assert Facts.of([item]).installations == ()
    assert kept(item) is None


@pytest.mark.parametrize(
    ("label", "default", "fallbacks", "keys", "used"),
    [
        ("b", "a", "", ("a", "b"), "b"),
        (None, "a", "", ("a", "b"), "a"),
        (None, "", "named,single", ("default", "b"), "default"),
        (None, "", "named,single", ("b",), "b"),
        (None, "", "named,single", ("a", "b"), ""),
        (None, "", "empty,single", ("b",), ""),
        ("", "", "single", ("b",), "b"),
    ],
)
def test_the_key_of_a_node(label: str | None, default: str, fallbacks: str, keys: tuple[str, ...], used: str) -> None:
    more = {"DEFAULT_CONFIG": default, "FALLBACK_STRATEGIES": fallbacks}
    manager = container("config-manager", "/available-configs", ("config-manager",), **more)
    (found,) = Facts.of([daemon_set(PLUGIN, manager)]).installations
    assert key_of(found, label, keys) == used


def node(name: str, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"nvidia.com/gpu.present": "true", **labels}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def test_only_nodes_that_a_daemon_set_reaches_use_its_config_map() -> None:
    items = [daemon_set(PLUGIN, MANAGER, nodeSelector={"pool": "x"}), node("in", pool="x"), node("out")]
    labelled = [{**each, "metadata": {**each["metadata"]}} for each in items]
    for each in labelled[1:]:
        each["metadata"]["labels"] = {**each["metadata"]["labels"], "nvidia.com/device-plugin.config": "any"}
    facts = Facts.of(labelled)
    found = users(facts.installations, ["any"], facts)
    assert {key: [each.name for each in nodes] for key, nodes in found.items()} == {"any": ["in"]}


def pod(*containers: dict[str, Any], phase: str = "Running", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"nodeName": "a", "containers": [*containers], **spec},
        "status": {"phase": phase},
    }


def asks(count: int, **more: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"limits": {"nvidia.com/gpu": count, "cpu": "1"}}, **more}


def test_the_slices_that_pods_hold_are_counted_by_node() -> None:
    (held,) = Facts.of([pod(asks(1), asks(1), initContainers=[asks(1, restartPolicy="Always"), asks(5)])]).holders
    assert (held.node, held.asks) == ("a", {"nvidia.com/gpu": 6})
    unheld = (pod(asks(1), phase="Succeeded"), pod(asks(1), phase="Failed"), pod(asks(1), nodeName=""), pod(asks(0)))
    for item in unheld:
        assert Facts.of([item]).holders == ()
        assert kept(item) is None


@pytest.mark.parametrize(
    "item",
    [
        daemon_set(PLUGIN, MANAGER, nodeSelector={"pool": "x"}),
        config_map("sharing: {}"),
        {**config_map(""), "binaryData": {"b": "c2hhcmluZzoge30=", "noise": "/w=="}},
        node("n", pool="x"),
        pod(asks(2), initContainers=[asks(3)]),
    ],
    ids=lambda item: item["kind"],
)
def test_a_trimmed_object_makes_the_same_facts(item: dict[str, Any]) -> None:
    small = kept(item)
    assert small is not None
    whole, made = Facts.of([item]), Facts.of([small])
    assert (whole.nodes, whole.config_maps, whole.holders) == (made.nodes, made.config_maps, made.holders)
    assert whole.installations == made.installations


def test_a_text_too_large_to_keep_is_a_key_without_a_text() -> None:
    small = kept(config_map("x" * 100_000))
    assert small is not None
    assert Facts.of([small]).config_maps == {("gpu-operator", "c"): {"any": None}}


# Whatever shape it has

WORDS = (
    *("version", "flags", "plugin", "migStrategy", "sharing", "Sharing", "timeSlicing", "time-slicing", "mps", "any"),
    *("resources", "name", "replicas", "rename", "devices", "renameByDefault", "failRequestsGreaterThanOne", "gpus"),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 100),
    st.sampled_from(("nvidia.com/gpu", "gpu", "nvidia.com/mig-1g.10gb", "all", "mixed", "v1", "")),
)


def shapes(words: tuple[str, ...], scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(words), inner, max_size=4),
        max_leaves=15,
    )


SECTION = st.fixed_dictionaries({"resources": st.lists(shapes(WORDS, SCALARS), max_size=3)}) | shapes(WORDS, SCALARS)
CONFIGS = shapes(WORDS, SCALARS) | st.fixed_dictionaries(
    {"sharing": st.dictionaries(st.sampled_from(("timeSlicing", "mps", "TimeSlicing")), SECTION, max_size=3)}
)
INSTALLED: list[dict[str, Any]] = [
    {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "cluster-policy"},
        "spec": {"mig": {"strategy": "mixed"}, "devicePlugin": {"config": {"name": "c", "default": "any"}}},
    },
    {**node("a", **{"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.count": "1"}), "status": {}},
    {**node("b"), "status": {"allocatable": {"nvidia.com/mig-1g.10gb": "7"}}},
    pod(asks(3)),
]
STRICT = engine("{maxReplicas: 4, minSliceMemory: 4Gi, renameByDefault: Required, mps: Forbidden}")


@given(CONFIGS, CONFIGS)
def test_any_configuration_has_a_verdict(before: Any, after: Any) -> None:
    old, new = (config_map(write(each)) for each in (before, after))
    facts = Facts.of([*INSTALLED, old])
    created = admission.decode(admission.wrap(new))
    updated = replace(created, operation="UPDATE", old_object=old)
    deleted = replace(created, operation="DELETE", object=None, old_object=old)
    for request in (created, updated, deleted):
        verdict = STRICT.validate(request, facts)
        assert verdict.malformed is None
        assert verdict == STRICT.validate(request, facts)
    assert not verdict.allowed  # it is in use


DRIVERS_WORDS = (
    *("apiVersion", "kind", "sharing", "strategy", "timeSlicingConfig", "interval", "mpsConfig", "multiUser"),
    *("defaultActiveThreadPercentage", "defaultPinnedDeviceMemoryLimit", "defaultPerDevicePinnedMemoryLimit", "0"),
)
DRIVERS_SCALARS = SCALARS | st.sampled_from(
    ("resource.nvidia.com/v1beta1", "GpuConfig", "MigDeviceConfig", "TimeSlicing", "MPS", "Long", "1Gi")
)


@given(shapes(DRIVERS_WORDS, DRIVERS_SCALARS), st.sampled_from(("GpuConfig", "MigDeviceConfig", "VfioDeviceConfig")))
def test_any_parameters_of_the_driver_have_a_verdict(parameters: Any, kind: str) -> None:
    if isinstance(parameters, dict):
        parameters = {**parameters, "apiVersion": "resource.nvidia.com/v1beta1", "kind": kind}
    config = {"opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}
    item = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "n"},
        "spec": {"devices": {"config": [config]}},
    }
    verdict = STRICT.validate(admission.decode(admission.wrap(item)), Facts())
    assert verdict.allowed is not bool(verdict.results)


FIELDS = (
    *("metadata", "name", "namespace", "labels", "spec", "template", "containers", "initContainers", "env", "value"),
    *("valueFrom", "volumeMounts", "mountPath", "subPath", "volumes", "configMap", "items", "key", "path", "image"),
    *("command", "args", "nodeSelector", "resources", "limits", "requests", "nvidia.com/gpu", "status", "allocatable"),
    *(
        "phase",
        "nodeName",
        "data",
        "binaryData",
        "devicePlugin",
        "config",
        "default",
        "mig",
        "strategy",
        "restartPolicy",
    ),
)
KINDS = (
    *(("v1", kind) for kind in ("Namespace", "Node", "ConfigMap", "Pod")),
    ("apps/v1", "DaemonSet"),
    ("nvidia.com/v1", "ClusterPolicy"),
)


@given(
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from(FIELDS), shapes(FIELDS, SCALARS | st.just("nvidia-device-plugin")), max_size=4),
)
def test_facts_take_any_shape(kind: tuple[str, str], item: dict[str, Any]) -> None:
    whole = {**item, "apiVersion": kind[0], "kind": kind[1]}
    facts, small = Facts.of([whole]), kept(whole)
    assert Facts.of([small] if small else []).holders == facts.holders


# By another name


HIDDEN = {
    "plain": '"sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 99}]}}',
    "escaped": r'"sh\x61ring": {"timeSl\u0069cing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 99}]}}',
    "encoded": '!!binary c2hhcmluZw==: {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 99}]}}',
}


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("padding", [0, 1_000, 100_000])
def test_in_the_plugins_namespace_a_config_map_of_any_name_is_read(engine: Engine, hidden: str, padding: int) -> None:
    item = config_map(f"# {'x' * padding}\n{{{HIDDEN[hidden]}}}", name="notes")
    assert not engine.judge(admission.decode(admission.wrap(item)), Facts()).allowed


def test_a_hidden_configuration_behind_more_than_is_read_is_refused(engine: Engine) -> None:
    for hidden in (HIDDEN["plain"], HIDDEN["escaped"]):
        padded = "{" + "".join(f"a{number}: 1, " for number in range(4_000)) + hidden + "}"
        assert not engine.judge(admission.decode(admission.wrap(config_map(padded, name="notes"))), Facts()).allowed


@pytest.mark.parametrize("namespace", ["gpu-operator", "visitors"])
def test_texts_of_other_applications_are_allowed_at_any_size(engine: Engine, namespace: str) -> None:
    dashboard = json.dumps({"panels": [{"id": number, "title": "<a> \u00e9"} for number in range(10_000)]})
    script = 'printf "\\x1b[1m"; sed -e "s!a!\\\\x62!"\n' * 10_000
    for text in (dashboard, script, "!" * 100_000, "\\" * 100_000, r"\x4" * 100_000, r'"\ud800": 1'):
        item = config_map(text, name="notes", namespace=namespace)
        assert engine.judge(admission.decode(admission.wrap(item)), Facts()).allowed


def test_keys_after_the_limit_of_values_is_reached_are_refused(engine: Engine) -> None:
    filler = {f"k{number}": "# \\ sharing: timeslicing\n{a: [" for number in range(20_000)}
    item = {**config_map("", name="notes"), "data": {**filler, "z": f"{{{HIDDEN['plain']}}}"}}
    verdict = engine.judge(admission.decode(admission.wrap(item)), Facts())
    assert not verdict.allowed
    assert len(verdict.results) < 4_000
