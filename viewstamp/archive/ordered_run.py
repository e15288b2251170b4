"""The run of a stream, read by positions in the topic: the order in the description of its file gives them.

The column ``global_position`` of the file is not read, because the description has a checksum, and the column is only
compared with it when a whole file is verified.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from viewstamp.archive.columns import load_arrow, number_array
from viewstamp.archive.run_file import RunReader, damaged_run
from viewstamp.client.stream_ranges import StreamRange
from viewstamp.wire.run_order import RunOrder

__all__ = ["order_of", "read_ordered", "with_positions"]


def order_of(reader: RunReader, part: StreamRange, name: str) -> RunOrder:
    """Return the order of the records of the file ``name``, which has all of a part.

    Raises:
      CorruptionError: the file does not have the records of the part, or not at positions within it, so it is not the
        file that the catalogue describes.
    """
    footer = reader.footer
    order = footer.read_order(name)
    if order is None:
        raise damaged_run(name, "it is not that of a stream")
    if not footer.first <= part.first < part.last_end <= footer.end:
        raise damaged_run(
            name, f"it has the records {footer.first} to {footer.end - 1}, not {part.first} to {part.last_end - 1}"
        )
    [first], [last] = order.positions(part.first, 1), order.positions(part.last_end - 1, 1)
    if first < part.start or last >= part.end:
        raise damaged_run(
            name,
            f"the records {part.first} to {part.last_end - 1} of stream {part.stream} have the positions {first} to"
            f" {last}, and the plan has them at {part.start} to {part.end - 1}",
        )
    return order


def read_ordered(reader: RunReader, part: StreamRange, name: str) -> Iterator[Any]:
    """Yield the records of a part as Arrow tables, verified, by position; ``position`` is that in the topic.

    Raises:
      CorruptionError: as :func:`order_of`, and as ``RunReader.read``.
    """
    order, at = order_of(reader, part, name), part.first
    for table in reader.read(part.first, part.last_end):
        yield with_positions(table, order, at)
        at += table.num_rows


def with_positions(table: Any, order: RunOrder, first: int) -> Any:
    """Return the records of a run from its record ``first`` on with their positions in the topic."""
    arrow, count = load_arrow(), table.num_rows
    positions = number_array(arrow.int64(), count, [order.positions(first, count)])
    return table.set_column(table.schema.get_field_index("position"), "position", arrow.chunked_array([positions]))
