"""Repositories as Flux deploys them, and what its own code makes of them next to `slicewarden check`."""

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import yaml

from tests.oracles.programs import Oracle
from webhook.model import Object
from webhook.rendering.model import Options
from webhook.scan import batches

Map = dict[str, Any]

FOLDERS = ("apps", "apps/a", "apps/a/deep", "infra", "components/c", "clusters/prod/extra")
FILES = ("pod.yaml", "deploy.yaml", "more.yml", "map.yaml", "list.json", "many.yaml", "Deploy.YAML", "notes.txt")
NAMES = ("web", "job", "tool")
TEXTS = (
    *("void", "all", "nvidia", "a b", "", "true", "1", "null", "#x", "a: b", "{{ x }}", "é"),
    *(
        "${A}",
        "${A}",
        "${B:=all}",
        "${B:-all}",
        "$${A}",
        "$A",
        "${A}${B}",
        "x${A}y",
        "${A/o/a}",
        "${A^^}",
        "${#A}",
        "${C}",
        "${A:-${B}}",
    ),
)
VALUES = ("all", "void", "0", "true", "NVIDIA", "a\nb", "x: y", "it's", "", " ", "nvidia.com/gpu", "apps")
KEYS = ("NVIDIA_VISIBLE_DEVICES", "LD_PRELOAD", "X", "X", "${A}", "NVIDIA_${A}")
IMAGES = ("i", "nvidia/cuda:12", "registry.example/app:1@sha256:" + "0" * 64, "i:${A:=1}")


