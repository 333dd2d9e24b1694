"""Replaces the values of some documents in a text of YAML or JSON."""

import json
from collections.abc import Mapping
from typing import Any

from webhook.documents import goyaml_writer
from webhook.documents.documents import Document, stream
from webhook.model import Problem


def rewrite(text: str, file: str, values: Mapping[int, Any]) -> str:
    """Return the text with new values in place of those of some documents. `values` has them by the document's number.

    The other documents of a YAML text stay as their author wrote them. So do the comments before and after a replaced
    document; comments inside it are lost. A JSON text stays JSON.
    """
    documents = [document for document in stream(text, file) if not isinstance(document, Problem)]
    if documents and documents[0].source.json:
        whole = (json.dumps(values.get(document.index, document.value), indent=2) for document in documents)
        return "".join(f"{value}\n" for value in whole)
    lines = text.splitlines(keepends=True) if "\r" not in text else text.replace("\r\n", "\n").splitlines(keepends=True)
    for document in reversed(documents):
        if document.index in values:
            start, end = document.first_line - 1, _end(document, lines)
            mark = "---\n" if lines[start].startswith("---") else ""  # the value begins on the line of its marker
            lines[start:end] = [f"{mark}{goyaml_writer.write(values[document.index])}"]
    return "".join(lines)


def _end(document: Document, lines: list[str]) -> int:
    """Return the number of lines up to the end of a document's value, without blank lines and comments after it."""
    end = min(document.source.end - 1, len(lines))
    while end > document.first_line and (not lines[end - 1].strip() or lines[end - 1].startswith("#")):
        end -= 1
    return end
