"""Describes the parts of a repository that were not rendered, in one line for each kind of gap."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from webhook.repository import programs
from webhook.text.words import listed, several, shown

NAMED = 3
"""Roots or addresses that a line names."""


def several_of(names: Sequence[str], what: str) -> str:
    """Write the name of one thing, or the number of several with the name of the first."""
    if len(names) == 1:
        return f"{what} {shown(names[0], quotes=False)}"
    return f"{several(len(names), what)} ({listed([shown(name, quotes=False) for name in names], NAMED)})"


@dataclass
class Gaps:
    """The parts of a repository that were not rendered. The lists name roots."""

    lacking: dict[str, list[str]] = field(default_factory=dict)
    """By the reason why a part of them is not seen."""
    absent: dict[str, None] = field(default_factory=dict)
    """Missing files that kustomizations name, each with the place that names it."""
    idle: dict[str, None] = field(default_factory=dict)
    """Places of patches that select nothing."""
    remote: dict[str, list[str]] = field(default_factory=dict)
    """By the remote resource that they include."""
    unpulled: dict[str, list[str]] = field(default_factory=dict)
    """By the command that brings their chart."""
    followed: list[str] = field(default_factory=list)
    """Followed by the files, without the program."""
    hidden: list[str] = field(default_factory=list)
    """Not rendered, or not as its object says, each with the reason."""
    open: list[str] = field(default_factory=list)
    """Rendered with placeholders in their values or namespaces, because no file fills these in."""
    components: list[str] = field(default_factory=list)
    """Components of kustomize that nothing includes."""
    elsewhere: list[str] = field(default_factory=list)
    """Not rendered because another repository has it, each with the reason."""

    @property
    def unjudged(self) -> list[str]:
        """Roots of which something that is deployed is not judged, or not as it is deployed."""
        return [*self.hidden, *chain.from_iterable(self.lacking.values())]

    def lines(self) -> Iterator[str]:
        """Describe the parts that were not rendered, and how to render them."""
        if self.followed and not programs.kustomize():
            yield (
                f"{several(len(self.followed), 'kustomization')} followed by the files, without kustomize on PATH: "
                f"not all of {several_of(self.followed, 'root')} is seen"
            )
        if self.remote:
            names = several_of([*self.remote], "remote resource")
            yield f"{names} of kustomizations not seen; --fetch downloads them"
        if self.absent:
            words = (
                "file that a kustomization names is" if len(self.absent) == 1 else "files that kustomizations name are"
            )
            yield f"{len(self.absent):,} {words} not there; the rest is judged: {listed([*self.absent], NAMED)}"
        if self.idle:
            words = "patch selects" if len(self.idle) == 1 else "patches select"
            yield f"{len(self.idle):,} {words} no object: {listed([*self.idle], NAMED)}"
        for reason, roots in self.lacking.items():
            yield f"{several_of(roots, 'root')}: {reason}; the rest of it is judged"
        if self.open:
            named = listed(self.open, NAMED)
            yield f"rendered with placeholders in values or namespaces that no file fills in: {named}"
        if self.components:
            names = several_of(self.components, "component")
            yield f"{names} of kustomize included by nothing; patches there are judged only with resources there"
        if self.unpulled:
            command, roots = next(iter(self.unpulled.items()))
            count = several(sum(map(len, self.unpulled.values())), "release")
            others = f", and {several(len(self.unpulled) - 1, 'more chart')}" if len(self.unpulled) > 1 else ""
            yield (
                f"{count} of charts that are not in the repository, not rendered; --fetch downloads them, or: "
                f"{command} ({roots[0]}){others}"
            )
        if gone := [*dict.fromkeys((*self.hidden, *self.elsewhere))]:
            yield f"not rendered, or not with all values: {listed(gone, NAMED)}"