class Repositories:
    """Makes repositories that Flux deploys: the texts of their files by their names."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def one(self) -> dict[str, str]:
        """Make a repository. Its `clusters/prod` is deployed by a Kustomization that a person has applied."""
        random = self._random
        files = {"clusters/prod/sync.yaml": self._written([self._source(), flux("flux-system", "./clusters/prod")])}
        folders = random.sample(FOLDERS, k=random.choice((1, 2, 2, 3, 4)))
        built = list[str]()
        for folder in folders:
            own = self._files()
            files.update({f"{folder}/{name}": text for name, text in own.items()})
            if folder.startswith("components") or self._chance(0.6):
                others = folders if self._chance(0.1) else built
                files[f"{folder}/{self._kustomization_name()}"] = self._written(
                    [self._kustomization(folder, [*own], others)]
                )
                built.append(folder)
        apps = [self._flux(number, folders) for number in range(random.choice((1, 1, 2, 3)))]
        files["clusters/prod/apps.yaml"] = self._written([*apps, *([self._map()] if self._chance(0.4) else [])])
        if self._chance(0.25):
            names = ["sync.yaml", "apps.yaml", *(["extra"] if "clusters/prod/extra" in built else [])]
            files["clusters/prod/kustomization.yaml"] = self._written(
                [self._kustomization("clusters/prod", names, built)]
            )
        if self._chance(0.1):
            files[random.choice((".sourceignore", "apps/.sourceignore"))] = self._patterns()
        return files

    def _chance(self, of: float) -> bool:
        return self._random.random() < of

    def _text(self) -> str:
        return self._random.choice(TEXTS)

    def _source(self) -> Map:
        spec: Map = {"interval": "1m", "url": "https://git.example/fleet", "ref": {"branch": "main"}}
        if self._chance(0.08):
            spec["ignore"] = self._patterns()
        return {
            "apiVersion": "source.toolkit.fluxcd.io/v1",
            "kind": "GitRepository",
            "metadata": {"name": "flux-system", "namespace": "flux-system"},
            "spec": spec,
        }

    def _patterns(self) -> str:
        lines = (
            "/*",
            "!/apps",
            "!/clusters",
            "*.yml",
            "deep/",
            "apps/a",
            "**/map.yaml",
            "# note",
            "!map.yaml",
            "/apps/*",
            "kustomization.yaml",
        )
        return "\n".join(self._random.sample(lines, k=self._random.choice((1, 2, 3)))) + "\n"

    # Objects

    def _files(self) -> dict[str, str]:
        random = self._random
        made = dict[str, str]()
        for name in random.sample(FILES, k=random.choice((1, 1, 2, 3))):
            objects = [self._object(name) for _ in range(2 if name == "many.yaml" else 1)]
            if name == "list.json":
                made[name] = json.dumps(
                    {"apiVersion": "v1", "kind": "List", "items": objects} if self._chance(0.5) else objects[0]
                )
            else:
                made[name] = self._written(objects)
        if self._chance(0.1):
            made[random.choice((".hidden.yaml", ".h/pod.yaml", "patch.yaml"))] = self._written(
                [self._object("pod.yaml")]
            )
        return made

    def _object(self, name: str) -> Map:
        if name == "map.yaml":
            return self._map()
        return self._deployment() if name == "deploy.yaml" or self._chance(0.2) else self._pod()

    def _metadata(self) -> Map:
        random = self._random
        made: Map = {"name": random.choice(NAMES)}
        if self._chance(0.4):
            made["namespace"] = random.choice(("team", "lab", "team", "lab", "${M:=team}"))
        if self._chance(0.3):
            made["labels"] = {random.choice(("app", "tier")): random.choice(("web", "job", "${A}"))}
        if self._chance(0.15):
            made["annotations"] = {random.choice(ANNOTATIONS): random.choice(("disabled", "true", "ignore", "all"))}
        return made

    def _spec(self) -> Map:
        random = self._random
        container: Map = {"name": random.choice(("c", "d")), "image": random.choice(IMAGES)}
        if self._chance(0.7):
            container["env"] = [
                {"name": random.choice(KEYS), "value": self._text()} for _ in range(random.choice((1, 1, 2)))
            ]
        if self._chance(0.4):
            container["resources"] = {
                "limits": {random.choice(("nvidia.com/gpu", "cpu", "${A}")): random.choice((1, "1", 2, "${A:=2}"))}
            }
        if self._chance(0.2):
            container["securityContext"] = {"privileged": random.choice((True, False))}
        spec: Map = {"containers": [container]}
        if self._chance(0.2):
            spec["runtimeClassName"] = self._text()
        if self._chance(0.2):
            spec["nodeSelector"] = {"kind": self._text()}
        return spec

    def _pod(self) -> Map:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": self._metadata(), "spec": self._spec()}

    def _deployment(self) -> Map:
        template = {"metadata": {"labels": {"app": "web"}}, "spec": self._spec()}
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": self._metadata(), "spec": spec}

    def _map(self) -> Map:
        random = self._random
        namespace = random.choice(("flux-system", "flux-system", "team"))
        data = {
            random.choice(("A", "B", "M", "config.yaml")): random.choice(VALUES) for _ in range(random.choice((1, 2)))
        }
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": random.choice(("vars", "vars", "other")), "namespace": namespace},
            "data": data,
        }

    # Kustomizations

    def _kustomization_name(self) -> str:
        return self._random.choice(("kustomization.yaml",) * 8 + ("kustomization.yml", "Kustomization"))

    def _kustomization(self, folder: str, names: Sequence[str], folders: Sequence[str]) -> Map:
        random = self._random
        component = folder.startswith("components") and self._chance(0.8)
        made: Map = {
            "apiVersion": "kustomize.config.k8s.io/v1alpha1" if component else "kustomize.config.k8s.io/v1beta1",
            "kind": "Component" if component else "Kustomization",
        }
        if self._chance(0.1):
            made = {}
        resources = [name for name in names if not name.endswith(".txt") and self._chance(0.9)]
        others = [
            os.path.relpath(each, folder) for each in folders if each != folder and not each.startswith("components")
        ]
        resources += [each for each in others if self._chance(0.25)]
        made["resources"] = resources
        if "components/c" in folders and self._chance(0.4) and folder != "components/c":
            made["components"] = [os.path.relpath("components/c", folder)]
        fields: dict[str, Callable[[], Any]] = {
            "namespace": lambda: random.choice(("team", "lab")),
            "namePrefix": lambda: "pre-",
            "nameSuffix": lambda: "-suf",
            "commonLabels": lambda: {"app": random.choice(("all", "web"))},
            "labels": lambda: [
                {"pairs": {"tier": "gpu"}, "includeSelectors": self._chance(0.5), "includeTemplates": self._chance(0.5)}
            ],
            "commonAnnotations": lambda: {random.choice(ANNOTATIONS): random.choice(("disabled", "true"))},
            "images": self._images,
            "patches": self._patches,
            "patchesStrategicMerge": lambda: [self._written([self._patch(None)])],
            "patchesJson6902": lambda: [
                {"target": {"version": "v1", "kind": "Pod", "name": random.choice(NAMES)}, "patch": self._operations()}
            ],
            "replicas": lambda: [{"name": random.choice(NAMES), "count": 2}],
            "configMapGenerator": self._generator,
            "generatorOptions": lambda: {"disableNameSuffixHash": True},
            "replacements": self._replacements,
            "sortOptions": lambda: {"order": "fifo"},
            "buildMetadata": lambda: ["managedByLabel"],
            "transformers": lambda: [
                self._written(
                    [
                        {
                            "apiVersion": "builtin",
                            "kind": "NamespaceTransformer",
                            "metadata": {"name": "n", "namespace": "moved"},
                        }
                    ]
                )
            ],
        }
        for key in random.sample([*fields], k=random.choice((0, 0, 1, 1, 2, 3))):
            made[key] = fields[key]()
        return made

    def _images(self) -> list[Map]:
        random = self._random
        new = random.choice(
            (
                {"newName": "nvidia/cuda"},
                {"newTag": "2"},
                {"digest": "sha256:" + "1" * 64},
                {"newName": "x", "newTag": "3"},
            )
        )
        return [{"name": random.choice(("i", "nvidia/cuda", "registry.example/app")), **new}]

    def _patch(self, kind: str | None) -> Map:
        random = self._random
        kind = kind or random.choice(("Pod", "Deployment"))
        spec = self._spec()
        container = spec["containers"][0]
        if self._chance(0.5):
            del container["image"]
        if self._chance(0.1):
            container["$patch"] = random.choice(("delete", "replace"))
        if self._chance(0.1):
            spec["$patch"] = random.choice(("replace", "merge"))
        if self._chance(0.1):
            spec["runtimeClassName"] = None
        metadata: Map = {"name": random.choice(NAMES)}
        if self._chance(0.15):
            metadata["namespace"] = random.choice(("team", "lab"))
        if kind == "Pod":
            return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}
        return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {"template": {"spec": spec}}}

    def _operations(self) -> str:
        random = self._random
        made = list[Map]()
        for _ in range(random.choice((1, 1, 2))):
            path = random.choice(PATHS)
            kind = random.choice((*("add",) * 9, "replace", "remove", "test", "copy", "move"))
            one: Map = {"op": kind, "path": path}
            if kind in ("add", "replace", "test"):
                one["value"] = random.choice(
                    (
                        *VALUES,
                        True,
                        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
                        [{"name": "X", "value": "${A}"}],
                    )
                )
            elif kind != "remove":
                one["from"] = random.choice(PATHS)
            made.append(one)
        return json.dumps(made)

    def _patches(self) -> list[Map]:
        random = self._random
        made = list[Map]()
        for _ in range(random.choice((1, 1, 2))):
            one: Map = {"patch": self._operations() if self._chance(0.5) else self._written([self._patch(None)])}
            if self._chance(0.75):
                target: Map = {}
                if self._chance(0.8):
                    target["kind"] = random.choice(
                        ("Pod", "Pod", "Deployment", "ConfigMap", "Kustomization", ".*", "P.*")
                    )
                if self._chance(0.4):
                    target["name"] = random.choice((*NAMES, ".*", "web|job", "w", "pre-web", "apps-0"))
                if self._chance(0.15):
                    target["namespace"] = random.choice(("team", "lab", "default"))
                if self._chance(0.15):
                    target["labelSelector"] = random.choice(("app=web", "app", "app!=web", "tier in (gpu,web)"))
                if self._chance(0.1):
                    target["annotationSelector"] = "x=true"
                if self._chance(0.1):
                    target["version"] = "v1"
                one["target"] = target
            if self._chance(0.1):
                one["options"] = {random.choice(("allowNameChange", "allowKindChange")): True}
            made.append(one)
        return made

    def _generator(self) -> list[Map]:
        random = self._random
        one: Map = {"name": random.choice(("vars", "made"))}
        if self._chance(0.6):
            one["literals"] = [f"{random.choice(('A', 'B'))}={random.choice(VALUES)}"]
        if self._chance(0.3):
            one["files"] = [random.choice(("notes.txt", "k=pod.yaml", "map.yaml"))]
        if self._chance(0.4):
            one["namespace"] = "flux-system"
        if self._chance(0.4):
            one["options"] = {"disableNameSuffixHash": True}
        if self._chance(0.2):
            one["behavior"] = random.choice(("merge", "replace", "create"))
        return [one]

    def _replacements(self) -> list[Map]:
        random = self._random
        source = {"kind": random.choice(("ConfigMap", "Pod")), "fieldPath": random.choice(("data.A", "metadata.name"))}
        target = {
            "select": {"kind": random.choice(("Pod", "Kustomization"))},
            "fieldPaths": [random.choice(("spec.containers.0.env.0.value", "spec.path", "spec.runtimeClassName"))],
            "options": {"create": True},
        }
        return [{"source": source, "targets": [target]}]

    # Kustomizations of Flux

    def _flux(self, number: int, folders: Sequence[str]) -> Map:
        random = self._random
        odd = ("/apps", "../apps", "./apps/../../infra", ".", "./missing", "apps/*")
        path = random.choice(odd) if self._chance(0.2) else random.choice(("./", "")) + random.choice(folders)
        spec: Map = {}
        fields: dict[str, Callable[[], Any]] = {
            "targetNamespace": lambda: random.choice(("team", "moved")),
            "namePrefix": lambda: "flux-",
            "nameSuffix": lambda: "-f",
            "patches": self._patches,
            "components": lambda: [os.path.relpath("/components/c", f"/{path}") if self._chance(0.8) else "missing"],
            "images": self._images,
            "postBuild": self._post_build,
            "commonMetadata": lambda: {"labels": {"app": "common"}},
            "ignoreMissingComponents": lambda: True,
            "prune": lambda: True,
            "suspend": lambda: self._chance(0.5),
            "buildMetadata": lambda: ["originAnnotations"],
        }
        for key in random.sample([*fields], k=random.choice((0, 1, 1, 2, 3))):
            spec[key] = fields[key]()
        if "postBuild" not in spec and self._chance(0.35):
            spec["postBuild"] = self._post_build()
        for patch in spec.get("patches", ()):
            patch.pop("options", None)
        return flux(f"apps-{number}", path, **spec)

    def _post_build(self) -> Map:
        random = self._random
        made: Map = {}
        if self._chance(0.7):
            made["substitute"] = {
                random.choice(("A", "B", "M")): random.choice(VALUES) for _ in range(random.choice((1, 2)))
            }
        if self._chance(0.5):
            made["substituteFrom"] = [
                {
                    "kind": "ConfigMap",
                    "name": random.choice(("vars", "vars", "other", "made")),
                    **({"optional": True} if self._chance(0.6) else {}),
                }
            ]
        return made

    def _written(self, objects: Sequence[Map]) -> str:
        return "---\n".join(
            yaml.safe_dump(each, sort_keys=False, default_flow_style=self._random.choice((False, False, None)))
            for each in objects
        )


ANNOTATIONS = (
    "kustomize.toolkit.fluxcd.io/substitute",
    "kustomize.toolkit.fluxcd.io/reconcile",
    "kustomize.toolkit.fluxcd.io/ssa",
    "config.kubernetes.io/local-config",
    "config.kubernetes.io/function",
    "x",
)
PATHS = (
    "/spec/containers/0/env/0/value",
    "/spec/containers/0/env/-",
    "/spec/containers/0/env",
    "/spec/containers/0/image",
    "/spec/runtimeClassName",
    "/spec/hostPID",
    "/metadata/labels/app",
    "/metadata/namespace",
    "/metadata/name",
    "/spec/path",
    "/spec/postBuild/substitute/A",
    "/data/A",
    "/spec/template/spec/hostPID",
    "/kind",
)


def flux(name: str, path: str, **spec: Any) -> Map:
    """Return a Kustomization of Flux."""
    return {
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
        "kind": "Kustomization",
        "metadata": {"name": name, "namespace": "flux-system"},
        "spec": {
            "interval": "1m",
            "path": path,
            "sourceRef": {"kind": "GitRepository", "name": "flux-system"},
            **spec,
        },
    }


# What is compared


class Comparison(NamedTuple):
    """The objects that Flux applies and `check` does not judge, the number that it applies, and what `check` notes."""

    lost: Sequence[Object]
    applied: int
    is_noted: bool
    notes: Sequence[str]


def compared(oracle: Oracle, files: Mapping[str, str], folder: Path) -> Comparison:
    """Write a repository into the working folder, which is empty, and have both read it."""
    (folder / ".git").mkdir()
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    source = yaml.safe_load_all(files["clusters/prod/sync.yaml"])
    ignore = next(source)["spec"].get("ignore")
    asked = {"files": files, "kustomizations": [flux("flux-system", "./clusters/prod")], "maps": [], "ignore": ignore}
    answer = oracle.ask(asked)
    theirs = [each for objects in answer["objects"].values() for each in objects or ()]
    read = batches.read(["."], rendering=Options(cached=False))
    ours = Counter(text_of(item.value) for item in read.each(lambda item: item))
    lost = [each for each in theirs if each["kind"] in JUDGED and not ours[text_of(each)]]
    problems = [str(each) for each in read.problems]
    is_noted = bool(problems) or any(each.unfollowed for each in read.read)
    return Comparison(lost, len(theirs), is_noted, [*problems, *read.notes])


JUDGED = ("Pod", "Deployment")

UNSEEN = ("replicas", "selector")
"""Fields that no rule reads, and that a kustomization changes unseen if it is followed by its files."""


def text_of(value: Object) -> str:
    """What an object is to an API server, which takes an empty text for none in each field."""
    metadata = value.get("metadata") or {}
    own = {"name": metadata.get("name"), "namespace": metadata.get("namespace") or "default"}
    return json.dumps(
        [value.get("apiVersion"), value.get("kind"), own, _set(value.get("spec")), value.get("data")], sort_keys=True
    )


def _set(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _set(each) for key, each in value.items() if each not in (None, "") and key not in UNSEEN}
    if isinstance(value, list):
        return [_set(each) for each in value]
    # kustomize leaves the quotes of a number, and gives them to what a patch puts in its place.
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
