"""Small repositories that several programs deploy, each in its own way: Flux, Argo CD, Helmfile and kubectl."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.oracles.charts import ESCAPED, Asked, Repositories, Repository, container
from tests.oracles.repositories import flux

Map = dict[str, Any]

URL = "https://git.example/fleet"
SPACES = ("vision", "vision", "vision", "team", "team", "kube-system", "default")
RELEASES = ("r", "r", "web")
_BELOW = '(index .Subcharts "sub" | default dict).Subcharts | default dict'

DECIDING = (
    *('eq .Release.Namespace "{space}"',) * 4,
    *('eq .Release.Name "{name}"',) * 2,
    *('eq (toString .Values.{key}) "{text}"',) * 5,
    *('eq (toString (.Values.global | default dict).{key}) "{text}"', 'hasKey .Subcharts "sub"', ".Chart.IsRoot"),
    *(
        'hasKey .Subcharts "deep"',
        f'hasKey ({_BELOW}) "deep"',
        f'hasKey ({_BELOW}) "sub"',
        f'hasKey ({_BELOW}) "_deep"',
    ),
    *('hasKey .Subcharts "other"', ".Values.sub", ".Values.tags", 'eq .Chart.Name "sub"', "true", "true"),
    *('and (eq .Release.Namespace "{space}") (eq (toString .Values.{key}) "{text}")', "not .Values.{key}"),
)
"""Conditions of templates."""

KEYS, TEXTS = ("a", "a", "b"), ("x", "x", "y", "true")

PRIVILEGED = '"securityContext": {"privileged": true}, '
"""What a template leaves out of a pod that is refused by a value only."""


class Deployments(Repositories):
    """Makes repositories with several deployers. What is asked has the name of what makes it hard to follow."""

    def one(self) -> Repository:
        """Make a repository."""
        random = self._random
        self._files, self._links = dict[str, bytes](), dict[str, str]()
        self._asked, self._unbuilt = list[Asked](), list[str]()
        self._applied, self._fluxed = list[Map](), list[str]()
        kinds = (*(self._overlaid, self._shared, self._nested, self._folder) * 2, self._made)
        for number, kind in enumerate(random.sample(kinds, k=random.choice((1, 1, 2)))):
            kind(f"{random.choice(('apps', 'infra'))}-{number}")
        if self._fluxed:
            self._applied.append(self._source())
        for number, each in enumerate(self._applied):
            self._write(f"fleet/{each['kind'].lower()}-{number}.yaml", each)
        for title in self._fluxed:
            files = tuple(f"fleet/{each['kind'].lower()}-{number}.yaml" for number, each in enumerate(self._applied))
            self._asked.append(Asked("flux", "", (title, *files), objects=tuple(self._applied), deploys=True))
        self._roots = [each.place for each in self._asked]
        by_git = any("/set.yaml" in name for name in self._files)  # Git lists nothing behind a link
        if self._chance(0.15) and not by_git:
            self._move()
        return Repository(self._files, self._links, ["."], self._asked, self._unbuilt)

    # Objects

    def _pod(self, *, refused: bool = True) -> tuple[str, str]:
        """Return a pod as text, with its name. Few notes speak of one whose key is escaped."""
        made = self._named()
        value = json.loads(self._json(made, refused=refused))
        value["metadata"].setdefault("namespace", "vision" if not refused else self._space())
        text = json.dumps(value)
        return made, text.replace('"containers"', ESCAPED) if self._chance(0.8) else text

    def _space(self) -> str:
        return self._random.choice(SPACES)

    def _source(self) -> Map:
        metadata = {"name": "flux-system", "namespace": "flux-system"}
        spec = {"interval": "1m", "url": URL}
        return {
            "apiVersion": "source.toolkit.fluxcd.io/v1",
            "kind": "GitRepository",
            "metadata": metadata,
            "spec": spec,
        }

    def _values(self) -> Map:
        random = self._random
        one = {random.choice(KEYS): random.choice(TEXTS)}
        return random.choice(
            (
                *(one,) * 6,
                *({}, {"sub": one}, {"other": one}, {"global": one}, {"tags": {"t": True}}, {"sub": {"enabled": True}}),
                *({"other": {"enabled": True}}, {"sub": {"enabled": False}}, {next(iter(one)): None}),
                {**one, random.choice(KEYS): random.choice(TEXTS)},
            )
        )

    # Charts

    def _template(self) -> str:
        """Return a template with pods, each of which has a condition of its own."""
        parts = list[str]()
        for _ in range(self._random.choice((1, 2, 2, 3))):
            condition = self._random.choice(DECIDING).format(
                space=self._random.choice(SPACES),
                name=self._random.choice(RELEASES),
                key=self._random.choice(KEYS),
                text=self._random.choice(TEXTS),
            )
            pod = self._pod()[1]
            if self._chance(0.7):
                seen = f"{{{{ if {condition} }}}}all{{{{ else }}}}void{{{{ end }}}}"
                parts.append(f"---\n{pod.replace(PRIVILEGED, '').replace('all', seen)}\n")
            else:
                parts.append(f"{{{{ if {condition} }}}}\n---\n{pod}\n{{{{ end }}}}\n")
        return "".join(parts)

    def _small(self, folder: str, safe: Sequence[str] = (), name: str = "", **more: Any) -> str:
        """Write a chart without dependencies of its own, and return its folder."""
        random = self._random
        metadata = {"apiVersion": "v2", "name": name or Path(folder).name, "version": "0.1.0", **more}
        self._write(f"{folder}/Chart.yaml", metadata)
        self._write(f"{folder}/values.yaml", random.choice(({}, {"a": "void"}, self._values())))
        named = random.choice(("p.yaml", "p.yaml", "sub/p.yaml", "p.txt", "NOTES.yaml"))
        self._write(f"{folder}/templates/{named}", self._template())
        for number, text in enumerate(safe):
            self._write(f"{folder}/templates/safe-{number}.yaml", text)
        if self._chance(0.1):
            self._write(f"{folder}/crds/c.yaml", self._pod()[1])
        if self._chance(0.15):
            ignored = random.choice(("templates/sub", "*.txt", "crds/", "values.yaml", "charts", "safe-*", "!*.txt"))
            self._write(f"{folder}/.helmignore", ignored + "\n")
        if self._chance(0.03):
            self._within(folder)
        return folder

    def _within(self, folder: str) -> None:
        """Write a template that kubectl reads as another object than Helm makes."""
        made = self._named()
        text = f"""apiVersion: v1
