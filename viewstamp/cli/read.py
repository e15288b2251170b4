"""``viewstamp read``: a topic's records, to the end or following it."""

from __future__ import annotations

import base64
import json
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from viewstamp.cli.options import ClusterOption, DirOption, MaxStalenessOption, TimeoutOption, print_staleness
from viewstamp.local.find import find_cluster
from viewstamp.terminal.loop import run_async

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from viewstamp.wire.batch import Record

__all__ = ["ReadOutput", "ReadOutputOption", "RecordPrinter", "as_json", "formatter", "read"]

WRITE_BYTES: Final = 256 * 1024

_encode = json.JSONEncoder(ensure_ascii=False).encode

_ESCAPED: Final = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    if code != 0x09
}
"""Control characters, line separators and those that reverse the direction of text; a tab stays."""


class ReadOutput(StrEnum):
    """How records are printed: the values alone, one object a line, or columns for people."""

    RAW = "raw"
    JSON = "json"
    TABLE = "table"


ReadOutputOption = Annotated[
    ReadOutput, typer.Option("--output", help="Values, a line each; one JSON object a line; or columns.")
]


def read(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    start: Annotated[
        int | None, typer.Option("--from", metavar="P", min=1, help="First position; else the first that is kept.")
    ] = None,
    last: Annotated[int | None, typer.Option("--to", metavar="P", min=1, help="Last position, inclusive.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what is appended later.")] = False,
    node: Annotated[
        str | None, typer.Option("--node", metavar="NODE", help="What this member alone has applied.")
    ] = None,
    stale: Annotated[
        bool, typer.Option("--stale", help="What the asked node has applied, and say how stale that is.")
    ] = False,
    max_staleness: MaxStalenessOption = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: ReadOutputOption = ReadOutput.RAW,
) -> None:
    """Print records in order; without --follow up to the commit point seen at the beginning.

    The timeout is for one answer, not for all of it: a reader that follows waits for records as long as it takes.
    """
    if last is not None and start is not None and last < start:
        raise typer.BadParameter(f"--to {last} is before --from {start}")
    stale = stale or max_staleness is not None
    if stale and follow:
        raise typer.BadParameter("what is followed does not end, so nobody can say how stale its end is: drop --follow")
    target = find_cluster(directory, cluster)

    async def copy() -> None:
        printer = RecordPrinter(output, at_once=follow)
        async with target.connect(timeout) as client:
            end = None if last is None else last + 1
            if stale:
                answer = await client.read_stale(topic, start, end=end, max_staleness=max_staleness, node=node)
                print_staleness(answer, as_json=output is ReadOutput.JSON)
                records = answer.value
            else:
                records = client.read(topic, start, end=end, follow=follow, node=node)
            async for record in records:
                printer.write(record)
        printer.flush()

    run_async(copy())


def formatter(output: ReadOutput) -> Callable[[Record], bytes]:
    """Return what turns a record into the line that is printed for it."""
    match output:
        case ReadOutput.RAW:
            return lambda record: record.value + b"\n"
        case ReadOutput.JSON:
            return as_json
        case ReadOutput.TABLE:
            return _as_columns


def as_json(record: Record) -> bytes:
    """Write a record as one JSON object and a newline; bytes that are not UTF-8 go as base64 under another key."""
    position, term, index, timestamp, value, key, headers = record
    # Put together by hand, which takes half the time of encoding a dictionary: this is paid for every record.
    line = f'{{"position": {position}, "term": {term}, "index": {index}, "timestamp": {timestamp}'
    line += _text_or_base64("value", value)
    if key is not None:
        line += _text_or_base64("key", key)
    if headers:
        line += _headers(headers)
    return (line + "}\n").encode()


def _headers(headers: Mapping[str, bytes]) -> str:
    """Write headers as one object by name; those that are not UTF-8 as base64 in a second one."""
    texts, others = {}, {}
    for name, data in headers.items():
        try:
            texts[name] = data.decode()
        except UnicodeDecodeError:
            others[name] = base64.b64encode(data).decode()
    line = f', "headers": {_encode(texts)}'
    return line + (f', "headers_base64": {_encode(others)}' if others else "")


def _text_or_base64(name: str, data: bytes) -> str:
    try:
        return f', "{name}": {_encode(data.decode())}'
    except UnicodeDecodeError:
        return f', "{name}_base64": "{base64.b64encode(data).decode()}"'


def _as_columns(record: Record) -> bytes:
    from datetime import UTC, datetime

    time = datetime.fromtimestamp(record.timestamp / 1e6, UTC).isoformat(sep=" ", timespec="milliseconds")
    return f"{record.position:>10}  {time}  {_printable(record.key or b'')}  {_printable(record.value)}\n".encode()


def _printable(data: bytes) -> str:
    """Return text that a terminal only shows: control characters in a record could do anything with it."""
    return data.decode("utf-8", "backslashreplace").translate(_ESCAPED)


class RecordPrinter:
    """Prints records to stdout; gathers them, because a write for each would cost more than reading it."""

    def __init__(self, output: ReadOutput, *, at_once: bool = False) -> None:
        self._stream = sys.stdout.buffer
        self._format = formatter(output)
        self._bytes_max = 0 if at_once else WRITE_BYTES
        self._lines: list[bytes] = []
        self._size = 0

    def write(self, record: Record) -> None:
        """Print a record, now or soon."""
        line = self._format(record)
        self._lines.append(line)
        self._size += len(line)
        if self._size >= self._bytes_max:
            self.flush()

    def flush(self) -> None:
        """Print what was gathered."""
        self._stream.write(b"".join(self._lines))
        self._stream.flush()
        self._lines.clear()
        self._size = 0
