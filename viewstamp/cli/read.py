"""``viewstamp read``: prints the records of a topic, and can follow it."""

from __future__ import annotations

import base64
import json
import sys
from contextlib import aclosing
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from viewstamp.cli.options import ClusterOption, DirOption, MaxStalenessOption, TimeoutOption, print_staleness
from viewstamp.cli.rows import as_json_row
from viewstamp.cli.unordered import WAIT_SECONDS, wait_for_positions
from viewstamp.local.find import find_cluster
from viewstamp.terminal.loop import run_async
from viewstamp.terminal.output import say

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
"""Control characters, line separators and characters that reverse the direction of text; not the tab."""


class ReadOutput(StrEnum):
    """The format of printed records: the values alone, one JSON object a line, or columns for people."""

    RAW = "raw"
    JSON = "json"
    TABLE = "table"


ReadOutputOption = Annotated[
    ReadOutput, typer.Option("--output", help="raw: the values; json: one object a line; table: columns.")
]


def read(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    start: Annotated[
        int | None, typer.Option("--from", metavar="P", min=1, help="First position. [default: the first that is kept]")
    ] = None,
    last: Annotated[int | None, typer.Option("--to", metavar="P", min=1, help="Last position, inclusive.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Stop after N records.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for new records, and print them too.")] = False,
    stream: Annotated[
        int | None,
        typer.Option("--stream", metavar="N", min=1, help="One stream of a topic with streams. [default: all]"),
    ] = None,
    node: Annotated[
        str | None, typer.Option("--node", metavar="NODE", help="Read the records that this member has applied.")
    ] = None,
    stale: Annotated[
        bool, typer.Option("--stale", help="Let any node answer at once, and print how old its state is.")
    ] = False,
    max_staleness: MaxStalenessOption = None,
    rows: Annotated[
        bool, typer.Option("--rows", help="Print each value as a row by the schema of the topic: a JSON object.")
    ] = False,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: ReadOutputOption = ReadOutput.RAW,
) -> None:
    """Print records in order. Without --follow it ends at the last record that was committed when it began.

    A topic with streams is read in its one order. Records that have no position in it after two seconds are counted
    on stderr, and not printed. The timeout applies to each answer of a node. With --follow the command waits for new
    records without a limit.
    """
    if last is not None and start is not None and last < start:
        raise typer.BadParameter(f"--to {last} is before --from {start}")
    stale = stale or max_staleness is not None
    if stale and follow:
        raise typer.BadParameter("--stale prints the age of the last record, and --follow has none: drop one of them")
    target = find_cluster(directory, cluster)

    async def copy() -> None:
        printer = RecordPrinter(output, at_once=follow)
        left = limit or -1  # Without a limit it never becomes 0.
        async with target.connect(timeout) as client:
            end = None if last is None else last + 1
            schema = await client.get_schema(topic, timeout=timeout) if rows else None
            if stale:
                answer = await client.read_stale(
                    topic, start, end=end, max_staleness=max_staleness, node=node, stream=stream
                )
                print_staleness(answer, as_json=output is ReadOutput.JSON)
                records = answer.value
            else:
                if not follow and stream is None:
                    _say_waiting(topic, await wait_for_positions(client, topic, min(WAIT_SECONDS, timeout)))
                records = client.read(topic, start, end=end, follow=follow, node=node, stream=stream)
            try:
                async with aclosing(records):
                    async for record in records:
                        printer.write(record if schema is None else as_json_row(schema, record))
                        left -= 1
                        if not left:
                            break
            finally:
                printer.flush()  # Also the records before one that is no row, or was trimmed.

    run_async(copy())


def _say_waiting(topic: str, waiting: int) -> None:
    if waiting:
        what = "1 appended record" if waiting == 1 else f"{waiting:,} appended records"
        say(f"not printed, because without a position yet: {what} of {topic}; see `viewstamp topic describe {topic}`")


def formatter(output: ReadOutput) -> Callable[[Record], bytes]:
    """Return the function that turns a record into its printed line."""
    match output:
        case ReadOutput.RAW:
            return lambda record: record.value + b"\n"
        case ReadOutput.JSON:
            return as_json
        case ReadOutput.TABLE:
            return _as_columns


def as_json(record: Record) -> bytes:
    """Return a record as one JSON object and a newline. Bytes that are not UTF-8 are base64 under another key."""
    position, term, index, timestamp, value, key, headers = record
    # Concatenated by hand, because that takes half the time of encoding a dictionary and happens for every record.
    line = f'{{"position": {position}, "term": {term}, "index": {index}, "timestamp": {timestamp}'
    if (stream := getattr(record, "stream", None)) is not None:
        line += f', "stream": {stream}, "stream_position": {getattr(record, "stream_position", 0)}'
    line += _text_or_base64("value", value)
    if key is not None:
        line += _text_or_base64("key", key)
    if headers:
        line += _headers(headers)
    return (line + "}\n").encode()


def _headers(headers: Mapping[str, bytes]) -> str:
    """Return headers as one JSON object by name; those that are not UTF-8 as base64 in a second object."""
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
    stream = f"{number:>3}  " if (number := getattr(record, "stream", 0)) else ""
    return (
        f"{record.position:>10}  {stream}{time}  {_printable(record.key or b'')}  {_printable(record.value)}\n".encode()
    )


def _printable(data: bytes) -> str:
    """Return text that is safe on a terminal, because control characters in a record could change the terminal."""
    return data.decode("utf-8", "backslashreplace").translate(_ESCAPED)


class RecordPrinter:
    """Prints records to stdout in large writes, because one write for each record would cost more than reading it."""

    def __init__(self, output: ReadOutput, *, at_once: bool = False) -> None:
        self._stream = sys.stdout.buffer
        self._format = formatter(output)
        self._bytes_max = 0 if at_once else WRITE_BYTES
        self._lines: list[bytes] = []
        self._size = 0

    def write(self, record: Record) -> None:
        """Print a record, at the latest with the next :meth:`flush`."""
        line = self._format(record)
        self._lines.append(line)
        self._size += len(line)
        if self._size >= self._bytes_max:
            self.flush()

    def flush(self) -> None:
        """Print the gathered records."""
        self._stream.write(b"".join(self._lines))
        self._stream.flush()
        self._lines.clear()
        self._size = 0
