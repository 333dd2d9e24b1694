"""Repositories as Argo CD deploys them, and what its own code makes of them next to `slicewarden check`.

A chart here names its pods by all that it is given, so a pod of other values, or in another namespace, is another pod.
"""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.oracles.programs import Oracle
from tests.oracles.repositories import JUDGED, text_of
from webhook.model import Object
from webhook.rendering.model import Options
from webhook.scan import batches

Map = dict[str, Any]

URL, OTHER = "https://git.example/fleet", "https://git.example/elsewhere"
NAMES = ("web", "web", "web", "db", "db", "db", "prod", "dev", "dev", "x-y", "x-y", "a.b", "Team_A")
SPACES = ("vision", "team", "default", "web")
TEXTS = (
    "x",
    "y",
    "web",
    "prod",
    "1",
    "true",
    "",
    "a b",
    "{{path}}",
    "x.y",
    "null",
    "0x10",
    "1e3",
    "'q'",
    '"d"',
    "a,b",
    "{a,b}",
    "$X",
)
KEYS = ("a", "a", "b", "env", "c.d", "e-f")
LINK = "link to "
"""The beginning of the text of a link."""

FINGERPRINT = """apiVersion: v1
kind: Pod
metadata:
  name: pod-{{ list .Release.Name .Release.Namespace (toJson .Values) .Chart.Name | toJson | sha256sum | trunc 16 }}
  annotations: {given: {{ list .Release.Name .Release.Namespace .Values .Chart.Name | toJson | quote }}}
spec:
  containers: [{name: a, image: i, securityContext: {privileged: true}}]
"""


