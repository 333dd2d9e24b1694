"""How charts are packed, and which charts next to each other Helm cannot tell apart."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.trees import Write
from webhook.repository import chart_folders, packing
from webhook.repository.tree import Tree, Unseen


def chart(name: str, more: str = "", version: str = "1.0.0") -> str:
    return f"apiVersion: v2\nname: {name}\nversion: {version}\n{more}"


def on(name: str) -> str:
    return f"dependencies: [{{name: {name}, version: 1.0.0, repository: 'file://../{name}'}}]\n"


CHAIN = {
    "web/Chart.yaml": chart("web", on("lib")),
    "lib/Chart.yaml": chart("lib", on("more")),
    "more/Chart.yaml": chart("more"),
}


def test_a_dependency_has_its_own_only_if_it_was_built(write: Write) -> None:
    """`helm dependency build`, Flux and Argo CD add no dependency of a dependency."""
    tree = write(CHAIN)
    inner = {"charts/lib/Chart.yaml", "charts/lib/charts/more/Chart.yaml"}
    assert inner <= chart_folders.staged(tree, "web").files.keys()
    assert inner & chart_folders.staged(tree, "web", built=False).files.keys() == {"charts/lib/Chart.yaml"}
    assert [chart_folders.is_chained(tree, folder) for folder in ("web", "lib", "more")] == [True, False, False]


def test_a_dependency_is_packed_so_that_the_chart_around_it_ignores_no_file_in_it(write: Write) -> None:
    tree = write({**CHAIN, "web/.helmignore": "pod.yaml\n", "lib/templates/pod.yaml": "x"})
    staged = chart_folders.staged(tree, "web")
    assert "charts/lib/templates/pod.yaml" in staged.files
    assert {path for path in staged.archives if path.startswith("charts/")} == {"charts/lib-1.0.0.tgz"}
    unpacked = packing.unpacked(staged.archives["charts/lib-1.0.0.tgz"])
    assert {"Chart.yaml", "templates/pod.yaml", "charts/more/Chart.yaml"} == unpacked.keys()


@pytest.mark.parametrize("version", ["../../x", "1.0.0/x", ""])
def test_the_name_of_an_archive_leads_nowhere(write: Write, version: str) -> None:
    tree = write({**CHAIN, "lib/Chart.yaml": chart("lib", version=f"'{version}'")})
    assert "charts/lib-.tgz" in chart_folders.staged(tree, "web").archives
    write({"lib/Chart.yaml": chart("../lib")})
    with pytest.raises(Unseen, match=r"a chart has the name \S*\.\./lib"):
        chart_folders.staged(Tree(str(Path.cwd())), "web")


def test_charts_that_get_the_same_archive_are_not_packed(write: Write) -> None:
    two = "dependencies: [{name: lib, repository: 'file://../lib'}, {name: b, repository: 'file://../b'}]\n"
    tree = write({**CHAIN, "b/Chart.yaml": chart("lib"), "web/Chart.yaml": chart("web", two)})
    with pytest.raises(Unseen, match=r"several dependencies that Helm packs as charts/lib-1\.0\.0\.tgz"):
        chart_folders.staged(tree, "web")


@pytest.mark.parametrize(("vendored", "url"), [(False, "lib-1.0.0.tgz"), (True, "lib-1.0.0.tgz"), (False, "gone.tgz")])
def test_a_dependency_at_the_path_of_an_archive_is_not_seen(write: Write, url: str, *, vendored: bool) -> None:
    """Flux loads it, unless the chart has one."""
    needs = f"dependencies: [{{name: lib, version: 1.0.0, repository: 'file://../{url}'}}]\n"
    own = {"web/charts/lib/Chart.yaml": chart("lib")} if vendored else {}
    tree = write({"web/Chart.yaml": chart("web", needs), "lib-1.0.0.tgz": "x", **own})
    if vendored or url == "gone.tgz":
        assert chart_folders.missing(tree, "web") == (set() if vendored else {"lib"})
        return
    assert not chart_folders.missing(tree, "web")
    with pytest.raises(Unseen, match=r"web has the dependency lib, which is packed: lib-1\.0\.0\.tgz"):
        chart_folders.staged(tree, "web")


def encoded(files: dict[str, str]) -> dict[str, bytes]:
    return {path: text.encode() for path, text in files.items()}


INNER = {"Chart.yaml": chart("sub"), "charts/dir/Chart.yaml": chart("_inner"), "charts/dir/templates/a": "x"}


def test_a_packed_chart_has_its_charts_in_folders_of_their_names() -> None:
    hidden = {"charts/_no/Chart.yaml": chart("no"), "charts/.no/Chart.yaml": chart("no")}
    packed = packing.archive("x", encoded({"Chart.yaml": chart("other"), "templates/a": "y"}))
    saved = packing.saved({**encoded({**INNER, **hidden}), "charts/x.tgz": packed})
    assert saved.keys() == {
        "Chart.yaml",
        "charts/_inner/Chart.yaml",
        "charts/_inner/templates/a",
        "charts/other/Chart.yaml",
        "charts/other/templates/a",
    }


@pytest.mark.parametrize(
    ("version", "key", "left"),
    [
        ("v2", "dependencies", True),
        ("v1", "dependencies", False),
        ("v1", "Dependencies", False),
        ("v1", "dependencie\u017f", False),
    ],
)
def test_a_packed_chart_of_the_first_version_loses_its_dependencies(version: str, key: str, left: bool) -> None:
    text = f"apiVersion: {version}\nname: a\n{key}: [{{name: b, condition: b.on}}]\n"
    made = packing.saved(encoded({"Chart.yaml": text}))["Chart.yaml"]
    assert (b"b.on" in made, b"name" in made) == (left, True)


@given(
    st.dictionaries(st.lists(st.text("aä.-_ ", min_size=1), min_size=1).map("/".join), st.binary(), max_size=4),
    st.text("a-", min_size=1),
)
def test_an_archive_is_unpacked_as_it_was_packed(files: dict[str, bytes], name: str) -> None:
    files = {path: data for path, data in files.items() if {".", ".."}.isdisjoint(path.split("/"))}
    assert packing.unpacked(packing.archive(name, files)) == files
    assert packing.archive(name, files) == packing.archive(name, files)


def test_an_archive_with_a_backslash_in_a_name_is_read_as_helm_reads_it() -> None:
    names = {"notes\\templates\\pod.yaml": b"", "Chart.yaml": b""}
    assert packing.unpacked(packing.archive("web", names)).keys() == {"templates/pod.yaml", "Chart.yaml"}
    with pytest.raises(Unseen, match="in an archive as a file in a folder"):
        packing.saved(names)


@pytest.mark.parametrize(
    ("own", "written"),
    [
        ("1.2.3", "1.2.3+a.1"),
        ("1.2.3-rc.1+b", "1.2.3-rc.1+a.1"),
        ("v1.2", "1.2.0+a.1"),
        ("'1'", "1.0.0+a.1"),
        ("1.2.x", ""),
        ("1.2.3 ", "1.2.3+a.1"),
        ("'1.2.3 '", ""),
        ("\u0661.0.0", ""),
        ("''", ""),
    ],
)
@pytest.mark.parametrize("key", ["version", "Version"])
def test_the_version_of_a_chart_gets_other_metadata(own: str, written: str, key: str) -> None:
    files = encoded({"Chart.yaml": f"name: web\n{key}: {own}\n"})
    if written:
        assert packing.version(files, "a.1") == written
    else:
        with pytest.raises(Unseen, match="is none"):
            packing.version(files, "a.1")


@pytest.mark.parametrize("data", [b"", b"x", b"\x1f\x8b\x08x", packing.archive("a", {"b": b"x" * 999})[:60]])
def test_a_broken_archive_is_noted(data: bytes) -> None:
    with pytest.raises(Unseen, match="an archive of a chart cannot be read"):
        packing.unpacked(data)


def test_an_archive_is_unpacked_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = packing.archive("a", {"b": b"x" * 999})
    monkeypatch.setattr(packing, "MOST_UNPACKED", 998)
    with pytest.raises(Unseen, match="more than 0 MiB"):
        packing.unpacked(packed)


def needs(*entries: str) -> dict[str, str]:
    return {"Chart.yaml": chart("web", f"dependencies: [{', '.join(entries)}]\n")}


TWO = {
    "Chart.yaml": chart("web"),
    "charts/a/Chart.yaml": chart("sub"),
    "charts/a/templates/p": "a",
    "charts/b/Chart.yaml": chart("sub"),
    "charts/b/templates/p": "b",
}
VERSIONS = {**TWO, "charts/b/Chart.yaml": chart("sub", version="2.0.0")}
ALIASES = needs("{name: sub, version: 1.0.0, alias: c}", "{name: sub, version: 2.0.0, alias: d}")


@pytest.mark.parametrize(
    ("files", "twin"),
    [
        (TWO, "sub"),
        (TWO | needs("{name: sub, version: 1.0.0}"), "sub"),
        (VERSIONS, "sub"),
        (VERSIONS | needs("{name: sub, version: '>0', alias: c}", "{name: sub, version: 2.0.0, alias: d}"), "sub"),
        (TWO | {"charts/b/Chart.yaml": chart("b")} | needs("{name: sub, version: 1.0.0, alias: b}"), "b"),
        ({f"charts/x/{path}": text for path, text in TWO.items()} | needs(), "sub"),
        (VERSIONS | ALIASES, ""),
        (TWO | {"charts/b/templates/p": "a"}, ""),
        (TWO | {"charts/b/Chart.yaml": chart("other")}, ""),
        ({path.replace("/b/", "/_b/"): text for path, text in TWO.items()}, ""),
        (TWO | {"charts/b/Chart.yaml": chart("other")} | needs("{name: sub, version: 1.0.0, alias: a}"), ""),
        ({"Chart.yaml": chart("web"), "charts/README": "", "charts/NOTICE": "x"}, ""),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_charts_of_one_name_are_twins_unless_helm_can_tell_them_apart(
    files: dict[str, str], twin: str, packed: bool
) -> None:
    found = encoded(files)
    if packed:
        found = {"Chart.yaml": chart("outer").encode(), "charts/web.tgz": packing.archive("web", found)}
    assert packing.twins(found) == twin


@pytest.mark.parametrize(("more", "twin"), [({}, "sub"), ({"charts/b/templates/p": "a"}, "sub"), ({"same": ""}, "")])
@pytest.mark.parametrize("inner", [False, True])
def test_charts_of_one_name_get_one_folder_in_an_archive(more: dict[str, str], twin: str, inner: bool) -> None:
    """Their versions do not tell them apart there. They may have the same files."""
    files = encoded({**VERSIONS, **ALIASES, **more} if "same" not in more else {**TWO, "charts/b/templates/p": "a"})
    if inner:
        files = {"Chart.yaml": chart("outer").encode(), "charts/web.tgz": packing.archive("web", files)}
    assert packing.twins(files, packed=True) == twin
    assert packing.twins(files) == ""


def test_a_folder_and_the_archive_that_helm_made_of_it_are_no_twins() -> None:
    """As `helm dependency update` leaves them, if a dependency is below `charts`."""
    files = encoded(INNER | {"charts/dir/Chart.yaml": chart("inner")})
    own, made = (
        {f"charts/sub/{path}": data for path, data in files.items()},
        packing.archive("sub", packing.saved(files)),
    )
    both = {"Chart.yaml": chart("web").encode(), **own, "charts/sub-1.0.0.tgz": made}
    assert packing.twins(both) == ""
    assert packing.twins(both | {"charts/sub/templates/more": b"x"}) == "sub"


def test_what_the_chart_around_them_leaves_out_is_no_twin(write: Write) -> None:
    tree = write({f"web/{path}": text for path, text in TWO.items()})
    assert chart_folders.staged(tree, "web").twins("web") == "sub"
    write({"web/.helmignore": "charts/b\n"})
    tree = Tree(str(Path.cwd()))
    assert chart_folders.staged(tree, "web").twins("web") == ""


def test_a_chart_within_too_many_others_is_refused() -> None:
    deep = {f"{'charts/a/' * depth}Chart.yaml": chart("a").encode() for depth in range(packing.DEEPEST + 3)}
    for work in (packing.twins, packing.saved):
        with pytest.raises(Unseen, match="more than 5 charts within each other"):
            work(deep)
