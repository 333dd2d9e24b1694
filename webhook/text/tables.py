"""Writes tables in plain text and in Markdown."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from webhook.text.words import one_line


def columns(rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> Iterator[str]:
    """Yield rows of equal length as lines with aligned columns. `right` are the indices of right-aligned columns.

    The last text of a row does not widen its column, because no text follows it in the line.
    """
    lines = [[*map(one_line, row)] for row in rows]
    widths = [_width(lines, number) for number in range(len(lines[0]) if lines else 0)]
    for line in lines:
        cells = (
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()


def _width(lines: Sequence[Sequence[str]], number: int) -> int:
    counted = (len(line[number]) for line in lines if any(line[number + 1 :]) or number + 1 == len(line))
    return max(counted, default=0)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table. The cells must be valid Markdown; `escaped` makes them so."""
    yield from map(row, (head, ["---"] * len(head), *rows))


def row(cells: Sequence[str]) -> str:
    """Write one row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def escaped(text: str) -> str:
    """Escape a text for a cell of a Markdown table."""
    return text.replace("|", "\\|")
