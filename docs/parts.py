"""Writes the parts of pages that are made of the code, between two marks in each: `make docs`."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.layers import LAYERS
from webhook.proving.ways import CHANGES, WAYS
from webhook.reports import formats
from webhook.text import tables

ROOT = Path(__file__).resolve().parent.parent
CONTRIBUTING, CHECK, PROVE = ROOT / "CONTRIBUTING.md", ROOT / "docs" / "check.md", ROOT / "docs" / "prove.md"
PROOF, REPORTS = ROOT / "docs" / "schemas" / "proofreport.json", ROOT / "webhook" / "reports"
PACKAGES, FORMATS, THE_WAYS = "packages", "formats", "ways"


def pages() -> dict[Path, str]:
    """Return the text of each page that has such a part. Raises ValueError if a mark is missing."""
    return {
        CONTRIBUTING: marked(CONTRIBUTING.read_text("utf-8"), PACKAGES, packages()),
        CHECK: marked(CHECK.read_text("utf-8"), FORMATS, _formats()),
        PROVE: marked(PROVE.read_text("utf-8"), THE_WAYS, _ways()),
        PROOF: (REPORTS / "proofreport.schema.json").read_text("utf-8"),
    }


def marked(text: str, name: str, part: str) -> str:
    """Put a part between the marks of its name. Raises ValueError unless each of them stands in the text once."""
    begin, end = f"<!-- {name}: written by `make docs` -->\n", f"<!-- end of the {name} -->\n"
    return filled(text, begin, end, part)


def filled(text: str, begin: str, end: str, part: str) -> str:
    """Put a part between two marks. Raises ValueError unless each of them stands in the text once."""
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"it needs both marks once: {begin}{end}")
    head, _, rest = text.partition(begin)
    return f"{head}{begin}{part}{end}{rest.partition(end)[2]}"


def packages() -> str:
    """Draw the layers, highest first, each of its packages with the first sentence of its docstring."""
    layers = [[*map(_package, sorted(layer))] for layer in reversed(LAYERS) if layer != ("__main__",)]
    width = max(len(name) for layer in layers for name, _ in layer) + 2
    drawn = "\n\n".join("\n".join(f"  {name:<{width}}{words}" for name, words in layer) for layer in layers)
    return f"```\nwebhook/\n{drawn}\n```\n"


def _package(name: str) -> tuple[str, str]:
    folder = ROOT / "webhook" / name
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    page = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    return f"{name}/" if folder.is_dir() else file.name, page.partition("\n")[0]


def _ways() -> str:
    shut = {False: "a denial", True: "a patch"}
    parts = []
    for title, ways in (("the pod has", WAYS), ("a pod that exists gets", CHANGES)):
        rows = [(f"`{way.name}`", way.says, f"`{way.rule}`", shut[way.patched]) for way in ways]
        parts.append("".join(f"{line}\n" for line in tables.markdown(("way", title, "rule", "shut by"), rows)))
    return "\n".join(parts)


def _formats() -> str:
    rows = [
        (f"`{each.name}`", each.page.partition("\n")[0].removeprefix("Writes ").rstrip("."), ", ".join(_unshown(each)))
        for each in map(formats.load, formats.names())
    ]
    return "".join(f"{line}\n" for line in tables.markdown(("format", "writes", "leaves out"), rows))


def _unshown(each: formats.Format) -> Iterator[str]:
    shown = (each.problems, each.notes, each.exempted, each.repaired)
    words = ("errors and warnings", "notes", "exempted findings", "what would be repaired")
    return (word for word, there in zip(words, shown, strict=True) if not there)


if __name__ == "__main__":
    for file, text in pages().items():
        file.write_text(text, "utf-8")
