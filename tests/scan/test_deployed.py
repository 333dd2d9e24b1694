"""All that a GitOps repository would create is judged, or a note or an error names its folder."""

import json
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.documents.documents import read
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.scan import batches
from webhook.scan.results import Report

KUSTOMIZATION = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
COMPONENT = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"
REMOVES = "patches:\n- patch: '[{op: remove, path: /spec/hostPID}]'\n  target: {kind: Pod}\n"
ADDS = "patches:\n- patch: '[{op: add, path: /spec/hostPID, value: true}]'\n  target: {kind: Pod}\n"
DELETE = "{$patch: delete, apiVersion: v1, kind: Pod, metadata: {name: NAME}}"
DELETES = f"patches:\n- patch: '{DELETE}'\n  target: {{kind: Pod}}\n"
PATCHED = ", kustomize: {patches: [{target: {kind: Pod}, patch: '[{op: remove, path: /spec/hostPID}]'}]}"
REMOVED, ADDED = "remove, path: /spec/hostPID", "add, path: /spec/hostPID, value: true"
CHART = "apiVersion: v2\nname: c\nversion: 0.1.0\n"
MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m, namespace: lab}\n"


def pod(name: str, *, evil: bool = True, more: str = "") -> str:
    spec = "spec:\n  hostPID: true\n" if evil else "spec:\n"
    container = "  containers:\n  - {name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}\n"
    return f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: lab{more}}}\n{spec}{container}"


def flux(path: str, patches: str = "", kind: str = "kustomize.toolkit.fluxcd.io/v1") -> str:
    spec = f"  path: ./{path}\n  sourceRef: {{kind: GitRepository, name: own}}\n"
    indented = "".join(f"  {line}\n" for line in patches.splitlines())
    head = f"apiVersion: {kind}\nkind: Kustomization\nmetadata: {{name: x, namespace: flux-system}}\n"
    return f"{head}spec:\n{spec}{indented}"


def argo(path: str, options: str = "") -> str:
    source = f"{{repoURL: 'https://example.com/own.git', path: {path}{options}}}"
    spec = f"spec: {{destination: {{namespace: lab}}, source: {source}}}\n"
    return f"apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {{name: x, namespace: argocd}}\n{spec}"


def applications(files: str, application: str) -> str:
    template = application.partition("kind: Application\n")[2].replace("hostPID", "{{key}}").splitlines(keepends=True)
    generator = f"{{git: {{repoURL: 'https://example.com/own.git', files: [{{path: {files}}}]}}}}"
    head = "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: s}\nspec:\n"
    return f"{head}  generators: [{generator}]\n  template:\n{''.join(f'    {line}' for line in template)}"


def conditional(name: str) -> str:
    return f"{{{{ if .Values.x }}}}\n{pod(name)}{{{{ end }}}}\n"


def encrypted(name: str) -> str:
    text = pod(name).replace("image: i", "image: 'ENC[AES256_GCM,data:x,type:str]'")
    return text.replace("hostPID: true", "hostPID: 'ENC[AES256_GCM,data:x,type:bool]'") + "sops: {version: 3.9.0}\n"


def in_json(text: str) -> str:
    return json.dumps(read(text, "")[0][0].value)


def listed(kind: str, text: str) -> str:
    return f'{{"apiVersion": "apps/v1", "kind": "{kind}", "items": [{in_json(text)}]}}'


SEES = "securityContext: {privileged: true}, env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]"


def workflow(name: str) -> str:
    head = f"apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {{name: {name}, namespace: lab}}\n"
    return f"{head}spec: {{entrypoint: m, templates: [{{name: m, container: {{image: i, {SEES}}}}}]}}\n"


def model(name: str) -> str:
    head = (
        f"apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {{name: {name}, namespace: lab}}\n"
    )
    return f"{head}spec: {{predictor: {{model: {{modelFormat: {{name: x}}, {SEES}}}}}}}\n"


Files = dict[str, str]

