"""Small kustomizations whose patches change objects in many ways, for the follower and for kustomize."""

import json
from random import Random
from typing import Any

_BELOW = {"Pod": "", "Deployment": "template", "CronJob": "jobTemplate/spec/template", "Foo": ""}
"""The kinds of the objects, and where in their spec a pod's template is. Of Foo kustomize knows no schema."""

_VERSIONS = {"Pod": "v1", "Deployment": "apps/v1", "CronJob": "batch/v1", "Foo": "example.com/v1"}

_REFERRED = {
    "ServiceAccount": "v1",
    "ConfigMap": "v1",
    "PersistentVolumeClaim": "v1",
    "PriorityClass": "scheduling.k8s.io/v1",
}
"""The kinds to which pods refer by name."""

_FIELDS = {
    "namespace": "lab",
    "namePrefix": "p-",
    "images": [{"name": "a", "newName": "b"}],
    "commonAnnotations": {"k": "new"},
    "labels": [{"pairs": {"l": "1"}, "includeTemplates": True}],
}


class Patched:
    """Makes kustomizations, each of one or two objects in one file."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def one(self) -> tuple[list[Any], dict[str, Any]]:
        """Return some objects, and a kustomization of the file `objects.yaml` that has them."""
        objects = [self._object(number) for number in range(self._among(1, 1, 2))]
        made: dict[str, Any] = {"resources": ["objects.yaml"]}
        for _ in range(self._among(1, 1, 2)):
            one = self._among(*objects)
            key, patch = self._among(
                ("patches", self._merge(one)),
                ("patches", self._merge(one)),
                ("patchesStrategicMerge", self._merge(one)),
                ("patches", self._operations(one)),
                ("patchesJson6902", self._operations(one)),
            )
            target = {"kind": one["kind"], "name": one["metadata"]["name"], "version": "v1"}
            if key == "patchesJson6902":
                group = one["apiVersion"].rpartition("/")[0]
                target |= {"group": group} if group else {}
                target |= {"namespace": one["metadata"]["namespace"]} if "namespace" in one["metadata"] else {}
            text = json.dumps(self._listed(patch) if isinstance(patch, dict) else patch)
            is_text = key == "patchesStrategicMerge"
            named = key == "patches" and isinstance(patch, dict) and self._random.random() < 0.4
            entry = {"patch": text} if named else {"patch": text, "target": target}
            made.setdefault(key, []).append(text if is_text else entry)
        made |= {key: value for key, value in _FIELDS.items() if self._random.random() < 0.25}
        if self._random.random() < 0.2:
            options = {"disableNameSuffixHash": True}
            made["configMapGenerator"] = [{"name": "x", "files": ["data", "k=data"], "options": options}]
        return [*objects, *self._referred()], made

    def data(self) -> bytes:
        """Return the contents of the file `data`: a text, or bytes that are none."""
        length = self._among(1, 2, 51, 52, 53, 54, 105, 210)
        made: bytes = self._among("a: 1\n".encode(self._among("utf-8", "utf-16")), b"\xff" * length)
        return made

    def _referred(self) -> list[Any]:
        """Return objects to which pods refer by their names."""
        objects: list[Any] = [
            {"apiVersion": version, "kind": kind, "metadata": {"name": self._among("x", "y"), **place}}
            for kind, version in _REFERRED.items()
            for place in ({}, {"namespace": self._among("vision", "default")})[: 1 if "/" in version else 2]
        ]
        group = "rbac.authorization.k8s.io"
        subject = {"kind": "ServiceAccount", "name": self._among("x", "y"), "namespace": self._among("vision", "lab")}
        role = {"apiGroup": group, "kind": "Role", "name": "x"}
        binding = {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": {"name": "z"}, "roleRef": role}
        objects += [{**binding, "subjects": [subject]}, {**objects[0], "apiVersion": f"{group}/v1", "kind": "Role"}]
        return self._random.sample(objects, self._among(0, 0, 0, 2, 4))

    def _references(self) -> Any:
        """Return fields of a pod by which it refers to other objects."""
        name = self._among("x", "y")
        return self._among(
            {"serviceAccountName": name},
            {"serviceAccount": name},
            {"priorityClassName": name},
            {"initContainers": [{"name": "i", "envFrom": [{"configMapRef": {"name": name}}]}]},
            {"volumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": name}}]}}]},
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]},
        )

    def _among(self, *values: Any) -> Any:
        return self._random.choice(values)

    def _object(self, number: int) -> Any:
        kind, metadata = self._among(*_BELOW), {"name": f"web{number}", "annotations": {"k": "v"}}
        metadata |= self._among({}, {"namespace": "vision"}, {"namespace": "default"})
        containers = [self._container(name) for name in self._random.sample("cde", self._among(1, 2))]
        spec: Any = {"containers": containers, "volumes": [{"name": "v", "hostPath": {"path": "/dev"}}]}
        spec |= {"tolerations": [{"key": "a"}], "nodeSelector": {"x": "y"}, "resourceClaims": [{"name": "g"}]}
        spec |= self._references() if self._random.random() < 0.5 else {}
        return {"apiVersion": _VERSIONS[kind], "kind": kind, "metadata": metadata, "spec": self._within(kind, spec)}

    def _container(self, name: str) -> Any:
        return {
            "name": name,
            "image": self._among("a", "a:1", "c"),
            "resources": {"limits": {"gpu": 1}},
            "env": [{"name": "A", "value": "x"}, {"name": "B", "value": "y"}],
            "volumeMounts": [{"mountPath": "/d", "name": "v"}],
        }

    def _within(self, kind: str, spec: Any) -> Any:
        for step in reversed(list(filter(None, _BELOW[kind].split("/")))):
            spec = {step: {"spec": spec} if step == "template" else spec}
        return spec

    def _merge(self, one: Any) -> Any:
        metadata = {key: one["metadata"][key] for key in ("name", "namespace") if key in one["metadata"]}
        if self._random.random() < 0.3 and metadata.pop("namespace", "default") == "default":
            metadata |= self._among({}, {"namespace": "default"})  # they mean the same
        patch: Any = {"apiVersion": one["apiVersion"], "kind": one["kind"], "metadata": metadata}
        if self._random.random() < 0.1:
            return patch | self._among({"$patch": "delete"}, {"$patch": "replace", "spec": {}}, {"$patch": "merge"})
        if self._random.random() < 0.2:
            metadata |= self._among({"annotations": None}, {"annotations": {"k": None}}, {"labels": {"q": "r"}})
            metadata |= self._among({}, {"$patch": "replace"})
        return {**patch, "spec": self._within(one["kind"], self._spec())}

    def _listed(self, patch: Any) -> Any:
        """Return a patch, which may be in a list."""
        if self._random.random() < 0.8:
            return patch
        listed = {"kind": self._among("List", f"{patch['kind']}List", "ResourceList"), "items": [patch]}
        return self._among(listed, {"apiVersion": "v1", **listed}, {"kind": "List", "items": [listed]})

    def _spec(self) -> Any:
        spec = dict[str, Any]()
        for _ in range(self._among(1, 1, 2)):
            spec |= self._among(
                *({"containers": self._entries()} for _ in range(6)),
                {"initContainers": [{"name": "i", "image": "a"}, {"name": "j", "$patch": "delete"}]},
                {"initContainers": [{"name": "i", "image": "a", "$patch": "replace"}]},
                {"volumes": self._among(None, [], [{"name": "v", "$patch": "delete"}], [{"$patch": "replace"}])},
                {"volumes": [{"name": "v", "hostPath": None, "emptyDir": {}}]},
                {"volumes": [{"name": "w", "emptyDir": {}, "$patch": self._among("replace", "merge")}]},
                {"volumes": [{"name": "v", "$retainKeys": ["name", "emptyDir"], "emptyDir": {}}]},
                {"tolerations": self._among(None, [], [{"key": "b"}], [{"$patch": "delete", "key": "a"}])},
                {"nodeSelector": {"q": "r", "$patch": self._among("replace", "delete", "merge")}},
                {"nodeSelector": self._among(None, {}, {"x": None}, {"q": {"$patch": "delete"}})},
                {"resourceClaims": self._among(None, [{"name": "h"}], [{"name": "g", "$patch": "delete"}])},
                {"hostPID": self._among(True, None)},
                {"$patch": self._among("replace", "delete", "merge"), "hostPID": True},
                {"$setElementOrder/containers": [{"name": "d"}, {"name": "c"}]},
            )
        return spec

    def _entries(self) -> Any:
        entry = {"name": self._among(*"cdez")}
        entry |= self._among(
            {"$patch": self._among("delete", "replace", "merge"), "image": "q"},
            {"resources": self._among(None, {}, {"limits": None}, {"limits": {"gpu": None}}, {"limits": {"gpu": 2}})},
            {"resources": {"$patch": self._among("delete", "replace", "merge"), "limits": {"cpu": 1}}},
            {"resources": {"limits": {"$patch": self._among("delete", "replace"), "cpu": 1}}},
            {"env": self._among(None, [], [{"name": "A", "value": None}], [{"name": "A", "value": "z"}])},
            {"env": self._among([{"name": "A", "$patch": "delete"}], [{"value": "n"}], [{"$patch": "delete"}])},
            {"env": [{"$patch": "replace"}, {"name": "Q", "value": "1"}]},
            {"volumeMounts": [{"mountPath": "/d", "$patch": self._among("delete", "replace")}]},
            {"volumeMounts": [{"mountPath": "/e", "name": "v"}], "image": "a"},
        )
        new = {"name": "n", "image": "q"}
        return self._among([entry], [entry], [entry], [entry, new], [{"$patch": "replace"}, entry], [], None)

    def _operations(self, one: Any) -> list[Any]:
        spec = "/".join(filter(None, ("/spec", _BELOW[one["kind"]], "spec" * (_BELOW[one["kind"]] != ""))))
        return [self._operation(spec) for _ in range(self._among(1, 1, 2))]

    def _operation(self, spec: str) -> Any:
        value = self._among({}, [], "void", False, 3, "", [{"name": "n", "image": "q"}])
        return self._among(
            {"op": "remove", "path": f"{spec}/containers/{self._among('0/resources', '0/env/1', '1', '-1', '-')}"},
            {"op": "remove", "path": f"{spec}/{self._among('volumes', 'nodeSelector/x', 'nothing', 'tolerations/0')}"},
            {"op": "add", "path": f"{spec}/containers/{self._among('-', '0', '1')}", "value": {"name": "n"}},
            {"op": "add", "path": f"{spec}/{self._among('hostPID', 'volumes', 'a/b', 'volumes/1')}", "value": value},
            {"op": "replace", "path": f"{spec}/containers/0/{self._among('image', 'resources')}", "value": value},
            {"op": "test", "path": f"{spec}/containers/0/image", "value": self._among("a", "c")},
            {"op": "replace", "path": f"/metadata/{self._among('namespace', 'name')}", "value": "other"},
            {"op": "replace", "path": "/metadata/annotations/k", "value": "patched"},
            {"op": self._among("add", "replace"), "path": self._among("/kind", "/apiVersion"), "value": "Other"},
            {"op": "remove", "path": self._among("/kind", "/apiVersion", "/metadata", "/metadata/annotations")},
        )
