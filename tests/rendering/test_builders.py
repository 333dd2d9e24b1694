"""What builds a chart's dependencies adds those that are rendered, or a note says why it may not."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.trees import Write
from webhook.repository import builders, packing
from webhook.repository.builders import Builder
from webhook.repository.tree import Tree

LIB = "file://../lib"
FAR = "https://charts.example"


def dependency(name: str = "lib", repository: str = LIB, version: str = "1.x", **more: str) -> dict[str, str]:
    return {"name": name, "version": version, "repository": repository, **more}


def chart(name: str, *dependencies: dict[str, str], version: str = "1.0.0", **more: Any) -> str:
    own = {"apiVersion": "v2", "name": name, "version": version, **more}
    return json.dumps({**own, **({"dependencies": dependencies} if dependencies else {})})


def lock(*dependencies: dict[str, str]) -> str:
    return json.dumps({"dependencies": dependencies, "digest": "sha256:0", "generated": "2026-11-01T10:00:00Z"})


def packed(place: str, name: str, text: str = "a") -> None:
    files = {"Chart.yaml": chart(name).encode(), "templates/p": text.encode()}
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    Path(place).write_bytes(packing.archive(name, files))


CHARTS = {"lib/Chart.yaml": chart("lib"), "lib/templates/p": "a", "more/Chart.yaml": chart("more")}
MORE = dependency("more", "file://../more")


# Locks


@pytest.mark.parametrize("builder", Builder)
@pytest.mark.parametrize("name", packing.LOCKS)
@pytest.mark.parametrize(
    ("wanted", "locked", "agree"),
    [
        ([dependency()], [dependency(version="1.0.0")], True),
        ([dependency(version=">=1, <2")], [dependency(version="1.0.0")], True),
        ([dependency(version="^1.0")], [dependency(version="v1.9.0+up1")], True),
        ([dependency("a", ""), MORE], [dependency("a", ""), MORE], True),
        ([dependency("a", "", "^1.0")], [dependency("a", "", "^1.0")], True),
        ([dependency("a", FAR), MORE], [MORE, dependency("a", f"{FAR}/", "1.2.3")], True),
        ([dependency("a", "@far"), dependency("b", "alias:far")], [dependency("a", FAR), dependency("b", FAR)], True),
        ([dependency("a", FAR, alias="x", condition="x.on")], [dependency("a", FAR)], True),
        ([], [], True),
        ([], [dependency()], False),
        ([dependency()], [], False),
        ([dependency()], [dependency(), dependency()], False),
        ([dependency(repository="file://../other")], [dependency()], False),
        ([dependency(repository=FAR)], [dependency()], False),
        ([dependency(repository="@far")], [dependency()], False),
        ([dependency(repository="@far")], [dependency(repository="")], False),
        ([dependency("a", FAR)], [dependency("a", "https://other.example")], False),
        ([dependency("a", FAR)], [dependency("b", FAR)], False),
        ([dependency("a", FAR, "1.2.3")], [dependency("a", FAR, "1.2.4")], False),
        ([dependency("a", FAR, "^1.2")], [dependency("a", FAR, "2.0.0")], False),
        ([dependency()], [dependency(alias="x")], False),
    ],
)
def test_a_lock_that_names_other_dependencies_is_noted(
    write: Write,
    builder: Builder,
    name: str,
    wanted: list[dict[str, str]],
    locked: list[dict[str, str]],
    agree: bool,
) -> None:
    vendored = {
        f"web/charts/{each['name']}/Chart.yaml": chart(each["name"]) for each in wanted if not each["repository"]
    }
    tree = write({**CHARTS, **vendored, "web/Chart.yaml": chart("web", *wanted), f"web/{name}": lock(*locked)})
    found = builders.doubt(tree, "web", builder)
    assert (found == f"its {name} names other dependencies than the chart") != agree


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["", LIB, FAR]), st.sampled_from(["1.x", "1.0.0"]))))
def test_a_lock_as_helm_writes_it_agrees_and_one_with_another_name_does_not(found: list[tuple[str, str, str]]) -> None:
    wanted = [dependency(*each) for each in found]
    locked = [{**each, "version": "1.0.0"} for each in wanted]
    assert builders.agree(locked, wanted)
    assert not builders.agree([*locked, dependency("c")], wanted)
    assert not any(builders.agree([*locked[:at], {**locked[at], "name": "c"}], wanted) for at in range(len(locked)))


@pytest.mark.parametrize("text", ["# nothing\n", "a: [\n", ""])
def test_an_empty_lock_counts_and_one_that_cannot_be_read_is_noted(write: Write, text: str) -> None:
    tree = write({**CHARTS, "web/Chart.yaml": chart("web", dependency()), "web/Chart.lock": text})
    assert "Chart.lock" in builders.doubt(tree, "web", Builder.FLUX)


@pytest.mark.parametrize(
    ("patterns", "noted"), [("", False), ("*.tmp\n", False), ("requirements.*\n", True), ("!x\n", True)]
)
def test_requirements_that_helm_does_not_read_are_noted(write: Write, patterns: str, noted: bool) -> None:
    tree = write(
        {
            **CHARTS,
            "web/.helmignore": patterns,
            "web/Chart.yaml": chart("web", dependency(repository="file://../more")),
            "web/requirements.yaml": json.dumps({"dependencies": [dependency()]}),
        }
    )
    assert ("leave out requirements.yaml" in builders.doubt(tree, "web", Builder.FLUX)) == noted


# Keys


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        ("web/Chart.yaml", chart("web", {**dependency(), "repo\u017fitory": FAR}), "repo\\u017fitory"),
        ("web/Chart.yaml", chart("web", dependency(Repository=FAR)), "Repository"),
        ("web/Chart.yaml", chart("web", Dependencies=[]), "Dependencies"),
        ("web/requirements.yaml", json.dumps({"dependencies": [dependency(Alias="x")]}), "Alias"),
        ("web/Chart.lock", json.dumps({"Dependencies": []}), "Dependencies"),
        ("web/charts/lib/Chart.yaml", chart("lib", Name="y"), "Name"),
        ("lib/Chart.yaml", chart("lib", Version="2.0.0"), "Version"),
        ("web/Chart.yaml", chart("web", dependency(Condition="x"), appversion="1", Maintainers=[]), ""),
        ("web/Chart.yaml", chart("web", dependency(), annotations={"Name": "x"}), ""),
    ],
)
def test_keys_that_only_go_reads_are_noted(write: Write, name: str, text: str, key: str) -> None:
    tree = write({**CHARTS, "web/Chart.yaml": chart("web", dependency()), name: text})
    found = builders.doubt(tree, "web", Builder.ARGO)
    assert found == (f"the key {key} of a chart is not followed" if key else "")


def test_keys_in_an_archive_that_only_go_reads_are_noted(write: Write) -> None:
    tree = write({"web/Chart.yaml": chart("web")})
    Path("web/charts").mkdir()
    Path("web/charts/x-1.tgz").write_bytes(packing.archive("x", {"Chart.yaml": chart("x", Name="y").encode()}))
    assert builders.doubt(tree, "web", Builder.SOMEBODY) == "the key Name of a chart is not followed"


# Builds


WEB = {"web/Chart.yaml": chart("web", dependency())}
COPY = {"web/charts/lib/Chart.yaml": chart("lib"), "web/charts/lib/templates/p": "a"}
OTHER = {**COPY, "web/charts/lib/templates/p": "b"}
LOCKED = {**OTHER, "web/Chart.lock": lock(dependency(version="1.0.0"), MORE)}
FETCHED = {"web/Chart.yaml": chart("web", dependency(repository=FAR))}


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({**WEB, **CHARTS}, ""),
        ({**WEB, **CHARTS, **COPY}, ""),
        ({**WEB, **CHARTS, **OTHER}, "lib"),
        ({**WEB, **CHARTS, "web/charts/x/Chart.yaml": chart("lib"), "web/charts/x/templates/p": "b"}, "lib"),
        ({**WEB, **OTHER}, "lib"),
        (FETCHED, ""),
        ({**FETCHED, **COPY}, "lib"),
        ({**FETCHED, "web/charts/x/Chart.yaml": chart("lib")}, "lib"),
        ({**FETCHED, "web/charts/x/Chart.yaml": chart("x")}, ""),
        ({"web/Chart.yaml": chart("web", dependency(repository="")), **COPY}, ""),
    ],
)
def test_a_build_of_dependencies_may_add_one_next_to_another_of_its_name(
    write: Write, files: dict[str, str], name: str
) -> None:
    found = builders.doubt(write(files), "web", Builder.HELMFILE)
    assert found == (f'Helmfile adds its dependency "{name}" next to another of that name' if name else "")


def test_a_dependency_that_cannot_be_packed_is_noted(write: Write) -> None:
    tree = write({**WEB, **CHARTS, **COPY, "lib/.helmignore": "[^a]\n"})
    assert "lib/.helmignore has" in builders.doubt(tree, "web", Builder.HELMFILE)


@pytest.mark.parametrize("text", ["a", "b"])
@pytest.mark.parametrize("place", ["lib-1.0.0.tgz", "lib-0.9.0.tgz"])
@pytest.mark.parametrize("builder", Builder)
@pytest.mark.parametrize("lacks", [False, True])
def test_a_build_of_dependencies_may_replace_an_archive(
    write: Write, place: str, text: str, builder: Builder, lacks: bool
) -> None:
    """Helmfile always builds, Argo CD does if a dependency is missing, and Flux adds only that one."""
    tree = write({**CHARTS, "web/Chart.yaml": chart("web", dependency(), *([MORE] if lacks else []))})
    packed(f"web/charts/{place}", "lib", text)
    builds = builder is Builder.HELMFILE or (builder is Builder.ARGO and lacks)
    assert ("next to another" in builders.doubt(tree, "web", builder)) == (builds and text == "b")


@pytest.mark.parametrize("builder", Builder)
@pytest.mark.parametrize("lacks", [False, True])
@pytest.mark.parametrize("name", ["lib", "old"])
def test_a_build_of_dependencies_removes_an_archive_that_none_names(
    write: Write, builder: Builder, lacks: bool, name: str
) -> None:
    tree = write({**CHARTS, "web/Chart.yaml": chart("web", *([dependency(), MORE] if lacks else [dependency()]))})
    write({} if lacks else COPY)
    packed(f"web/charts/{name}-1.0.0.tgz", name)
    builds = builder is Builder.HELMFILE or (builder is Builder.ARGO and lacks)
    found = builders.doubt(tree, "web", builder)
    assert (found == f"{builder} removes charts/old-1.0.0.tgz, which no dependency names") == (builds and name == "old")


@pytest.mark.parametrize(("more", "noted"), [({}, False), ({"dependencies": []}, True)])
def test_a_chart_without_a_list_of_dependencies_keeps_its_archives(
    write: Write, more: dict[str, Any], noted: bool
) -> None:
    tree = write({"web/Chart.yaml": chart("web", **more)})
    packed("web/charts/old-1.0.0.tgz", "old")
    assert bool(builders.doubt(tree, "web", Builder.HELMFILE)) == noted


# Flux


@pytest.mark.parametrize(
    ("url", "noted"),
    [
        (LIB, False),
        ("file://../lib/", False),
        ("file://../lib#1", True),
        ("file://../lib?x", True),
        ("file://..%2Flib", True),
        ("file://x@../lib", True),
        ("file:///lib", True),
        ("file://../../lib", True),
        ("", True),
        (FAR, False),
    ],
)
def test_an_address_that_flux_reads_otherwise_is_noted(write: Write, url: str, noted: bool) -> None:
    files = {"web/Chart.yaml": chart("web", dependency(repository=url))}
    tree = write({**CHARTS, **files, "lib#1/Chart.yaml": chart("lib")})
    assert bool(builders.doubt(tree, "web", Builder.FLUX)) == noted
    assert builders.doubt(write(COPY), "web", Builder.FLUX) == ""  # it adds nothing


@pytest.mark.parametrize(
    ("own", "more", "noted"),
    [
        (OTHER, [MORE], True),
        (COPY, [MORE], False),
        (OTHER, [], False),
        (LOCKED, [MORE], False),
        ({**LOCKED, "web/.helmignore": "*.lock\n"}, [MORE], True),
        ({**OTHER, "web/.helmignore": "!x\n"}, [], True),
        ({**OTHER, "web/charts/lib/Chart.yaml": chart("batch")}, [MORE], False),
    ],
)
def test_flux_looks_for_an_alias_among_the_names_of_charts(
    write: Write, own: dict[str, str], more: list[dict[str, str]], noted: bool
) -> None:
    tree = write({**CHARTS, **own, "web/Chart.yaml": chart("web", dependency(alias="batch"), *more)})
    assert ("next to another" in builders.doubt(tree, "web", Builder.FLUX)) == noted


def test_flux_adds_a_chart_of_another_name(write: Write) -> None:
    tree = write({**CHARTS, "web/Chart.yaml": chart("web", dependency("x"))})
    assert builders.doubt(tree, "web", Builder.FLUX) == 'Flux adds "lib" for its dependency "x"'
    assert builders.doubt(tree, "web", Builder.ARGO) == ""


@pytest.mark.parametrize("near", [True, False])
def test_a_link_to_a_chart_leads_to_other_dependencies_for_argo_cd(write: Write, near: bool) -> None:
    files = {"a/web/Chart.yaml": chart("web", dependency()), "a/lib/Chart.yaml": chart("lib")}
    tree = write({**files, **({} if near else {"b/lib/Chart.yaml": chart("lib")})})
    Path("b").mkdir(exist_ok=True)
    Path("b/web").symlink_to("../a/web")
    if near:
        Path("b/lib").symlink_to("../a/lib")
    assert ("follows the link" in builders.doubt(tree, "b/web", Builder.ARGO)) is not near
    assert builders.doubt(tree, "a/web", Builder.ARGO) == builders.doubt(tree, "b/web", Builder.HELMFILE) == ""


def test_of_very_many_packed_dependencies_none_is_compared(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = write({**CHARTS, "web/Chart.yaml": chart("web", dependency(), dependency("more", FAR))})
    for name in ("lib", "more"):
        packed(f"web/charts/{name}-1.0.0.tgz", name)
    assert builders.doubt(tree, "web", Builder.ARGO) == ""
    monkeypatch.setattr(builders, "MOST_PAIRS", 3)
    assert "too many" in builders.doubt(Tree(str(Path.cwd())), "web", Builder.ARGO)
    assert builders.doubt(tree, "web", Builder.SOMEBODY) == ""
