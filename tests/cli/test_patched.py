"""`check --patched`: manifests as the webhook would change them, and otherwise as their author wrote them."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.support.policies import OPTIONS
from webhook.cli import main as cli
from webhook.documents import documents, goyaml_writer

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: vision, annotations: {slicewarden.dev/trust: trusted}}
spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""
MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}   # mine\ndata:\n  on: 'yes'\n"
TEXT = f"# one\n---\n{MAP}# between\n---\n# Source: pod.yaml\n{POD}# after\n---\n{MAP}"

Check = Callable[..., tuple[int, str, str]]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Check:
    monkeypatch.chdir(tmp_path)

    def call(*words: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        status = cli.main(["check", *words, *OPTIONS])
        return (status, *capsys.readouterr())

    return call


def values(text: str) -> list[Any]:
    return [document.value for document in documents.read(text, "x.yaml")[0]]


def clean(check: Check, *paths: str) -> bool:
    report = json.loads(check(*paths, "--format", "json")[1])
    return bool(report["results"]) and not any(each["patch"] for each in report["results"])


def test_a_patched_document_is_written_and_the_others_stay_as_they_were(check: Check, tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(TEXT)
    status, _, err = check("all.yaml", "--patched", "out.yaml")
    assert (status, err) == (0, "note: comments within patched documents are not kept\n")
    text = (tmp_path / "out.yaml").read_text()
    head, _, rest = text.partition("# Source: pod.yaml\n")
    assert head == TEXT.partition("# Source: pod.yaml\n")[0]
    assert rest.endswith(f"# after\n---\n{MAP}")
    before, after = values(TEXT)[1], values(text)[1]
    assert after["metadata"]["annotations"].items() > before["metadata"]["annotations"].items()
    assert after["spec"]["nodeSelector"] == {"nvidia.com/gpu.sharing-strategy": "time-slicing"}
    assert clean(check, "out.yaml")
    assert (tmp_path / "all.yaml").read_text() == TEXT


def test_a_folder_keeps_its_files_below_it(check: Check, tmp_path: Path) -> None:
    (tmp_path / "deploy/a").mkdir(parents=True)
    (tmp_path / "deploy/a/pod.yaml").write_text(POD)
    (tmp_path / "deploy/map.yaml").write_text(MAP)
    (tmp_path / "deploy/values.yaml").write_text("replicas: 1\n")
    for path, out in (("deploy", "out"), ("deploy/**/*.yaml", "globbed")):
        assert check(path, "--patched", out)[0] == 0
        names = sorted(str(file.relative_to(tmp_path / out)) for file in (tmp_path / out).rglob("*.yaml"))
        assert names == ["a/pod.yaml", "map.yaml"]
        assert (tmp_path / out / "map.yaml").read_text() == MAP
        assert clean(check, out)


def test_a_patched_list_stays_a_list_and_json_stays_json(check: Check, tmp_path: Path) -> None:
    pod = values(POD)[0]
    whole = {"apiVersion": "v1", "kind": "List", "items": [values(MAP)[0], pod, pod]}
    (tmp_path / "list.json").write_text(json.dumps(whole))
    (tmp_path / "list.yaml").write_text(goyaml_writer.write(whole))
    for name, load in (("list.json", json.loads), ("list.yaml", lambda text: values(text)[0])):
        assert check(name, "--patched", f"out-{name}")[0] == 0
        made = load((tmp_path / f"out-{name}").read_text())
        assert (made["kind"], made["items"][0], len(made["items"])) == ("List", values(MAP)[0], 3)
        assert made["items"][1] == made["items"][2] != pod
        assert clean(check, f"out-{name}")


def test_patched_standard_input_goes_to_standard_output_and_the_report_to_standard_error(
    check: Check, tmp_path: Path
) -> None:
    status, out, err = check("-", "--patched", "-", stdin=TEXT)
    assert status == 0
    assert [each["kind"] for each in values(out)] == ["ConfigMap", "Pod", "ConfigMap"]
    assert "\n3 objects: " in err
    (tmp_path / "out.yaml").write_text(out)
    assert clean(check, "out.yaml")
    (tmp_path / "pod.yaml").write_text(POD)
    out = check("-", "pod.yaml", "--patched", "-", "--quiet", stdin=MAP)[1]
    assert [each["kind"] for each in values(out)] == ["ConfigMap", "Pod"]


def test_what_is_not_patched_is_copied(check: Check, tmp_path: Path) -> None:
    review = {"uid": "a", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE"}
    review |= {"object": values(POD)[0], "namespace": "vision", "name": "NAME"}
    saved = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": review})
    (tmp_path / "review.json").write_text(saved)
    assert check("review.json", "--patched", "out.json")[0] == 0
    assert (tmp_path / "out.json").read_text() == saved


def test_patched_files_with_one_name_are_never_written_to_one_place(check: Check, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pod.yaml").write_text(POD)
    status, _, err = check("a/pod.yaml", "b/pod.yaml", "--patched", "out")
    assert (status, (tmp_path / "out").exists()) == (2, False)
    assert err == "error: --patched: a/pod.yaml and b/pod.yaml would both be written to out/pod.yaml\n"


@pytest.mark.parametrize("text", [POD.replace("\n", "\r\n"), f"\ufeff{POD}", f"--- # c\n---\n{POD}", f"{POD}...\n"])
def test_patched_files_with_unusual_yaml_can_be_read_again(check: Check, tmp_path: Path, text: str) -> None:
    (tmp_path / "pod.yaml").write_text(text, newline="")
    assert check("pod.yaml", "--patched", "out.yaml")[0] == 0
    assert clean(check, "out.yaml")


def test_every_pod_of_the_fixtures_is_clean_once_it_is_patched(check: Check, tmp_path: Path) -> None:
    texts = [file.read_text("utf-8") for file in sorted(ROOT.glob("tests/fixtures/*/patch-*.yaml"))]
    texts = [text for text in texts if "kind: AdmissionReview" not in text]
    assert len(texts) > 10
    (tmp_path / "in").mkdir()
    for number, text in enumerate(texts):
        (tmp_path / f"in/{number}.yaml").write_text(text)
    check("in", "--patched", "out", "--quiet")
    assert len([*(tmp_path / "out").iterdir()]) == len(texts)
    assert clean(check, "out")


def test_a_rendered_object_has_no_file_to_patch(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--fetch", "--patched", "-"]) == 2
    assert "excludes --fetch" in capsys.readouterr().err