SHAPES: dict[str, Callable[[str], Files]] = {
    "plain": lambda n: {"pod.yaml": pod(n)},
    "list": lambda n: {"a.json": json.dumps({"apiVersion": "v1", "kind": "List", "items": []}), "pod.yaml": pod(n)},
    "without a suffix": lambda n: {"Kustomization": "resources: [pod.txt]\n", "pod.txt": pod(n)},
    "yml": lambda n: {"kustomization.yml": "resources: [pod.txt]\n", "pod.txt": pod(n)},
    "field in another case": lambda n: {"kustomization.yaml": "Resources: [pod.txt]\n", "pod.txt": pod(n)},
    "two kustomizations": lambda n: {
        "kustomization.yaml": "resources: [good.yaml]\n",
        "Kustomization": "resources: [pod.txt]\n",
        "good.yaml": MAP,
        "pod.txt": pod(n),
    },
    "unreadable": lambda n: {"Kustomization": "resources: [pod.txt\n", "pod.txt": pod(n)},
    "first document": lambda n: {
        "kustomization.yaml": f"{KUSTOMIZATION}resources: [pod.yaml]\n{ADDS}---\n{KUSTOMIZATION}",
        "pod.yaml": pod(n, evil=False),
    },
    "second document": lambda n: {"kustomization.yaml": f"resources: [map.yaml]\n---\n{pod(n)}", "map.yaml": MAP},
    "not hidden by a second document": lambda n: {
        "kustomization.yaml": "resources: [map.yaml]\n---\npatches: [{path: pod.yaml}]\n",
        "map.yaml": MAP,
        "pod.yaml": pod(n),
    },
    "second document next to a generator": lambda n: {
        "kustomization.yaml": f"configMapGenerator: [{{name: m, literals: [a=b]}}]\n---\n{pod(n)}"
    },
    "second document next to a patch": lambda n: {
        "kustomization.yaml": f"resources: [good.yaml]\n{REMOVES}---\n{pod(n)}",
        "good.yaml": pod(f"good-{n}"),
    },
    "second document of a component": lambda n: {
        "kustomization.yaml": "components: [part]\n",
        "part/kustomization.yaml": f"{COMPONENT}configMapGenerator: [{{name: m}}]\n---\n{pod(n)}",
    },
    "component": lambda n: {"kustomization.yaml": f"{COMPONENT}resources: [pod.txt]\n", "pod.txt": pod(n)},
    "patches of a component": lambda n: {
        "kustomization.yaml": f"{COMPONENT}resources: [pod.yaml]\n{ADDS}",
        "pod.yaml": pod(n, evil=False),
    },
    "generators of a component": lambda n: {
        "kustomization.yaml": f"{COMPONENT}generators: [pod.txt]\n",
        "pod.txt": pod(n),
    },
    "component in use": lambda n: {
        "kustomization.yaml": "resources: [pod.yaml]\ncomponents: [part]\n",
        "part/kustomization.yaml": COMPONENT + ADDS,
        "pod.yaml": pod(n, evil=False),
    },
    "encrypted": lambda n: {"pod.yaml": encrypted(n)},
    "metadata of SOPS": lambda n: {"pod.yaml": pod(n) + "sops: {version: 3.9.0}\n"},
    "partly encrypted": lambda n: {"pod.yaml": pod(n).replace("image: i", "image: 'ENC[x]'") + "sops: {version: 3}\n"},
    "whole patch": lambda n: {
        "kustomization.yaml": "resources: [map.yaml]\npatches: [{path: pod.yaml, target: {kind: ConfigMap}}]\n",
        "map.yaml": MAP,
        "pod.yaml": pod(n, more=", managedFields: [{fieldsV1: {containers: [{name: x}]}}]"),
    },
    "whole patch below": lambda n: {
        "kustomization.yaml": "resources: [map.yaml]\npatches: [{path: in/pod.yaml, target: {kind: ConfigMap}}]\n",
        "map.yaml": MAP,
        "in/pod.yaml": pod(n),
    },
    "typed list as a patch": lambda n: {
        "kustomization.yaml": "resources: [map.yaml]\npatches: [{path: pods.json, target: {kind: ConfigMap}}]\n",
        "map.yaml": MAP,
        "pods.json": listed("PodList", pod(n)),
    },
    "typed list as a patch of another folder": lambda n: {
        "k/kustomization.yaml": "resources: [map.yaml]\npatches: [{path: ../pods.json, target: {kind: ConfigMap}}]\n",
        "k/map.yaml": MAP,
        "pods.json": listed("DoorList", pod(n)),
    },
    "workflow as a patch": lambda n: {
        "kustomization.yaml": "resources: [map.yaml]\npatches: [{path: flow.yaml, target: {kind: ConfigMap}}]\n",
        "map.yaml": MAP,
        "flow.yaml": workflow(n),
    },
    "model as a patch": lambda n: {
        "kustomization.yaml": "resources: [map.yaml]\npatches: [{path: model.yaml, target: {kind: ConfigMap}}]\n",
        "map.yaml": MAP,
        "model.yaml": model(n),
    },
    "items of a kustomization": lambda n: {"kustomization.yaml": f"{KUSTOMIZATION}items:\n- {in_json(pod(n))}\n"},
    "items of a component": lambda n: {"kustomization.yaml": f"{COMPONENT}items:\n- {in_json(pod(n))}\n"},
    "local": lambda n: {
        "kustomization.yaml": "resources: [pod.yaml]\n",
        "pod.yaml": pod(n, more=", annotations: {config.kubernetes.io/local-config: 'true'}"),
    },
    "made local": lambda n: {
        "kustomization.yaml": "resources: [pod.yaml]\ncommonAnnotations: {config.kubernetes.io/local-config: 'true'}\n",
        "pod.yaml": pod(n),
    },
    "no longer local": lambda n: {
        "kustomization.yaml": "resources: [pod.yaml]\n"
        + REMOVES.replace("[", "[{op: remove, path: /metadata/annotations}, ", 1),
        "pod.yaml": pod(n, more=", annotations: {config.kubernetes.io/local-config: 'true'}"),
    },
    "plain file of a chart": lambda n: {"Chart.yaml": CHART, "templates/pod.yaml": pod(n)},
    "other files of a chart": lambda n: {"Chart.yaml": CHART, "files/pod.yaml": pod(n)},
    "crds of a chart": lambda n: {"Chart.yaml": CHART, "crds/pod.yaml": pod(n)},
    "crds of a subchart": lambda n: {
        "Chart.yaml": CHART,
        "charts/s/Chart.yaml": CHART,
        "charts/s/crds/templates/pod.yaml": pod(n, more=", annotations: {a: '{{ x }}'}"),
    },
    "subchart with the name of a folder": lambda n: {
        "Chart.yaml": CHART,
        "charts/templates/Chart.yaml": CHART,
        "charts/templates/crds/pod.yaml": pod(n, more=", annotations: {a: '{{ x }}'}"),
    },
    "partial of a chart": lambda n: {"Chart.yaml": CHART, "templates/_pod.yaml": pod(n)},
    "ignored by Helm": lambda n: {"Chart.yaml": CHART, ".helmignore": "pod.yaml\n", "templates/pod.yaml": pod(n)},
    "condition": lambda n: {
        "Chart.yaml": CHART,
        "templates/pod.yaml": f"{{{{ if .Values.x }}}}\n{pod(n)}{{{{ end }}}}\n",
    },
    "library": lambda n: {
        "Chart.yaml": CHART + "type: library\n",
        "templates/pod.yaml": conditional(n),
    },
    "hidden": lambda n: {".x/pod.yaml": pod(n)},
    "hidden kustomization": lambda n: {".x/Kustomization": "resources: [pod.txt]\n", ".x/pod.txt": pod(n)},
    "hidden chart": lambda n: {"a/.x/Chart.yaml": CHART, "a/.x/templates/pod.txt": pod(n)},
    "hidden helmfile": lambda n: {
        ".x/helmfile.yaml.gotmpl": "releases: [{name: r, chart: ../web, values: [{x: true}]}]\n",
        "web/Chart.yaml": CHART,
        "web/templates/pod.tpl": conditional(n),
    },
    "Flux changes a file without a suffix": lambda n: {
        "pods/pod": pod(n),
        "pods/kustomization.yaml": "resources: [pod]\n",
        "flux.yaml": flux("FOLDER/pods", "suspend: true\n" + REMOVES),
    },
    "Argo CD changes a file without a suffix": lambda n: {
        "in/pod.txt": pod(n),
        "pods/kustomization.yaml": "resources: [../in/part]\n",
        "in/part/kustomization.yaml": "resources: [../pod.txt]\n",
        "app.yaml": argo("FOLDER/pods", PATCHED),
    },
    "Flux deletes": lambda n: {
        "pods/pod.yaml": pod(n),
        "pods/kustomization.yaml": "resources: [pod.yaml]\n",
        "flux.yaml": flux("FOLDER/pods", DELETES.replace("NAME", n)),
    },
    "Flux changes": lambda n: {"pods/pod.yaml": pod(n), "flux.yaml": flux("FOLDER/pods", REMOVES)},
    "Flux adds": lambda n: {"pods/pod.yaml": pod(n, evil=False), "flux.yaml": flux("FOLDER/pods", ADDS)},
    "Flux in escapes": lambda n: {
        "pods/pod.yaml": pod(n, evil=False),
        "flux.yaml": flux("FOLDER/pods", ADDS, '"kustomize.toolkit.fluxcd\\u002eio/v1"'),
    },
    "Flux elsewhere": lambda n: {"pods/pod.yaml": pod(n), "flux.yaml": flux("other", DELETES.replace("NAME", n))},
    "Argo CD changes": lambda n: {
        "pods/pod.yaml": pod(n),
        "app.yaml": argo("FOLDER/pods", PATCHED),
    },
    "Argo CD names a whole patch": lambda n: {
        "pods/map.yaml": MAP,
        "pods/pod.yaml": pod(n),
        "pods/kustomization.yaml": "resources: [map.yaml]\n",
        "app.yaml": argo("FOLDER/pods", ", kustomize: {patches: [{path: pod.yaml, target: {kind: ConfigMap}}]}"),
    },
    "Argo CD applies files": lambda n: {
        "pods/pod.yaml": pod(n),
        "pods/kustomization.yaml": "resources: [pod.yaml]\n" + REMOVES,
        "app.yaml": argo("FOLDER/pods", ", directory: {recurse: true}"),
    },
    "Argo CD elsewhere": lambda n: {"pods/pod.yaml": pod(n), "app.yaml": argo("other")},
    "Argo CD ignores options": lambda n: {
        "pods/pod.yaml": pod(n),
        "pods/kustomization.yaml": "resources: [pod.yaml]\n" + REMOVES,
        "app.yaml": argo("FOLDER/pods", ", directory: {recurse: true}, kustomize: {labelWithoutSelector: true}"),
    },
    "Jsonnet of Argo CD": lambda n: {
        "pods/pod.jsonnet": json.dumps({"kind": "Pod", "metadata": {"name": n}}),
        "pods/kustomization.yaml": "resources: []\n",
        "app.yaml": argo("FOLDER/pods", ", directory: {recurse: true}"),
    },
    "Argo CD overrides": lambda n: {
        "pods/pod.yaml": pod(n, evil=False),
        "pods/.argocd-source-argocd_x.yaml": f"kustomize: {{patches: [{{patch: {n}}}]}}\n",
        "app.yaml": argo("FOLDER/pods"),
    },
    "Argo CD in a broken text": lambda n: {
        "pods/pod.yaml": pod(n, evil=False),
        "pods/kustomization.yaml": "resources: [pod.yaml]\n",
        "app.yaml": argo("FOLDER/pods", PATCHED.replace(REMOVED, ADDED)).replace(
            "apiVersion: argoproj.io/v1alpha1", 'apiVersion: &a "argoproj.io/\\\n  v1alpha1"'
        ),
    },
    "Argo CD applies what is hidden": lambda n: {
        "pods/.svn/pod.yaml": pod(n),
        "app.yaml": argo("FOLDER/pods", ", directory: {recurse: true}"),
    },
    "set of files in a folder": lambda n: {
        "pods/pod.yaml": pod(n, evil=False),
        "pods/kustomization.yaml": "resources: [pod.yaml]\n",
        "env/one.yaml": "key: hostPID\n",
        "set.yaml": applications("FOLDER/env", argo("FOLDER/pods", PATCHED.replace(REMOVED, ADDED))),
    },
}
"""Ways to place a pod with `hostPID` in a folder."""


