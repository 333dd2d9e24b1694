"""Makes the objects of one folder's kustomization, as documents, if one of them has a certain kind."""

from collections.abc import Callable

from webhook.api.fields import group_kind
from webhook.documents.documents import Document, Source
from webhook.documents.files import Item
from webhook.kustomize import following
from webhook.model import Path, Problem, Unusable
from webhook.rendering.model import Options
from webhook.rendering.rendering import render
from webhook.repository import programs
from webhook.repository.tree import Tree, root_of


class Made(Document):
    """An object that was rendered. Its places are in the files that people edit, under the names in `named`."""

    def __init__(self, item: Item, named: Callable[[str], str]) -> None:
        super().__init__(named(item.document.file), 0, item.value, item.line(), Source("", 0))
        self._item, self._named = item, named

    def line(self, path: Path = (), text_line: int = 0) -> int:
        """Return the line in the resource's own file."""
        return self._item.line(path, text_line)

    def where(self, path: Path = ()) -> tuple[str, int]:
        """Return the file and the line where the value at the path was written last."""
        file, line = self._item.where(path)
        return self._named(file), line


def documents(folder: str, kind: tuple[str, str], *, root: str = "", revision: str = "") -> list[Document]:
    """Return the objects that a folder's kustomization makes; none if none of them has the kind. Raises Unusable.

    kustomize or kubectl builds it if one is on PATH. With a `revision` the files below `root` are its copies, and are
    named as REV:PATH. It raises if a part of the kustomization cannot be read.
    """

    def named(text: str) -> str:
        return text.replace(f"{root}/", f"{revision}:") if revision else text

    tree = Tree(root_of(folder))
    name = tree.kustomization(folder)
    if not name:
        return []
    found = following.follow(tree, folder)
    if not any(group_kind(each.value) == kind for each in found.objects):
        return []
    if not programs.kustomize():
        reasons = [*found.unseen, *found.remote, *found.absent, *found.too_large]
        reasons += (f"{field} needs kustomize or kubectl on PATH" for field in sorted(found.unfollowed))
        items: list[Item] = [each.rendered(folder) for each in found.objects]
    else:
        made = render([name], Options())
        reasons = [*(str(each) for each in made.problems), *made.notes]
        items = [item for output in made.outputs for item in output.items]
    if reasons:
        raise Unusable(tuple(Problem(named(name), 0, named(f"not rendered: {reason}")) for reason in reasons))
    return [Made(item, named) for item in items]