kind: Pod
metadata: {{name: {made}, namespace: vision}}
spec:
  containers:
  - name: c
    image: "x{{{{/*"
    securityContext: {{privileged: true}}
    env: [{{name: NVIDIA_VISIBLE_DEVICES, value: all}}]
    workingDir: "/*/}}}}"
"""
        self._write(f"{folder}/templates/within.yaml", text)
        self._asked.append(Asked("files", f"{folder}/templates", why="within texts"))

    def _nested(self, top: str) -> None:
        """Make a chart with dependencies."""
        random, folder = self._random, f"{top}/run"
        self._small(folder)
        wanted, values = list[Map](), dict[str, Any](self._values())
        why = ""
        for name in random.sample(("sub", "sub", "other", "more"), k=random.choice((1, 2, 2))):
            one: Map = {"name": name, "version": "0.1.0"}
            place = f"{folder}/charts/{name}"
            if (where := random.choice(("vendored", "vendored", "file", "twin", "packed"))) == "file":
                place = f"{top}/lib/{name}"
                one["repository"] = f"file://../lib/{name}"
                if folder not in self._unbuilt:
                    self._unbuilt.append(folder)
            if where == "twin":
                self._small(f"{folder}/charts/{name}-2", name=name)
                why = "names"
            self._small(place, type=random.choice(("application", "application", "application", "library")))
            if self._chance(0.4):
                inner = random.choice(("sub", "deep"))
                below: Map = {"name": inner, "version": "0.1.0"}
                if where == "file" and self._chance(0.6):
                    self._small(f"{top}/lib/{inner}-deep", name=inner)
                    below["repository"] = f"file://../{inner}-deep"
                    why = why or "packed"
                else:
                    named = random.choice((inner, inner, f"_{inner}"))
                    self._small(f"{place}/charts/{inner}", name=named)
                    below["name"] = named
                if self._chance(0.3):
                    below["condition"] = "sub.enabled"
                if self._chance(0.8):
                    self._redo(f"{place}/Chart.yaml", dependencies=[below])
            for key, value in (
                ("alias", random.choice(("other", "sub"))),
                ("condition", random.choice(("sub.enabled", "other.enabled", f"{name}.enabled", "a"))),
                ("tags", ["t"]),
                (
                    "import-values",
                    random.choice((["data"], [{"child": "a", "parent": "b"}, {"child": ".", "parent": "."}])),
                ),
            ):
                if self._chance(0.25):
                    one[key] = value
            if self._chance(0.25):
                values[name] = {"enabled": self._chance(0.5), **self._values()}
            if self._chance(0.15):
                values["tags"] = {"t": self._chance(0.5)}
            wanted += [one, {**one, "alias": "again"}] if self._chance(0.15) else [one]
            if one.keys() & {"condition", "tags"}:
                self._asked.append(Asked("helm", place, why="disabled", release="release-name", namespace="default"))
        if self._chance(0.85):
            self._redo(f"{folder}/Chart.yaml", dependencies=wanted)
        self._files[f"{folder}/values.yaml"] = json.dumps(values).encode()
        if self._chance(0.6):
            self._asked.append(Asked("helm", folder, why=why, release="release-name", namespace="default"))
        else:
            self._deployed(folder, top, why)

    def _redo(self, name: str, **fields: Any) -> None:
        self._files[name] = json.dumps({**json.loads(self._files[name]), **fields}).encode()

    # Releases of a chart

    def _shared(self, top: str) -> None:
        """Make a chart that some programs install."""
        folder = self._small(f"{top}/run")
        self._deployed(folder, top)

    def _deployed(self, folder: str, top: str, why: str = "") -> None:
        random = self._random
        ways = (self._by_release, self._by_release, self._by_argo, self._by_argo, self._by_set, self._by_helmfile)
        more = (*ways, self._by_kustomization)
        for number, way in enumerate(random.sample(more, k=random.choice((1, 1, 2, 3)))):
            way(folder, f"{top}/by-{number}", why)

    def _by_kustomization(self, folder: str, own: str, why: str) -> None:
        entry = {
            "name": Path(folder).name,
            "releaseName": self._random.choice(RELEASES),
            "valuesInline": self._values(),
        }
        value: Map = {"helmCharts": [entry], "helmGlobals": {"chartHome": os.path.relpath(Path(folder).parent, own)}}
        if self._chance(0.5):
            entry["namespace"] = self._space()
        if self._chance(0.3):
            value["namespace"] = self._space()
        self._write(f"{own}/kustomization.yaml", value)
        why = why or ("namespaces" if "namespace" in value else "")
        self._asked.append(Asked("kubectl", own, (f"{own}/kustomization.yaml", folder), why=why))

    def _by_release(self, folder: str, own: str, why: str) -> None:
        """Install a chart by a HelmRelease, with values of ConfigMaps that files, kustomizations and charts make."""
        random, name, space = self._random, self._random.choice(RELEASES), self._space()
        reference = {"kind": "GitRepository", "name": "flux-system", "namespace": "flux-system"}
        spec: Map = {"interval": "1m", "chart": {"spec": {"chart": f"./{folder}", "sourceRef": reference}}}
        values, maps, names = self._values(), list[tuple[str, Map]](), f"values-{self._named()[4:]}"
        if self._chance(0.6):
            spec["values"] = values
        if self._chance(0.3):
            spec["releaseName"] = random.choice(RELEASES)
        if self._chance(0.3):
            spec["targetNamespace"] = self._space()
        if self._chance(0.7):
            key = random.choice(("values.yaml", "values.yaml", "v"))
            spec["valuesFrom"] = [{"kind": "ConfigMap", "name": names, "valuesKey": key}]
            for way in random.sample(("file", "generator", "chart"), k=random.choice((1, 2))):
                given = self._values()
                maps.append((way, given))
                self._map(f"{own}/{way}", way, names, space, key, given)
        metadata = {"name": name, "namespace": space}
        value = {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": metadata, "spec": spec}
        source = self._source()
        self._write(f"{own}/source.yaml", source)
        self._write(f"{own}/release.yaml", value)
        target = spec.get("targetNamespace", "")
        title = f"HelmRelease {space}/{name}"
        for way, given in maps or [("", {})]:
            texts = tuple(json.dumps(each) for each in (given, spec.get("values")) if each)
            self._asked.append(
                Asked(
                    "helm",
                    folder,
                    (f"{own}/release.yaml", title, *([f"{own}/{way}"] if way else ())),
                    texts,
                    release=spec.get("releaseName") or "-".join(filter(None, (target, name))),
                    namespace=target or space,
                    packed=True,
                    why=why or ("made maps" if way == "chart" else ""),
                )
            )

    def _made(self, top: str) -> None:
        """Make HelmReleases and Applications that kustomizations and Flux change before they install a chart."""
        random, base, chart = self._random, f"{top}/base", self._small(f"{top}/run")
        names = list[str]()
        for number in range(random.choice((1, 1, 2))):
            names.append(f"made-{number}.yaml")
            self._write(f"{base}/{names[-1]}", random.choice((self._release_of, self._application_of))(chart, number))
        value: Map = {"resources": names}
        self._redirect(value)
        self._write(f"{base}/kustomization.yaml", value)
        folder = base
        if self._chance(0.5):
            folder = f"{top}/over"
            value = {"resources": ["../base"]}
            self._redirect(value)
            self._write(f"{folder}/kustomization.yaml", value)
        roots = (folder, f"{folder}/kustomization.yaml")
        if self._chance(0.4):
            spec: Map = {}
            self._redirect(spec)
            if space := spec.pop("namespace", ""):
                spec["targetNamespace"] = space
            if "patches" in spec and "path" in spec["patches"][0]:
                del spec["patches"]
            if self._chance(0.5):
                spec["postBuild"] = {"substitute": {"TEXT": random.choice(TEXTS)}}
            self._applied.append(flux(f"made-{top}", f"./{folder}", **spec))
            self._fluxed.append(f"Kustomization flux-system/made-{top}")
        else:
            self._asked.append(Asked("kubectl", folder, roots, deploys=True))

    def _given(self) -> Map:
        """Return values, some of which Flux fills in."""
        return {self._random.choice(KEYS): "${TEXT:=y}"} if self._chance(0.3) else self._values()

    def _release_of(self, chart: str, number: int) -> Map:
        reference = {"kind": "GitRepository", "name": "flux-system", "namespace": "flux-system"}
        spec: Map = {"interval": "1m", "chart": {"spec": {"chart": f"./{chart}", "sourceRef": reference}}}
        spec |= {"values": self._given(), "releaseName": self._random.choice(RELEASES)}
        metadata = {"name": f"made-{number}", "namespace": self._space()}
        return {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": metadata, "spec": spec}

    def _application_of(self, chart: str, number: int) -> Map:
        parameter = {"name": self._random.choice(KEYS), "value": self._random.choice(TEXTS)}
        helm = {"valuesObject": self._given(), "parameters": [parameter]}
        source = {"repoURL": URL, "path": chart, "helm": helm}
        spec = {"destination": {"namespace": self._space()}, "project": "default", "source": source}
        metadata = {"name": f"made-{number}", "namespace": "argocd"}
        return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": metadata, "spec": spec}

    def _redirect(self, value: Map) -> None:
        """Have a kustomization change what HelmReleases and Applications deploy."""
        random = self._random
        for_release = [
            ("/spec/values", self._values()),
            ("/spec/targetNamespace", self._space()),
            ("/spec/releaseName", random.choice(RELEASES)),
        ]
        for_application = [
            ("/spec/source/helm/valuesObject", self._values()),
            ("/spec/destination/namespace", self._space()),
            ("/spec/source/helm/releaseName", random.choice(RELEASES)),
            ("/spec/source/helm/parameters/0/value", random.choice(TEXTS)),
        ]
        if self._chance(0.6):
            kind, paths = random.choice((("HelmRelease", for_release), ("Application", for_application)))
            path, new = random.choice(paths)
            patch = json.dumps([{"op": "add", "path": path, "value": new}])
            value["patches"] = [{"target": {"kind": kind}, "patch": patch}]
        if self._chance(0.3):
            value["namespace"] = self._space()
        if self._chance(0.2):
            value["namePrefix"] = "pre-"

    def _map(self, folder: str, way: str, name: str, space: str, key: str, given: Map) -> None:
        """Make a ConfigMap in a new folder: in a file, by a generator of kustomize or by a chart."""
        metadata = {"name": name, "namespace": space}
        value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {key: json.dumps(given)}}
        if way == "file":
            self._write(f"{folder}/map.yaml", value)
        if way == "generator":
            one = {"name": name, "files": [f"{key}=v.txt"], "options": {"disableNameSuffixHash": True}}
            self._write(f"{folder}/kustomization.yaml", {"namespace": space, "configMapGenerator": [one]})
            self._write(f"{folder}/v.txt", json.dumps(given))
        if way == "chart":
            self._write(f"{folder}/Chart.yaml", {"apiVersion": "v2", "name": "conf", "version": "0.1.0"})
            text = json.dumps(value)
            self._write(f"{folder}/templates/m.yaml", text.replace(name, f'{{{{ print "{name}" }}}}'))

    def _by_argo(self, folder: str, own: str, why: str) -> None:
        random, space, name = self._random, self._space(), self._random.choice(RELEASES)
        helm, texts, arguments = self._argo_helm(folder, own)
        source: Map = {"repoURL": URL, "path": random.choice(("", "./")) + folder, "helm": helm}
        spec: Map = {"destination": {"namespace": space}, "project": "default"}
        if any(str(each).startswith("$") for each in helm.get("valueFiles", ())):
            spec["sources"] = random.sample([source, {"repoURL": URL, "ref": "values"}], k=2)
        else:
            spec["source"] = source
        metadata = {"name": name, "namespace": "argocd"}
        value = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": metadata, "spec": spec}
        self._write(f"{own}/application.yaml", value)
        roots = (f"{own}/application.yaml", f"Application argocd/{name}")
        release = helm.get("releaseName") or name
        self._asked.append(Asked("helm", folder, roots, texts, True, release, space, arguments, why=why))

    def _argo_helm(self, folder: str, own: str) -> tuple[Map, tuple[str, ...], tuple[str, ...]]:
        """Return options of Argo CD for a chart, and the values and the arguments that helm gets by them."""
        random = self._random
        helm, texts, arguments = dict[str, Any](), list[str](), list[str]()
        if self._chance(0.5):
            helm["releaseName"] = random.choice(RELEASES)
        if self._chance(0.6):
            text = json.dumps(self._values())
            where = random.choice((f"{folder}/more.yaml", f"{own}/more.yaml"))
            self._files[where] = text.encode()
            paths = (os.path.relpath(where, folder), f"/{where}", f"$values/{where}")
            helm["valueFiles"] = [random.choice(paths)]
            texts.append(text)
        if self._chance(0.5):
            given = self._values()
            key, value = random.choice((("valuesObject", given), ("values", json.dumps(given))))
            helm[key] = value
            texts.append(json.dumps(given))
        if self._chance(0.4):
            key, text = random.choice(("a", "b", "sub.a", "global.a", "sub.enabled")), random.choice(TEXTS)
            one: Map = {"name": key, "value": text}
            if self._chance(0.3):
                one["forceString"] = True
            helm["parameters"] = [one]
            arguments.append(f"--set{'-string' if 'forceString' in one else ''}={key}={text}")
        return helm, tuple(texts), tuple(arguments)

    def _by_set(self, folder: str, own: str, why: str) -> None:
        """Install a chart by an ApplicationSet with generators of lists, or of folders or files."""
        random, way = self._random, self._random.choice(("list", "directories", "files"))
        elements = [
            {"space": random.choice(SPACES), "key": random.choice(KEYS), "text": random.choice(TEXTS), "n": str(number)}
            for number in range(random.choice((1, 2, 3)))
        ]
        go = self._chance(0.5)
        mark = "{{.%s}}" if go else "{{%s}}"
        path = folder
        if way == "list":
            generator: Map = {"list": {"elements": elements}}
        elif way == "files":
            for each in elements:
                self._write(f"{own}/sets/{each['n']}/config.json", each)
            pattern = random.choice((f"{own}/sets/*/config.json", f"{own}/sets/**/config.json"))
            generator = {"git": {"repoURL": URL, "files": [{"path": pattern}]}}
        else:
            parent = str(Path(folder).parent)
            generator = {"git": {"repoURL": URL, "directories": [{"path": f"{parent}/*"}]}}
            generator["git"]["directories"].append({"path": f"{parent}/by-*", "exclude": True})
            generator["git"]["directories"].append({"path": f"{parent}/lib", "exclude": True})
            elements = [{"space": Path(folder).name, "key": "a", "text": "x", "n": Path(folder).name}]
            path = mark % ("path.path" if go else "path")
        named = {
            key: mark % ("path.basename" if way == "directories" and key in ("space", "n") else key)
            for key in ("space", "key", "text", "n")
        }
        if way == "directories":
            named |= {"key": "a", "text": "x"}
        helm = {"releaseName": "r", "parameters": [{"name": named["key"], "value": named["text"]}]}
        spec = {
            "project": "default",
            "destination": {"namespace": named["space"]},
            "source": {"repoURL": URL, "path": path, "helm": helm},
        }
        template = {"metadata": {"name": f"set-{named['n']}"}, "spec": spec}
        whole = {"goTemplate": go, "generators": [generator], "template": template}
        metadata = {"name": "set", "namespace": "argocd"}
        value = {"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "metadata": metadata, "spec": whole}
        self._write(f"{own}/set.yaml", value)
        for each in elements:
            arguments = (f"--set={each['key']}={each['text']}",)
            roots = (f"{own}/set.yaml", f"Application argocd/set-{each['n']}", "ApplicationSet argocd/set")
            self._asked.append(Asked("helm", folder, roots, (), True, "r", each["space"], arguments, why=why))

    def _by_helmfile(self, folder: str, own: str, why: str) -> None:
        random, releases = self._random, list[Map]()
        root = f"{own}/helmfile.yaml"
        for number in range(random.choice((1, 1, 2))):
            given = self._values()
            one: Map = {"name": f"r{number}", "chart": f"{os.path.relpath(folder, own)}", "values": [given]}
            if self._chance(0.7):
                one["namespace"] = self._space()
            if self._chance(0.2):
                one["installed"] = False
            releases.append(one)
            roots = (root, f"release r{number} of {root}")
            text = (json.dumps(given),)
            if "installed" not in one:
                space = one.get("namespace", "default")
                self._asked.append(Asked("helm", folder, roots, text, True, one["name"], space, why=why))
        value: Map = {"releases": releases}
        if self._chance(0.2):
            value["environments"] = {"default": {"values": [{"a": "x"}]}, "prod": {"values": [{"a": "y"}]}}
        self._write(root, value)
        if all("installed" in one for one in releases):
            installing = [each for each in self._asked if each.place == folder and each.why != "disabled"]
            if not installing:
                self._asked.append(Asked("helm", folder, (root,), (), True, "release-name", "default", why="installed"))

    # Kustomizations

    def _overlaid(self, top: str) -> None:
        """Make a base and overlays over it, each of which changes an own pod of it."""
        random, base = self._random, f"{top}/base"
        number = random.choice((1, 1, 2))
        safe = [self._pod(refused=False) for _ in range(number + 1)]
        value: Map = {}
        texts = [text for _, text in safe]
        if has_chart := self._chance(0.6):
            home = random.choice(("charts", "charts", "../charts"))
            place = self._small(f"{base}/{home}/web", texts)
            place = os.path.normpath(place)
            entry: Map = {"name": "web", "releaseName": random.choice(RELEASES), "valuesInline": self._values()}
            if self._chance(0.3):
                entry["namespace"] = self._space()
            if self._chance(0.25):
                own = {"apiVersion": "builtin", "kind": "HelmChartInflationGenerator", "metadata": {"name": "g"}}
                self._write(f"{base}/generator.yaml", {**own, **entry, "chartHome": home})
                value["generators"] = ["generator.yaml"]
            else:
                value["helmCharts"] = [entry]
                if home != "charts" or self._chance(0.2):
                    value["helmGlobals"] = {"chartHome": home}
        else:
            place = base
            for count, text in enumerate(texts):
                self._write(f"{base}/safe-{count}.yaml", text)
            self._write(f"{base}/p.yaml", self._pod()[1])
            value["resources"] = [*(f"safe-{count}.yaml" for count in range(len(texts))), "p.yaml"]
        if self._chance(0.25):
            value["namespace"] = self._space()
        below, kind = base, "resources"
        if self._chance(0.2):
            kind = "components"
            value = {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component", **value}
        self._change(base, value, safe[-1][0])
        self._write(f"{base}/kustomization.yaml", value)
        roots = [base, f"{base}/kustomization.yaml", place, f"{base}/generator.yaml"]
        for count in range(number):
            folder = f"{top}/over-{count}"
            own = {kind: [os.path.relpath(below, folder)]}
            self._change(folder, own, safe[count][0])
            if self._chance(0.5):
                own["namespace"] = self._space()
            self._write(f"{folder}/kustomization.yaml", own)
            roots += [folder, f"{folder}/kustomization.yaml"]
            included = count < number - 1 and self._chance(0.5)
            if self._chance(0.3):
                self._over_argo(folder, top, safe[count][0], roots, has_chart=has_chart, included=included)
            elif not included:
                why = "namespaces" if has_chart and self._places_some(roots) else ""
                self._asked.append(Asked("kubectl", folder, tuple(roots), why=why))
            if included:
                below, kind = folder, "resources"

    def _over_argo(
        self, folder: str, top: str, safe: str, roots: list[str], *, has_chart: bool, included: bool = False
    ) -> None:
        """Deploy a kustomization by Argo CD, which changes it."""
        options, over = dict[str, Any](), dict[str, Any]()
        if self._chance(0.5):
            options["namespace"] = over["namespace"] = self._space()
        if self._chance(0.3):
            options["namePrefix"] = over["namePrefix"] = "argo-"
        if self._chance(0.4):
            options["patches"] = over["patches"] = [self._patch(safe)]
        if self._chance(0.3):
            options["images"] = ["i=other:2"]
            over["images"] = [{"name": "i", "newName": "other", "newTag": "2"}]
        if self._chance(0.2):
            self._component(f"{top}/argo-component", safe)
            options["components"] = over["components"] = [os.path.relpath(f"{top}/argo-component", folder)]
        space = self._space()
        source = {"repoURL": URL, "path": folder, "kustomize": options}
        spec = {"destination": {"namespace": space}, "project": "default", "source": source}
        metadata = {"name": f"app-{Path(folder).name}-{top}", "namespace": "argocd"}
        value = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": metadata, "spec": spec}
        self._write(f"{top}/argo/{Path(folder).name}.yaml", value)
        own = (*roots, f"{top}/argo/{Path(folder).name}.yaml", f"Application argocd/{metadata['name']}")
        why = "namespaces" if has_chart and ("namespace" in over or self._places_some(roots)) else ""
        self._asked.append(Asked("kubectl", folder, own, why=why, over=over))
        if over and not included:
            self._asked.append(Asked("kubectl", folder, own, why=why or "moved"))

    def _places_some(self, names: Sequence[str]) -> bool:
        """Whether some kustomizations set a namespace."""
        return any(b'"namespace"' in self._files[name] for name in names if name.endswith("kustomization.yaml"))

    def _patch(self, safe: str) -> Map:
        """Return a patch by which a pod is refused."""
        random, spec = self._random, {"containers": [container(refused=True)]}
        whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": safe, "namespace": "vision"}, "spec": spec}
        more: Map = {**container(refused=True), "name": "more"}
        path, value = random.choice((("/spec/containers/-", more), ("/spec/initContainers", [more])))
        operation = {"op": "add", "path": path, "value": value}
        added = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "any"}, "spec": {"containers": [more]}}
        replaced = {**whole, "spec": {"$patch": "replace", **spec}}
        swapped = {**whole, "spec": {"containers": [{"name": "a", "$patch": "delete"}, more]}}
        return random.choice(
            (
                {"target": {"kind": "Pod", "name": safe}, "patch": json.dumps([operation])},
                {"target": {"name": safe}, "patch": json.dumps(added)},
                *({"patch": json.dumps(each)} for each in (whole, replaced, swapped)),
            )
        )

    def _component(self, folder: str, safe: str) -> None:
        made = {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component"}
        self._write(f"{folder}/kustomization.yaml", {**made, "patches": [self._patch(safe)]})

    def _change(self, folder: str, value: Map, safe: str) -> None:
        """Have a kustomization change a pod so that it is refused, in one of several ways."""
        random = self._random
        way = random.choice(
            ("patch", "patch", "component", "transformer", "replacement", "delete", "none", "file", "made")
        )
        patch = self._patch(safe)
        if way == "patch":
            value["patches"] = [patch]
        if way == "file":
            self._write(f"{folder}/patch.yaml", patch.pop("patch"))
            value["patches"] = [{**patch, "path": "patch.yaml"}]
        if way == "component":
            self._component(f"{folder}-component", safe)
            value["components"] = [*value.get("components", ()), f"../{Path(folder).name}-component"]
        if way == "transformer":
            own = {"apiVersion": "builtin", "kind": "PatchTransformer", "metadata": {"name": "t"}, **patch}
            if self._chance(0.5):
                self._write(f"{folder}/transformer.yaml", own)
                value["transformers"] = ["transformer.yaml"]
            else:
                value["transformers"] = [json.dumps(own)]
        if way == "replacement":
            source = {"kind": "ConfigMap", "name": "from", "fieldPath": "data.v"}
            fields = {"fieldPaths": ["spec.containers.[name=a].env.[name=NVIDIA_VISIBLE_DEVICES].value"]}
            options = {"options": {"create": True}}
            target = {"select": {"kind": "Pod", "name": safe}, **fields, **options}
            one = {"source": source, "targets": [target]}
            value["configMapGenerator"] = [{"name": "from", "literals": ["v=all"]}]
            if self._chance(0.5):
                value["replacements"] = [one]
            else:
                self._write(f"{folder}/replacement.yaml", one)
                value["replacements"] = [{"path": "replacement.yaml"}]
        if way == "delete":
            gone = {
                "$patch": "delete",
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": safe, "namespace": "vision"},
            }
            value["patches"] = [{"patch": json.dumps(gone)}]
        if way == "made":
            self._write(f"{folder}/more.yaml", self._pod()[1])
            value["resources"] = [*value.get("resources", ()), "more.yaml"]
        if self._chance(0.15):
            value["images"] = [{"name": "i", "newName": "other", "newTag": "2"}]
        if self._chance(0.15):
            value["secretGenerator"] = [{"name": f"secret-{self._named()}", "literals": ["a=x"]}]

    # Folders

    def _folder(self, top: str) -> None:
        """Make a folder of files that some programs apply, each with changes of its own."""
        random, folder = self._random, f"{top}/k"
        safe = [self._pod(refused=False) for _ in range(2)]
        names = [f"safe-{count}.yaml" for count in range(2)]
        for name, (_, text) in zip(names, safe, strict=True):
            self._write(f"{folder}/{name}", text)
        for count in range(random.choice((1, 2))):
            name = random.choice((f"p{count}.yaml", f"p{count}.json", f"p{count}.yml"))
            self._write(f"{folder}/{name}", self._pod()[1])
            names.append(name)
        variables = self._chance(0.3)
        if variables:
            made = self._named()
            text = self._json(made, refused=True).replace("true", '"${ON:=true}"').replace("all", "${SEEN:=all}")
            self._write(f"{folder}/variables.yaml", text)
            names.append("variables.yaml")
        built = self._chance(0.5)
        if built:
            value: Map = {"resources": random.sample(names, k=len(names))}
            self._write(f"{folder}/kustomization.yaml", value)
        changed = False
        for count, (pod, _) in enumerate(safe[: random.choice((1, 2))]):
            if built and self._chance(0.5):
                self._over_argo(folder, top, pod, [folder], has_chart=False)
                break
            changed = changed or self._over_flux(folder, top, pod, count, variables=variables)
        roots = (folder, f"{folder}/kustomization.yaml")
        if built:
            self._asked.append(Asked("kubectl", folder, roots, why="moved"))
        else:
            self._asked.append(Asked("files", folder, (folder,), why="moved" if changed else ""))

    def _over_flux(self, folder: str, top: str, safe: str, count: int, *, variables: bool) -> bool:
        """Deploy a folder by Flux, which changes it."""
        random = self._random
        spec: Map = {}
        if self._chance(0.5):
            spec["targetNamespace"] = self._space()
        if self._chance(0.5):
            spec["patches"] = [self._patch(safe)]
        if self._chance(0.3):
            spec["images"] = [{"name": "i", "newName": "other", "newTag": "2"}]
        if self._chance(0.2):
            self._component(f"{top}/flux-component", safe)
            spec["components"] = ["../flux-component"]
        if self._chance(0.2):
            spec["commonMetadata"] = {"labels": {"team": "a"}}
        if self._chance(0.2):
            spec["namePrefix"] = "flux-"
        if variables and self._chance(0.8):
            given = {"ON": random.choice(("true", "false")), "SEEN": random.choice(("all", "void"))}
            spec["postBuild"] = {"substitute": given}
            if self._chance(0.4):
                name = f"vars-{count}-{top}"
                metadata = {"name": name, "namespace": "flux-system"}
                value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": given}
                self._applied.append(value)
                spec["postBuild"] = {"substituteFrom": [{"kind": "ConfigMap", "name": name}]}
        name = f"{top}-{count}"
        self._applied.append(flux(name, f"./{folder}", **spec))
        self._fluxed.append(f"Kustomization flux-system/{name}")
        return bool(spec.keys() - {"postBuild"}) or variables