Check = Callable[[Files], Report]


@pytest.fixture(scope="module")
def check(engine: Engine, sample_facts: Facts) -> Check:
    """Judge a repository of some files, without programs."""

    def run(files: Files) -> Report:
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            for name, text in {".git/config": "", "good.yaml": pod("good", evil=False), **files}.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            patch.chdir(folder)
            patch.setenv("PATH", "")
            return batches.read(["."]).judge(engine, sample_facts, at=datetime.now(UTC))

    return run


def placed(shape: str, folder: str, name: str) -> Files:
    return {f"{folder}/{file}": text.replace("FOLDER", folder) for file, text in SHAPES[shape](name).items()}


def missed(report: Report, folder: str, name: str) -> bool:
    """Whether a pod is neither denied nor its folder named by a note or an error."""
    denied = any(one.name == name and not one.verdict.allowed for one in report.judged)
    lines = [*map(str, report.problems), *(note for note in report.notes if "not judged: Kustomization" not in note)]
    return not (denied or any(folder in line for line in lines))


@pytest.mark.parametrize("shape", SHAPES)
def test_each_way_to_place_a_pod_is_judged_or_named(check: Check, shape: str) -> None:
    assert not missed(check(placed(shape, "d0", "evil0")), "d0", "evil0")


@given(st.lists(st.tuples(st.sampled_from([*SHAPES]), st.sampled_from(["", "apps/", "d0/"])), min_size=2, max_size=3))
def test_every_pod_of_a_repository_is_judged_or_named(check: Check, places: list[tuple[str, str]]) -> None:
    files, pods = dict[str, str](), list[tuple[str, str]]()
    for number, (shape, above) in enumerate(places):
        folder, name = f"{above}d{number}", f"evil{number}"
        files |= placed(shape, folder, name)
        pods.append((folder, name))
    report = check(files)
    assert [name for folder, name in pods if missed(report, folder, name)] == []