class Applications:
    """Makes repositories that Argo CD deploys: the texts of their files by their names."""

    def __init__(self, random: Random, *, sets: bool) -> None:
        self._random, self._sets = random, sets

    def one(self) -> dict[str, str]:
        """Make a repository. The objects of Argo CD are in its folder `fleet`."""
        random = self._random
        self._files = dict[str, str]()
        self._folders, self._linked = list[str](), dict[str, str]()
        self._kinds = ("chart",) if self._chance(0.8 if self._sets else 0.5) else ("chart", "chart", "built", "plain")
        for top in random.sample(("apps", "apps", "infra", "envs/prod"), k=random.choice((1, 1, 2))):
            for name in random.sample(NAMES, k=random.choice((1, 2, 3))):
                self._folder(f"{top}/{name}")
        for name in random.sample(("one.yaml", "two.yaml", "three.json", "sub/four.yaml"), k=random.choice((1, 2))):
            self._write(f"config/{name}", self._config())
        for folder in self._folders[:1] if self._chance(0.2) else ():
            self._write(f"{Path(folder).parent}/linked", f"{LINK}{Path(folder).name}")
            names = [each for each in self._files if each.startswith(f"{folder}/")]
            target = random.choice(names) if names else "missing"
            name = random.choice(("l.yaml", "l.json", "sub/l.yaml", "templates/l.yaml", "values-l.yaml"))
            self._write(f"{folder}/{name}", LINK + os.path.relpath(target, Path(f"{folder}/{name}").parent))
            self._folders.append(f"{Path(folder).parent}/linked")
            self._linked[self._folders[-1]] = folder
        for number in range(1 if self._chance(0.7) else 2):
            made = self._set(number) if self._sets else self._application(number)
            self._write(f"fleet/object-{number}.yaml", made)
        return self._files

    def _chance(self, of: float) -> bool:
        return self._random.random() < of

    def _write(self, name: str, value: object) -> None:
        self._files.setdefault(name, value if isinstance(value, str) else json.dumps(value))

    def _text(self) -> str:
        return self._random.choice(TEXTS[:6] if self._chance(0.8) else TEXTS)

    # Folders

    def _folder(self, folder: str) -> None:
        random = self._random
        if folder in self._folders:
            return
        self._folders.append(folder)
        kind = random.choice(self._kinds)
        if kind == "chart":
            self._write(f"{folder}/Chart.yaml", {"apiVersion": "v2", "name": "c", "version": "0.1.0"})
            self._write(f"{folder}/values.yaml", random.choice(({}, {"a": "x"}, {"a": {"b": "y"}, "l": [1, {"k": 2}]})))
            self._write(f"{folder}/templates/p.yaml", FINGERPRINT)
            for name in random.sample(("values-x.yaml", "values-prod.yaml", "x.yaml"), k=random.choice((0, 1, 2))):
                self._write(
                    f"{folder}/{name}", {random.choice(("a", "b")): random.choice((self._text(), {"b": "z"}, 3))}
                )
        else:
            names = random.sample(("p.yaml", "q.yml", "r.json", "sub/s.yaml", "t.txt"), k=random.choice((1, 2, 3)))
            for name in names:
                self._write(f"{folder}/{name}", self._objects(name))
            if self._chance(0.15):
                odd = (
                    "XChart.yaml",
                    ".h.yaml",
                    ".h/p.yaml",
                    "o.YAML",
                    "_p.yaml",
                    "sub/kustomization.yaml",
                    "sub/Chart.yaml",
                )
                name = random.choice((*odd, "Chart.yaml"))
                other: Map = {"resources": []} if "kust" in name else {"name": "c", "version": "1"}
                self._write(f"{folder}/{name}", other if "kust" in name or name[0] == "C" else self._pod())
            if kind == "built":
                value: Map = {"resources": names if self._chance(0.9) else []}
                if self._chance(0.3):
                    value["namePrefix"] = "k-"
                if self._chance(0.2):
                    value["namespace"] = random.choice(SPACES)
                if self._chance(0.2):
                    value["images"] = [{"name": "i", "newTag": "0"}]
                self._write(f"{folder}/kustomization.yaml", value)
                component = {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component"}
                patch = {"target": {"kind": "Pod"}, "patch": json.dumps([_operation("component")])}
                self._write(f"more/{Path(folder).name}/kustomization.yaml", {**component, "patches": [patch]})
        if self._chance(0.4 if kind == "chart" else 0.1):
            self._write(f"{folder}/config.json", self._config())
        if self._chance(0.1):
            self._folder(f"{folder}/deep")
        if self._chance(0.05):
            name = random.choice((".argocd-source.yaml", ".argocd-source-app-0.yaml", ".argocd-source-web.yaml"))
            self._write(f"{folder}/{name}", {"helm": {"parameters": [{"name": "a", "value": "overridden"}]}})

    def _objects(self, name: str) -> Any:
        """Return what is in a file with objects."""
        one, other = self._pod(), self._pod()
        several = f"# first\n---\n{json.dumps(one)}\n---\n\n---\n{json.dumps(other)}\n...\n"
        listed = {"apiVersion": "v1", "kind": "List", "items": [one, other]}
        skipped = f"# +argocd:skip-file-rendering\n{json.dumps(one)}\n"
        if name.endswith("json"):
            several, skipped = f"{json.dumps(one)}\n{json.dumps(other)}", json.dumps(one)
        return self._random.choice((*(one,) * 8, several, listed, listed, skipped))

    def _pod(self) -> Map:
        metadata: Map = {"name": f"pod-{self._random.randrange(10**6)}"}
        if self._chance(0.4):
            metadata["namespace"] = self._random.choice(SPACES)
        spec = {"containers": [{"name": "a", "image": "i", "securityContext": {"privileged": True}}]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _config(self) -> Any:
        random = self._random
        one: Map = {}
        for key in random.sample(("a", "b", "env", "values", "c.d", "e-f"), k=random.choice((1, 2, 3, 4))):
            one[key] = self._parameter(key)
        one.update(name=random.choice(NAMES), ns=random.choice(SPACES), where=self._parameter("path"))
        if self._chance(0.2):
            one["path"] = self._parameter("path")
        return random.choice((*(one,) * 6, [one, {**one, "a": "other"}], "", f"{json.dumps(one)}\n---\n{{}}\n", []))

    def _parameter(self, key: str) -> Any:
        random = self._random
        if key == "path":
            return random.choice(self._folders)
        if key == "ns":
            return random.choice(SPACES)
        if key == "values":
            return {"a": self._text()}
        odd = (1, 1.5, 10**7, True, None, {"b": self._text()}, ["x", {"b": "y"}], {"b": {"c": 2}, "b.c": 3}, 1e21, -0.0)
        return random.choice(odd) if self._chance(0.2) else self._text()

    # Applications

    def _application(self, number: int) -> Map:
        random = self._random
        spec: Map = {"project": "default", "destination": {"namespace": random.choice((*SPACES, *SPACES, ""))}}
        if self._chance(0.25):
            count = random.choice((1, 2))
            sources = [self._source() for _ in range(count)]
            if self._chance(0.7):
                own = random.choice((URL, URL, OTHER))
                sources.append({"repoURL": own, "ref": random.choice(("r", "r", "bad ref")), "targetRevision": "HEAD"})
                if self._chance(0.3):
                    sources[-1]["path"] = random.choice(self._folders)
            random.shuffle(sources)
            spec["sources"] = sources
            if self._chance(0.2):
                spec["source"] = self._source()
        else:
            spec["source"] = self._source()
        metadata = {"name": f"app-{number}", "namespace": random.choice(("argocd", "argocd", "team"))}
        return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": metadata, "spec": spec}

    def _source(self) -> Map:
        random, folder = self._random, self._random.choice(self._folders)
        paths = (
            *(folder,) * 8,
            f"./{folder}",
            f"{folder}/",
            f"{folder}/.",
            f"{folder}/../{Path(folder).name}",
            f"/{folder}",
        )
        source: Map = {"repoURL": URL, "path": random.choice(paths), "targetRevision": "HEAD"}
        folder = self._linked.get(folder, folder)
        if f"{folder}/Chart.yaml" in self._files or self._chance(0.05):
            if self._chance(0.9):
                source["helm"] = self._helm(folder)
        elif f"{folder}/kustomization.yaml" in self._files and self._chance(0.8):
            source["kustomize"] = self._kustomize(folder)
        elif self._chance(0.7):
            source["directory"] = self._directory()
        if self._chance(0.03):
            source["plugin"] = {}
        if self._chance(0.05):
            source[random.choice(("helm", "kustomize", "directory"))] = {}
        return source

    def _helm(self, folder: str) -> Map:
        random = self._random
        helm: Map = {}
        if self._chance(0.3):
            helm["releaseName"] = random.choice(("r", "", "web"))
        if self._chance(0.3):
            helm["values"] = random.choice(
                ("a: x", "a: {b: w}", "{}", "a: y\nb: 1\n", "a: null", "# none", "a: !!int '3'")
            )
        if self._chance(0.3):
            helm["valuesObject"] = random.choice(
                ({"a": "x"}, {}, {"a": None}, {"a": {"b": [1, 2]}}, {"n": 10**7, "f": 1.5})
            )
        if self._chance(0.4):
            helm["valueFiles"] = [self._values_file(folder) for _ in range(random.choice((1, 1, 2)))]
        if self._chance(0.25):
            helm["ignoreMissingValueFiles"] = True
        if self._chance(0.4):
            names = ("a", "b", "a.b", "l[0]", "l[1].k", "g\\.h", "c.d", "a-b", "a=1,b", "l[5]")
            for_all = random.choices(names, k=random.choice((1, 1, 2, 3)))
            helm["parameters"] = [{"name": name, "value": self._text()} for name in for_all]
            for each in helm["parameters"]:
                if self._chance(0.3):
                    each["forceString"] = True
        if self._chance(0.08):
            helm["fileParameters"] = [
                {"name": "a", "path": random.choice(("values.yaml", "x.yaml", "/config/one.yaml"))}
            ]
        for key, value in (
            *(("version", "v3"), ("skipCrds", True), ("namespace", "team"), ("kubeVersion", "1.30.0")),
            *(
                ("apiVersions", ["x/v1"]),
                ("skipTests", True),
                ("passCredentials", True),
                ("skipSchemaValidation", True),
            ),
        ):
            if self._chance(0.04):
                helm[key] = value
        return helm

    def _values_file(self, folder: str) -> str:
        own = [
            os.path.relpath(name, folder) for name in self._files if name.startswith(f"{folder}/") and "values" in name
        ]
        return self._random.choice(
            (
                *own * 4,
                *(f"./{each}" for each in own),
                *(f"/{folder}/{each}" for each in own),
                *(f"$r/{folder}/{each}" for each in own * 2),
                *("missing.yaml", "x.yaml", "values-*.yaml", "values-$ARGOCD_APP_NAME.yaml", "../../config/one.yaml"),
                *("/config/one.yaml", "$r/config/one.yaml", "$other/config/one.yaml", "$r", "../../../out.yaml", ""),
            )
        )

    def _kustomize(self, folder: str) -> Map:
        random = self._random
        images = (
            "i=other:2",
            "i:3",
            "i=other",
            "i@sha256:" + "0" * 64,
            "i=r:5000/other",
            "other=x:1",
            "i=a:1@sha256:" + "1" * 64,
            "i=x:$ARGOCD_APP_NAME",
            "i=x:${Y}",
        )
        patch = {"target": {"kind": "Pod"}, "patch": json.dumps([_operation("argo")])}
        options: Map = {
            "namePrefix": random.choice(("p-", "a-")),
            "nameSuffix": "-s",
            "images": random.sample(images, k=random.choice((1, 1, 2))),
            "namespace": random.choice(SPACES),
            "patches": [patch],
            "components": [os.path.relpath(f"more/{Path(folder).name}", folder), "../missing"][
                : random.choice((1, 1, 1, 2))
            ],
            "replicas": [{"name": "x", "count": 2}],
            "commonLabels": {"team": "a"},
            "commonAnnotations": {"note": "x"},
            "forceCommonLabels": True,
            "ignoreMissingComponents": True,
            "version": "v5",
        }
        return {key: options[key] for key in random.sample([*options], k=random.choice((0, 1, 1, 2, 3)))}

    def _directory(self) -> Map:
        random = self._random
        options: Map = {
            "recurse": self._chance(0.8),
            "include": random.choice(("*.yaml", "p.*", "{p,q}.*", "sub/*", "**/*.yaml", "*", "s*")),
            "exclude": random.choice(("q*", "*.json", "sub/*", "{p.yaml,r.json}", "config.json", "*")),
            "jsonnet": random.choice(({}, {"tlas": []}, {"libs": ["x"]})),
        }
        return {key: options[key] for key in random.sample([*options], k=random.choice((0, 1, 1, 2)))}

    # ApplicationSets

    def _set(self, number: int) -> Map:
        random = self._random
        self._go = go = self._chance(0.5)
        self._keys = random.sample(("a", "b", "env", "values", "c.d", "e-f"), k=random.choice((1, 2, 3)))
        self._own = random.choice(("path", "where"))
        named, generators = list[set[str]](), list[Map]()
        for _ in range(random.choice((1, 1, 1, 1, 1, 2))):
            self._named = set[str]()
            generators.append(self._generator())
            named.append(self._named)
        self._named = set.intersection(*named)
        spec: Map = {"goTemplate": go, "generators": generators, "template": self._template(number)}
        if not go and self._chance(0.5):
            del spec["goTemplate"]
        if go and self._chance(0.2):
            spec["goTemplateOptions"] = [random.choice(("missingkey=error", "missingkey=zero", "missingkey=default"))]
        if self._chance(0.03):
            spec["templatePatch"] = json.dumps({"spec": {"destination": {"namespace": "patched"}}})
        metadata = {"name": f"set-{number}", "namespace": "argocd"}
        return {"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "metadata": metadata, "spec": spec}

    def _generator(self, *, nested: bool = False) -> Map:
        random = self._random
        kind = random.choice(("list", "list", "directories", "directories", "files", "files"))
        if not nested and self._chance(0.08):
            kind = random.choice(("matrix", "merge"))
        made: Map
        if kind == "list":
            elements = [self._element() for _ in range(random.choice((1, 2, 2, 3)))]
            made = {"list": {"elements": elements}}
            if self._chance(0.03):
                made["list"]["elementsYaml"] = json.dumps([self._element()])
        elif kind in ("directories", "files"):
            git: Map = {"repoURL": OTHER if self._chance(0.02) else URL, "revision": "HEAD"}
            git[kind] = [{"path": self._pattern(kind)} for _ in range(random.choice((1, 1, 2)))]
            if self._chance(0.2):
                git[kind].append({"path": self._pattern(kind), "exclude": True})
            self._named |= {"path.path" if self._go else "path", "path.basename", "path.basenameNormalized"}
            if kind == "files":
                self._named |= {"path.filename", "path.filenameNormalized", "name", "ns", "where"}
            if self._chance(0.2):
                git["values"] = {"a": random.choice((self._text(), self._reference())), "e-f": "z"}
                self._named |= {"values.a", "values.e-f"}
            if self._chance(0.03):
                git["pathParamPrefix"] = "own"
            if self._chance(0.05):
                git["files" if kind == "directories" else "directories"] = [{"path": "config/*.yaml"}]
            made = {"git": git}
        else:
            inner = [self._generator(nested=True), self._generator(nested=True)]
            made = {kind: {"generators": inner}}
            if kind == "merge":
                made[kind]["mergeKeys"] = [random.choice(("name", "a", "path.basename"))]
        if self._chance(0.12):
            key = random.choice(("name", "path.basename", "ns", "a", "env", "missing", "values.a"))
            operator = random.choice(("In", "NotIn", "Exists", "DoesNotExist"))
            one: Map = {"key": key, "operator": operator}
            if operator in ("In", "NotIn"):
                one["values"] = random.sample(TEXTS[:6], k=2)
            made["selector"] = random.choice(({"matchLabels": {key: self._text()}}, {"matchExpressions": [one]}))
        if self._chance(0.03) and kind in ("list", "directories"):
            own = {"metadata": {"name": ""}, "spec": {"destination": {"namespace": "own"}, "project": ""}}
            made["list" if kind == "list" else "git"]["template"] = own
        return made

    def _pattern(self, kind: str) -> str:
        if kind == "directories":
            known = [*self._folders, *(f"{Path(folder).parent}/*" for folder in self._folders), "apps/*"]
            return self._random.choice(known if self._chance(0.85) else _DIRECTORIES)
        names = [name for name in self._files if name.startswith("config/") or name.endswith("/config.json")]
        known = [*names, *(f"{Path(name).parent}/*{Path(name).suffix}" for name in names), "**/config.json"]
        return self._random.choice(known if self._chance(0.85) else _FILES)

    def _element(self) -> Map:
        element: Map = {}
        for key in self._keys:
            element[key] = self._parameter(key) if self._go or self._chance(0.03) else self._text()
            if key == "values":
                element[key] = {"a": self._text()}
                self._named.add("values.a")
            elif not self._go or key not in ("c.d", "e-f"):
                self._named.add(key)
        self._named |= {"name", self._own, "ns"}
        element.update(
            {"name": self._random.choice(NAMES), self._own: self._parameter("path"), "ns": self._parameter("ns")}
        )
        return element

    def _reference(self, names: Sequence[str] = ()) -> str:
        """Return a text with a parameter: one of some names, if there are any."""
        random = self._random
        odd = ("a.b", "b.b.c", "missing", "own.path.basename", "path", "values", "c.d", "e-f", "env")
        name = random.choice(odd if self._chance(0.04) or not self._named else sorted(names or self._named))
        if self._go:
            forms: tuple[str, ...] = ("{{.%s}}", "{{.%s}}", "{{ .%s }}", "{{.%s}}-x", "x-{{.%s}}")
            if self._chance(0.06):
                forms = (
                    *("{{- .%s -}}", "{{ .%s | lower }}", '{{ default "y" .%s }}', "{{ .%s | quote }}", "{{ (.%s) }}"),
                    *('{{ if eq (toString .%s) "x" }}x{{ else }}y{{ end }}', "{{$x := .%s}}{{$x}}", "{{%s}}"),
                    *("{{ index .path.segments 1 }}{{/* %s */}}", "{{ .%s | toJson }}", '{{"{{"}}.%s}}'),
                )
        else:
            forms = ("{{%s}}", "{{%s}}", "{{ %s }}", "{{%s}}-x", "x{{%s}}")
            if self._chance(0.06):
                forms = (
                    *(
                        "{{path[0]}}{{ %s}}",
                        "{{path[1]}}",
                        "{{.%s}}",
                        "{{%s",
                        "{{ {{%s}} }}",
                        "{{%s }}{{%s}}",
                        "{{%s}}}",
                    ),
                )
        form = random.choice(forms)
        return form.replace("%s", name)

    def _template(self, number: int) -> Map:
        random, folder = self._random, self._random.choice(self._folders)
        paths = [self._reference(), folder] if self._chance(0.1) else [folder]
        wanted = "where" if "where" in self._named else "path.path" if "path.path" in self._named else "path"
        if wanted in self._named:
            paths += [f"{{{{.{wanted}}}}}" if self._go else f"{{{{{wanted}}}}}"] * 6
        source: Map = {"repoURL": URL, "path": random.choice(paths), "targetRevision": "HEAD"}
        if self._chance(0.9 if len(self._kinds) == 1 else 0.3):
            helm: Map = {}
            if self._chance(0.3):
                helm["releaseName"] = random.choice(("r", self._reference()))
            if self._chance(0.6):
                helm["parameters"] = [{"name": random.choice(("a", "b", "a.b")), "value": self._reference()}]
            if self._chance(0.3):
                helm["values"] = f"given: {self._reference()}\n"
            if self._chance(0.3):
                helm["valuesObject"] = {
                    "given": self._reference(),
                    **({self._reference(): 1} if self._chance(0.1) else {}),
                }
            if self._chance(0.2):
                helm["valueFiles"] = [random.choice((f"values-{self._reference()}.yaml", "values-x.yaml"))]
                helm["ignoreMissingValueFiles"] = True
            source["helm"] = helm
        elif self._chance(0.3):
            source["kustomize"] = {"namePrefix": f"{self._reference()}-"}
        elif self._chance(0.3):
            source["directory"] = {"recurse": True}
        spec = {"project": "default", "source": source}
        spec["destination"] = {"namespace": random.choice(("vision", self._reference(), self._reference()))}
        safe = sorted(self._named & {"name", "path.basename", "path.basenameNormalized"}) if self._chance(0.9) else []
        one, other = (self._reference(safe), self._reference(safe))
        named = random.choice((f"app-{number}", f"{one}-{number}", f"a-{other}", f"a-{one}-{other}"))
        return {"metadata": {"name": named}, "spec": spec}


_DIRECTORIES = (
    *("apps/*", "*/*", "apps/**", "infra/*", "*", "apps/[a-z]*", "apps/*/deep", "envs/*/*", "apps/w?b", "apps", "**"),
    *("apps/[^a]*", "apps/{web,db}", "/apps/*", "apps/*/"),
)
_FILES = (
    *("apps/*/config.json", "config/*.yaml", "config/**", "apps/**/config.json", "*/*/config.json", "config/*"),
    *("*.json", "config/[a-o]*.yaml", "config/{one,two}.yaml", "envs/*/*/config.json"),
)


def _operation(value: str) -> Map:
    return {"op": "add", "path": "/spec/schedulerName", "value": value}


class Comparison(NamedTuple):
    """The objects that Argo CD makes and `check` does not judge, the number that it makes, and what `check` notes."""

    lost: Sequence[Object]
    applied: int
    is_noted: bool
    notes: Sequence[str]
    errors: Sequence[str]


def compared(oracle: Oracle, files: dict[str, str], folder: Path, *, globbing: bool = False) -> Comparison:
    """Write a repository into the working folder, which is empty, and have both read it."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith(LINK):
            path.symlink_to(text.removeprefix(LINK))
        else:
            path.write_text(text, "utf-8")
    author = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main")
    quiet = ("git", *author, "-C", str(folder))
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"], ["remote", "add", "origin", URL]):
        subprocess.run([*quiet, *command], check=True, capture_output=True)
    theirs, errors = list[Object](), list[str]()
    for name, text in files.items():
        if name.startswith("fleet/"):
            answer = oracle.ask({"object": json.loads(text), "places": {URL: f"file://{folder}"}, "globbing": globbing})
            errors += [answer["error"]] if answer["error"] else []
            for each in answer["applications"] or ():
                errors += each["errors"] or ()
                space = each["object"]["spec"]["destination"].get("namespace")
                theirs += (_placed(one, space) for one in each["objects"] or ())
    read = batches.read(["."], rendering=Options(cached=True))
    ours = Counter(text_of(item.value) for item in read.each(lambda item: item))
    lost = [each for each in theirs if each.get("kind") in JUDGED and not ours[text_of(each)]]
    problems = [str(each) for each in read.problems]
    is_noted = bool(problems) or any(each.unfollowed for each in read.read)
    return Comparison(lost, len(theirs), is_noted, [*problems, *read.notes], errors)


def _placed(value: Object, namespace: str) -> Object:
    """Return an object in the namespace in which an Application deploys it."""
    metadata = {**value["metadata"]}
    metadata["namespace"] = metadata.get("namespace") or namespace or "default"
    return {**value, "metadata": metadata}
