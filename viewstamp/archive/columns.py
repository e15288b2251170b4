"""Columns of batches as Arrow arrays, without copies of the bytes. Needs pyarrow."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

import msgpack

from viewstamp.errors import ConfigError, FrameError
from viewstamp.wire.batch import Buffer, Column

__all__ = ["binary_array", "check_arrow", "header_maps", "load_arrow", "number_array", "rising", "scalar"]


def check_arrow() -> None:
    """Check, without loading it, that pyarrow can be used here. Raises ConfigError."""
    if find_spec("pyarrow") is None:
        raise _no_arrow("not found")
    _check_byteorder()


def load_arrow() -> Any:
    """Return the module pyarrow with its Parquet part. Raises ConfigError where it cannot be used."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise _no_arrow(str(error)) from error
    _check_byteorder()
    return pyarrow


def _no_arrow(why: str) -> ConfigError:
    return ConfigError(
        f"runs of archived records need pyarrow, which is not installed ({why})",
        remedy="pip install 'viewstamp[archive]'",
    )


def _check_byteorder() -> None:
    if sys.byteorder != "little":
        raise ConfigError("runs of archived records need a little-endian machine", remedy="use another node for it")


def binary_array(column: Column, count: int, validity: Buffer | None) -> Any:
    """Return a column of byte strings as an Arrow array.

    Raises:
      FrameError: its offsets do not rise inside its bytes. Servers never look at them, so a client can send such ones.
    """
    import pyarrow as arrow

    buffers = [
        None if validity is None else arrow.py_buffer(validity),
        arrow.py_buffer(bytes(column.offsets)),
        arrow.py_buffer(column.data),
    ]
    found = arrow.Array.from_buffers(arrow.binary(), count, buffers)
    try:
        found.validate(full=True)
    except arrow.ArrowInvalid as error:
        raise FrameError(f"a column of a batch has an invalid layout: {error}") from None
    return found


def number_array(kind: Any, count: int, parts: Iterable[array[int]]) -> Any:
    """Return numbers of one kind, such as ``pyarrow.int64()``, as an Arrow array."""
    import pyarrow as arrow

    return arrow.Array.from_buffers(kind, count, [None, arrow.py_buffer(b"".join(parts))])


def scalar(kind: Any, value: int | str | bytes | None) -> Any:
    """Return a value of a fixed-width kind, or of a kind of bytes or text, as an Arrow scalar.

    ``pyarrow.scalar`` and ``pyarrow.array`` import pandas, if it is installed. That takes each new worker of Spark
    about 0.4 s of processor time, for nothing.
    """
    import pyarrow as arrow

    if value is None:
        return arrow.nulls(1, kind)[0]
    if isinstance(value, int):
        parts = [value.to_bytes(kind.bit_width // 8, "little", signed=True)]
    else:
        data = value.encode() if isinstance(value, str) else value
        parts = [array("i", [0, len(data)]).tobytes(), data]
    return arrow.Array.from_buffers(kind, 1, [None, *map(arrow.py_buffer, parts)])[0]


def rising(first: int, count: int) -> array[int]:
    """Return ``count`` numbers from ``first`` on."""
    return array("q", range(first, first + count))


def header_maps(source: object, packed: Any) -> Any:
    """Return the maps of an Arrow array of msgpack maps, as ``map<string, binary>``; null for empty or null bytes.

    ``source`` is for messages. Raises FrameError: one is no map of strings to bytes, so its writer is faulty.
    """
    import pyarrow as arrow

    if packed.null_count == len(packed):
        return arrow.nulls(len(packed), arrow.map_(arrow.string(), arrow.binary()))
    names: list[str] = []
    values: list[bytes] = []
    ends: list[int | None] = []  # None at the start of a map = it is null.
    try:
        for each in packed.to_pylist():
            ends.append(len(names) if each else None)
            if each:
                headers = msgpack.unpackb(each)
                names += headers
                values += headers.values()
    except (AttributeError, TypeError, ValueError, msgpack.exceptions.UnpackException) as error:
        raise FrameError(f"the headers of a record of {source!r} are not a msgpack map: {error}") from error
    if not ({*map(type, names)} <= {str} and {*map(type, values)} <= {bytes}):
        raise FrameError(f"the headers of a record of {source!r} are not a map of strings to bytes")
    offsets = arrow.array([*ends, len(names)], arrow.int32())
    return arrow.MapArray.from_arrays(offsets, arrow.array(names, arrow.string()), arrow.array(values, arrow.binary()))
