"""Small repositories of charts and kustomizations, in which files lie where only Helm or kustomize looks for them."""

import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import yaml

Map = dict[str, Any]

NAMES = (
    *("p.yaml",) * 6,
    *("p.yml", "p.json", "p.YAML", "p.tpl", "p.txt", "p", "sub/p.yaml", "sub/p", "tests/p.yaml", "sub/d/p.yml"),
    *(".p.yaml", "_p.yaml", "_p.tpl", "sub/.p.tpl", "sub/.p.yaml", "sub/_p.yaml", ".d/p.yaml", "_d/p.yaml", "sub/.d/p"),
    *(
        "NOTES.txt",
        "sub/NOTES.txt",
        "notes.txt",
        "-p.yaml",
        "--set=on=true",
        "a b.yaml",
        "p.yaml~",
        "#p.yaml",
        "ä.yaml",
    ),
    *("kustomization.yaml", "Chart.yaml", "values.yaml", "helmfile.yaml", "requirements.yaml", "p.gotmpl", "{p}.yaml"),
    *("templates/p.yaml", "crds/p.yaml", "charts/p.yaml", "charts/s/templates/p.yaml", "p.yaml/p.yaml", "$p.yaml"),
)
"""Names of files below `templates` and `crds`: Helm reads most of them."""

STYLES = ("escaped", "list", "second", "second", "comment", "crlf", "anchor", "mark", "twice", "end")
"""How the text of an object is written."""

ESCAPED = '"container\\u0073"'
"""A key that no search for its text finds."""

FOLDERS = ("sub", "sub", "sub", "sub", "_sub", ".sub", "a.b", "templates", "crds", "s ub")
"""Folders below `charts`: Helm passes over some."""

IGNORED = (
    *("sub", "templates/sub", "/templates/p.yaml", "*.txt", "crds/", "crds/*.yaml", "p.yaml", "files", "!p.yaml", "*"),
    *("charts/sub", "/shared", ".*", "templates/*.tpl", "values.yaml", "# p.yaml", "templates/s[a-z]b", "*.tgz"),
)
"""Patterns of a .helmignore."""

VALUES = (
    "",
    "on: true",
    '{"on": true}',
    "chart/A: true",
    "on: false",
    "sub: {on: true, enabled: true}",
    "tags: {t: true}",
    "on: null",
    "sub: {on: null}",
    "on: true\n---\non: false",
    "on: false\n---\non: true",
)
"""Texts of values. A file of a chart may have the name of one, and its contents."""

STORES = (
    *("{chart}/files/m", "{chart}/m", "shared/m", "lib/m", "{above}/m") * 3,
    *("shared/.m", ".store/m", "{above}/.m"),
)
"""Places to which a file or a folder moves that a link stands for."""


CONDITIONS = (
    *(".Values.on",) * 3,
    *('index .Values "chart/A"', "(.Values.global | default dict).on", "(.Values.sub | default dict).on", "true"),
    *('eq .Release.Name "r"', 'eq .Release.Namespace "vision"', ".Release.IsInstall", ".Release.IsUpgrade"),
    *('.Capabilities.APIVersions.Has "example.com/v1"', ".Chart.IsRoot", 'eq .Chart.Name "other"', "not .Values.on"),
    *('hasPrefix "r/" .Template.Name', ".Subcharts", '.Files.Get "values.yaml"', '.Files.Get "files/p.txt"'),
)
"""Conditions of templates."""


class Asked(NamedTuple):
    """What is deployed: a chart with texts of values, a kustomization, or the files of a folder.

    `roots` are names of what says so. Argo CD writes the fields `over` into a kustomization. Flux applies what its
    `objects` say. If it `deploys`, it makes HelmReleases and Applications, which install charts. A chart that
    is `packed` is installed by Flux. `why` names what is hard to follow about it.
    """

    program: str
    place: str
    roots: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    crds: bool = True
    release: str = "r"
    namespace: str = "vision"
    arguments: tuple[str, ...] = ()
    over: Mapping[str, Any] | None = None
    objects: tuple[Map, ...] = ()
    deploys: bool = False
    packed: bool = False
    why: str = ""


