"""Tables as text, and sizes in words."""

from __future__ import annotations

from typing import Any, List, Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], right: Sequence[int] = ()) -> str:
    """Lines with columns as wide as they need. `right`: the numbers of columns whose values end at the right."""
    cells: List[List[str]] = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    return "".join("  ".join(cell.rjust(widths[i]) if i in right else cell.ljust(widths[i])
                             for i, cell in enumerate(row)).rstrip() + "\n" for row in cells)


def size_text(size_bytes: Any) -> str:
    """3.8 MiB; "unknown" for None."""
    if size_bytes is None:
        return "unknown"
    if size_bytes < 1024:
        return f"{size_bytes} B"
    value, units = float(size_bytes), ["KiB", "MiB", "GiB", "TiB", "PiB"]
    value /= 1024
    while value >= 1023.95 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.1f} {units[0]}"


def describe(tensor: Any) -> str:
    """The tensor's dtype and shape: "float32 [32, 10]"."""
    return f"{str(tensor.dtype).rpartition('.')[2]} {list(tensor.shape)}"