class Repository(NamedTuple):
    """The files and links of a repository, the paths that are checked, and what is deployed.

    Helm fetches the dependencies of the charts in `unbuilt` first, the innermost first.
    """

    files: Mapping[str, bytes]
    links: Mapping[str, str]
    paths: Sequence[str]
    asked: Sequence[Asked]
    unbuilt: Sequence[str]

    def write(self, folder: Path) -> None:
        """Write the files into a new folder."""
        (folder / ".git").mkdir(parents=True)
        (folder / ".git" / "config").write_text('[remote "origin"]\n\turl = https://git.example/fleet\n', "utf-8")
        for name, data in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        for name, target in self.links.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(target)


def container(*, refused: bool) -> Map:
    """Return a container that the sample policy refuses, or a harmless one."""
    if not refused:
        return {"name": "a", "image": "i", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}
    return {
        "name": "a",
        "image": "i",
        "securityContext": {"privileged": True},
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
    }


class Repositories:
    """Makes repositories. Each pod has a name of its own, which it keeps in all of its copies."""

    def __init__(self, random: Random) -> None:
        self._random, self._number = random, 0

    def one(self) -> Repository:
        """Make a repository."""
        random = self._random
        self._files, self._links = dict[str, bytes](), dict[str, str]()
        self._asked, self._unbuilt = list[Asked](), list[str]()
        kinds = (self._bare, *(self._kustomized,) * 3, self._plain, self._helmfile, self._flux, self._argo, self._twins)
        for kind in random.sample(kinds, k=random.choice((1, 1, 2))):
            kind()
        tops = sorted({name.partition("/")[0] for name in self._files} - {"lib", ".lib"})
        paths = tops if self._chance(0.25) else ["."]
        self._roots = [each.place for each in self._asked]
        for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
            self._move()
        return Repository(self._files, self._links, paths, self._asked, self._unbuilt)

    def _chance(self, of: float) -> bool:
        return self._random.random() < of

    def _write(self, name: str, value: object) -> None:
        name = os.path.normpath(name)
        if name not in self._files and not any(each.startswith(f"{name}/") for each in self._files):
            text = value if isinstance(value, str) else json.dumps(value, indent=self._random.choice((None, 1)))
            if not any(str(above) in self._files for above in Path(name).parents):
                self._files[name] = text.encode()

    def _named(self) -> str:
        self._number += 1
        return f"pod-{self._number}x"

    # Roots

    def _bare(self) -> None:
        place = self._chart("." if self._chance(0.08) else f"apps/{self._random.choice(('web', 'tool'))}")
        self._asked.append(Asked("helm", place))

    def _release(self) -> tuple[str, list[str]]:
        """Make a chart, and texts of values for it."""
        place = self._chart(self._random.choice(("apps", "lib")) + "/" + self._random.choice(("run", "job")))
        return place, self._random.choices(VALUES, k=self._random.choice((0, 1, 1, 2)))

    def _helmfile(self) -> None:
        place, texts = self._release()
        root, values = "releases/helmfile.yaml", list[Any]()
        for number, text in enumerate(texts):
            if self._chance(0.6):
                values.append(f"values-{number}.yaml")
                self._files[f"releases/values-{number}.yaml"] = text.encode()
            else:
                values.append(_loaded(text))
        chart = self._spelled(place, "releases")
        one = {
            "name": "r",
            "namespace": "vision",
            "chart": chart if chart[0] == "." else f"./{chart}",
            "values": values,
        }
        self._write(root, {"releases": [one]})
        self._asked.append(Asked("helm", place, (root, f"release r of {root}"), tuple(texts)))

    def _flux(self) -> None:
        place, texts = self._release()
        source = {"kind": "GitRepository", "name": "flux-system", "namespace": "flux-system"}
        text = self._random.choice(texts) if texts else ""
        path = self._random.choice(("", "./")) + self._spelled(place, ".")
        spec: Map = {"interval": "1m", "chart": {"spec": {"chart": path, "sourceRef": source}}, "values": _loaded(text)}
        git = {
            "apiVersion": "source.toolkit.fluxcd.io/v1",
            "kind": "GitRepository",
            "metadata": {"name": "flux-system", "namespace": "flux-system"},
            "spec": {"interval": "1m", "url": "https://git.example/fleet"},
        }
        release = {
            "apiVersion": "helm.toolkit.fluxcd.io/v2",
            "kind": "HelmRelease",
            "metadata": {"name": "r", "namespace": "vision"},
            "spec": spec,
        }
        self._write("fleet/release.yaml", "\n---\n".join(map(json.dumps, (git, release))))
        self._asked.append(Asked("helm", place, ("fleet/release.yaml", "HelmRelease vision/r"), (text,)))

    def _argo(self) -> None:
        place, texts = self._release()
        text = self._random.choice(texts) if texts else ""
        helm: Map = {"releaseName": "r"}
        if self._chance(0.5):
            helm["valuesObject"] = _loaded(text)
        else:
            self._files[f"{place}/more.yaml"] = text.encode()
            helm["valueFiles"] = [self._random.choice(("more.yaml", "./more.yaml"))]
        value = {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Application",
            "metadata": {"name": "r", "namespace": "argocd"},
            "spec": {
                "destination": {"namespace": "vision"},
                "source": {"repoURL": "https://git.example/fleet", "path": self._spelled(place, "."), "helm": helm},
            },
        }
        self._write("fleet/application.yaml", value)
        self._asked.append(Asked("helm", place, ("fleet/application.yaml", "Application argocd/r"), (text,)))

    def _twins(self) -> None:
        """Make two charts that are the same but for a file, and releases of the same name."""
        made, text = self._named(), self._random.choice(("chart/A: true", "chart/A: true", "on: true"))
        extra = self._random.choice((*(text.removeprefix("chart/"),) * 3, "values.yaml"))
        block, key = self._json(made, refused=True).replace('"containers"', ESCAPED), text.partition(":")[0]
        for folder in ("twins/one/c", "twins/two/charts/c"):
            self._write(f"{folder}/Chart.yaml", {"apiVersion": "v2", "name": "c", "version": "0.1.0"})
            self._write(f"{folder}/values.yaml", "")
            self._write(f"{folder}/templates/p.yaml", _if(f'index .Values "{key}"', block))
        self._files[f"twins/two/charts/c/{extra}"] = self._random.choice((b"", b"", b"", text.encode()))
        texts = self._random.choice((("", text), ("", text), (text,), (text, "")))
        for number, each in enumerate(texts):
            self._files[f"twins/one/values-{number}.yaml"] = each.encode()
        names = [f"values-{number}.yaml" for number in range(len(texts))]
        self._write("twins/one/helmfile.yaml", {"releases": [{"name": "r", "chart": "./c", "values": names}]})
        self._write("twins/two/kustomization.yaml", {"helmCharts": [{"name": "c", "releaseName": "r"}]})
        self._asked.append(Asked("helm", "twins/one/c", ("twins/one/helmfile.yaml",), texts))
        self._asked.append(Asked("kubectl", "twins/two"))

    # Kustomizations

    def _plain(self) -> None:
        """Make a kustomization of files."""
        random, folder = self._random, random_folder(self._random)
        resources, made = list[str](), self._named()
        for name in random.sample([*{*NAMES} - {"kustomization.yaml"}], k=2):
            below = random.choice((*("",) * 8, "../base/", ".base/"))
            self._write(os.path.normpath(f"{folder}/{below}{name}"), self._block(self._named()))
            resources.append(random.choice(("", "", "./", f"../{Path(folder).name}/")) + below + name)
        if self._chance(0.3):
            self._write(f"{folder}/inner/kustomization.yaml", {"resources": ["p"], "namePrefix": "inner-"})
            self._write(f"{folder}/inner/p", self._block(self._named()))
            resources.append(random.choice(("inner", "./inner", "inner/", "inner/.", "../k/../deploy/inner")))
        self._write(f"{folder}/safe.yaml", self._block(made, refused=False))
        self._kustomization(folder, {"resources": [*resources, "safe.yaml"]}, [made])

    def _kustomized(self) -> None:
        """Make a kustomization that includes a chart, and changes what the chart makes."""
        random, folder = self._random, random_folder(self._random) + "c" * self._chance(0.5)
        name = random.choice(("web", "tool"))
        home = random.choice(("charts", "charts", "../../lib", "../../apps", "charts/more"))
        safe = self._named()
        place = self._chart(os.path.normpath(f"{folder}/{home}/{name}"), safe=safe)
        entry: Map = {"name": name, "releaseName": "r"}
        value: Map = {"helmCharts": [entry]}
        if home != "charts" or self._chance(0.1):
            value["helmGlobals"] = {"chartHome": random.choice((home, f"./{home}", f"{home}/"))}
        fields: dict[str, Callable[[], Any]] = {
            "includeCRDs": lambda: True,
            "valuesInline": lambda: _loaded(random.choice(VALUES)),
            "valuesFile": lambda: self._values_file(folder),
            "additionalValuesFiles": lambda: [self._values_file(folder)],
            "valuesMerge": lambda: random.choice(("merge", "override", "replace")),
            "namespace": lambda: "vision",
            "skipTests": lambda: True,
            "skipHooks": lambda: True,
            "apiVersions": lambda: ["example.com/v1"],
            "version": lambda: "0.1.0",
        }
        for key in random.sample([*fields], k=random.choice((0, 1, 2, 3))):
            entry[key] = fields[key]()
        if self._chance(0.5):
            entry["includeCRDs"] = True
        if self._chance(0.1):
            own = [each for each in self._files if each.startswith(f"{place}/") and "/values" not in each]
            value["resources"] = [os.path.relpath(random.choice(own), folder)]
        if self._chance(0.08):
            generator = {
                "apiVersion": "builtin",
                "kind": "HelmChartInflationGenerator",
                "metadata": {"name": "g"},
                **entry,
                "chartHome": home,
            }
            self._write(f"{folder}/generator.yaml", generator)
            value = {"generators": ["generator.yaml"]}
        if self._chance(0.25):
            self._write(f"{folder}/kustomization.yaml", value)
            above, moved = f"{Path(folder).parent}/over", {"namespace": "vision"} if self._chance(0.5) else {}
            return self._kustomization(above, {**moved, "resources": [f"../{Path(folder).name}"]}, [safe])
        return self._kustomization(folder, value, [safe], place)

    def _values_file(self, folder: str) -> str:
        self._files[f"{folder}/own.yaml"] = self._random.choice(VALUES).encode()
        return self._random.choice(("own.yaml", "./own.yaml", f"../{Path(folder).name}/own.yaml"))

    def _kustomization(self, folder: str, value: Map, safe: Sequence[str], place: str = "") -> None:
        random = self._random
        for each in safe:
            spec = {"containers": [container(refused=True)]}
            whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": each, "namespace": "vision"}, "spec": spec}
            operations = [{"op": "add", "path": "/spec", "value": spec}]
            target = random.choice(({"name": each}, {"kind": "Pod", "name": each}, {"kind": "Pod"}))
            if self._chance(0.5):
                value["patches"] = [{"target": target, "patch": json.dumps(operations)}]
            elif self._chance(0.5):
                value["patches"] = [{"target": target, "path": "patch.yaml"}]
                self._write(f"{folder}/patch.yaml", operations)
            elif self._chance(0.5):
                value["patchesStrategicMerge"] = [json.dumps(whole)]
        if self._chance(0.2):
            value["namePrefix"] = "pre-"
        if self._chance(0.1):
            value["components"] = ["../component"]
            own = {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component", "resources": ["c.yaml"]}
            self._write(f"{Path(folder).parent}/component/kustomization.yaml", own)
            self._write(f"{Path(folder).parent}/component/c.yaml", self._block(self._named()))
        name = random.choice(("kustomization.yaml", "kustomization.yaml", "kustomization.yml", "Kustomization"))
        self._write(f"{folder}/{name}", value)
        self._asked.append(Asked("kubectl", folder, (f"{folder}/{name}", *([place] if place else ()))))

    # Charts

    def _chart(self, folder: str, depth: int = 0, safe: str = "", *, built: bool = True) -> str:
        """Make a chart, and return its folder."""
        random = self._random
        if f"{folder}/Chart.yaml" in self._files:
            return self._chart(f"{folder}2", depth, safe, built=built)
        metadata: Map = {"apiVersion": random.choice(("v1", "v2", "v2")), "name": Path(folder).name}
        metadata["version"] = "0.1.0"
        if self._chance(0.08):
            metadata["name"] = "named"
        if self._chance(0.3 if depth else 0.02):
            metadata["type"] = "library"
        for _ in range(random.choice((1, 2, 3, 4))):
            self._object(folder, self._named(), refused=True)
        if safe:
            self._object(folder, safe, refused=False)
        values: Map = {"on": self._chance(0.6), "exports": {"data": {"on": True}}}
        if self._chance(0.2):
            values["global"] = {"on": self._chance(0.7)}
        if self._chance(0.1):
            values[random.choice(("on", "sub", "global"))] = random.choice((None, {"on": None}))
        for _ in range(random.choice((0, 0, 1, 1, 2)) if depth < 2 else 0):
            self._dependency(folder, metadata, values, depth)
        if self._chance(0.1):
            self._write(f"{folder}/.helmignore", "\n".join(random.sample(IGNORED, k=random.choice((1, 2)))) + "\n")
        needs = metadata.get("dependencies")
        if needs and self._chance(0.3):
            self._write(f"{folder}/requirements.yaml", {"dependencies": metadata.pop("dependencies")})
            metadata["apiVersion"] = "v1"
        more = "\n---\n{}\n" if self._chance(0.05) else ""
        self._write(f"{folder}/Chart.yaml", json.dumps(metadata) + more)
        if more:
            more = random.choice((more, '\n---\n{"on": true}\n', '\n---\n{"on": false}\n'))
        self._write(f"{folder}/values.yaml", json.dumps(values) + more)
        if built and any(str(each.get("repository", "")).startswith("file:") for each in needs or ()):
            self._unbuilt.append(folder)
        return folder

    def _dependency(self, folder: str, metadata: Map, values: Map, depth: int) -> None:
        random = self._random
        where, loaded = random.choice(("vendored", "vendored", "packed", "file", "file", "both")), True
        name = random.choice([each for each in FOLDERS if where == "vendored" or each[0] not in "_."])
        one: Map = {"name": name, "version": "0.1.0"}
        if where in ("file", "both"):
            inner = self._chart(random.choice((*("lib",) * 4, f"{folder}/local", ".lib")) + f"/{name}", depth + 1)
            one["name"] = _name_of(self._files, inner, name)
            one["repository"] = "file://" + self._spelled(inner, folder)
        if where in ("vendored", "both"):
            self._chart(f"{folder}/charts/{name}", depth + 1, built=False)
            loaded = name[0] not in "_."
        if where == "packed":
            before = dict(self._files)
            self._files = {}
            inner = self._chart("packed/" + name, 2)
            packed, self._files = self._files, before
            archive = random.choice((f"{name}-0.1.0.tgz", f"{name}.tgz", "x.tgz", ".x.tgz", "_x.tgz"))
            self._files[f"{folder}/charts/{archive}"] = _archive(packed)
            loaded = archive[0] not in "_."
        if where != "packed" and self._chance(0.15):
            made = self._named()
            shared = inner if where == "file" else f"{folder}/charts/{name}"
            self._write(f"{shared}/templates/_shared.tpl", _define(made, self._block(made)))
            self._write(f"{folder}/templates/shared.yaml", f'{{{{ include "{made}" . }}}}')
        if self._chance(0.1):
            one["import-values"] = ["data"]
        if self._chance(0.25):
            one["alias"] = "other"
        if self._chance(0.25):
            one["condition"] = random.choice(("sub.enabled", "other.enabled", "on"))
            values[random.choice(("sub", "other"))] = {"enabled": self._chance(0.5), "on": self._chance(0.5)}
        if self._chance(0.1):
            one["tags"] = ["t"]
            values["tags"] = {"t": self._chance(0.5)}
        if where in ("file", "both") or (loaded and self._chance(0.6)):
            metadata.setdefault("dependencies", []).append(one)

    def _object(self, folder: str, made: str, *, refused: bool) -> None:
        """Write a pod somewhere into a chart."""
        random = self._random
        name = random.choice(NAMES)
        text = self._block(made, refused=refused)
        if self._chance(0.35):
            return self._write(f"{folder}/crds/{name}", text)
        style = random.choice((*("plain",) * 3, "if", "with", "include", "files", "glob", "tpl", "hook", "later"))
        if style == "if":
            text = _if(random.choice(CONDITIONS), text)
        if style == "with":
            text = text.replace(made, f'{{{{ print "{made}" }}}}')
        if style == "hook":
            value = json.loads(self._json(made, refused=refused))
            value["metadata"]["annotations"] = {"helm.sh/hook": random.choice(("pre-install", "test", "crd-install"))}
            text = json.dumps(value)
        if style == "later":
            text = _range("until 1", text)
        if style == "include":
            named = random.choice(("_named.tpl", "_named.yaml", "named.txt", "NOTES.txt", "sub/_named", ".named.tpl"))
            self._write(f"{folder}/templates/{named}", _define(made, text))
            text = f'{{{{ include "{made}" . }}}}'
        if style in ("files", "glob"):
            named = random.choice(("files/p.txt", "p.yaml", "files/.p", ".p/p.txt", "crds/p.txt"))
            self._write(f"{folder}/{named}", text)
            text = f'{{{{ .Files.Get "{named}" }}}}'
            if style == "glob":
                text = _range(f'.Files.Glob "{named[:-1]}*"', "{{ toString $each }}")
            text = f"{{{{/* {made} */}}}}{text}"
        if style == "tpl":
            self._write(f"{folder}/values.yaml", {"on": True, "text": text})
            text = f"{{{{/* {made} */}}}}{{{{ tpl .Values.text . }}}}"
        return self._write(f"{folder}/templates/{name}", text)

    def _json(self, made: str, *, refused: bool) -> str:
        spec: Map = {"containers": [container(refused=refused)]}
        metadata = {"name": made, "namespace": "vision"}
        if self._chance(0.1):
            metadata.pop("namespace")
        if refused and self._chance(0.15):
            labels = {"app": made}
            template = {"metadata": {"labels": labels}, "spec": spec}
            spec = {"selector": {"matchLabels": labels}, "template": template}
            return json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
        return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def _block(self, made: str, *, refused: bool = True) -> str:
        """Return the text of a pod, in one of several styles."""
        text = self._json(made, refused=refused)
        style = self._random.choice((*("json",) * 6, *("escaped",) * 3, *STYLES))
        if style == "escaped":
            return text.replace('"containers"', ESCAPED)
        if style == "list":
            return json.dumps({"apiVersion": "v1", "kind": "List", "items": [json.loads(text)]})
        if style == "second":
            first = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"map-{made}"}})
            return first + self._random.choice(("\n---\n", "\n--- \n", "\n---\n---\n", "\n--- # x\n", "\n--- ")) + text
        if style == "comment":
            return f"# Source: run/templates/other.yaml\n{text}\n"
        if style == "crlf":
            return f"---\r\n{text}\r\n"
        if style == "mark":
            return f"\ufeff{text}"
        if style == "twice":
            return text.replace('"apiVersion"', '"kind": "ConfigMap", "apiVersion"', 1)
        if style == "end":
            return f"---\n{text}\n...\n"
        if style == "anchor":
            return text.replace('"all"', "&a all")
        return text

    # Paths

    def _spelled(self, place: str, start: str) -> str:
        """Write a path from a folder in one of several ways."""
        path = os.path.relpath(place, start)
        last = Path(place).name
        ways = (path, path, path, f"{path}/", f"{path}/.", f"{path}/../{last}", path.replace("/", "//"))
        return self._random.choice(ways)

    def _move(self) -> None:
        """Move a file or a folder elsewhere, and leave a link."""
        random = self._random
        steps = random.choice(sorted(self._files)).split("/")
        path = "/".join(steps[: random.randint(1, len(steps))])
        below = [name for name in self._files if f"{name}/".startswith(f"{path}/")]
        if any(f"{name}/".startswith(f"{path}/") for name in self._links):
            return
        above = str(Path(path).parent)
        charts = [str(Path(name).parent) for name in self._files if name.endswith("/Chart.yaml")]
        store = random.choice(STORES).format(chart=random.choice(charts or ["apps"]), above=above)
        if "/." in f"/{store}" and any(f"{each}/".startswith(f"{path}/") for each in self._roots):
            return  # nobody says that a hidden folder is deployed
        target = os.path.normpath(store + f"{len(self._links)}" + random.choice(("", "", ".yaml", ".txt", ".tpl")))
        if f"{target}/".startswith(f"{path}/") or any(str(each) in self._links for each in Path(target).parents):
            return
        for name in below:
            self._files[target + name.removeprefix(path)] = self._files.pop(name)
        self._roots = [
            target + each.removeprefix(path) if f"{each}/".startswith(f"{path}/") else each for each in self._roots
        ]
        link = os.path.relpath(target, above)
        if self._chance(0.2):
            link = f"../{Path(above).name}/{link}" if above != "." else f"./{link}"
        self._links[path] = link


def _if(condition: str, text: str) -> str:
    return f"{{{{ if {condition} }}}}\n{text}\n{{{{ end }}}}\n"


def _define(name: str, text: str) -> str:
    return f'{{{{ define "{name}" }}}}\n{text}\n{{{{ end }}}}\n'


def _range(values: str, text: str) -> str:
    return f"{{{{ range $key, $each := {values} }}}}\n---\n{text}\n{{{{ end }}}}\n"


def random_folder(random: Random) -> str:
    """Return a folder for a kustomization."""
    return random.choice(("deploy/k", "deploy/k", "deploy/k e", "deploy/a/b/k"))


def _loaded(text: str) -> Map:
    """Return the values in the first document of a text of VALUES."""
    return next(iter(yaml.safe_load_all(text)), None) or {}


def _name_of(files: Mapping[str, bytes], folder: str, name: str) -> str:
    text = files.get(f"{folder}/Chart.yaml")
    return str(json.loads(text.partition(b"\n---")[0])["name"]) if text else name


def _archive(files: Mapping[str, bytes]) -> bytes:
    """Pack a chart as Helm does."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(name.partition("/")[2])
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return gzip.compress(packed.getvalue(), mtime=0)
