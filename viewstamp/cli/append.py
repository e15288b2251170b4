"""``viewstamp append``: appends one record for each line, and always reports how many were acknowledged."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from viewstamp.cli.options import ClusterOption, DirOption, OutputOption, TimeoutOption
from viewstamp.errors import UnavailableError, UnknownTopicError
from viewstamp.local.find import find_cluster
from viewstamp.local.target import ClusterTarget
from viewstamp.terminal.bulk import Appended, KeyedChunk, append_chunks
from viewstamp.terminal.lines import chunks_of, opened
from viewstamp.terminal.loop import run_async
from viewstamp.terminal.output import Output, print_json

if TYPE_CHECKING:
    from viewstamp.client.aio import Client

__all__ = [
    "append",
]


def append(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="An existing topic.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file of lines; - is stdin.")] = "-",
    raw: Annotated[bool, typer.Option("--raw", help="Append the whole input as one record.")] = False,
    rows: Annotated[
        bool, typer.Option("--rows", help="Each line is a row as a JSON object, checked by the schema of the topic.")
    ] = False,
    key: Annotated[str | None, typer.Option("--key", metavar="K", help="The key of every record.")] = None,
    keyed: Annotated[
        bool, typer.Option("--keyed", help="Each line is a key, a tab and a value. An empty value deletes the key.")
    ] = False,
    expected_position: Annotated[
        int | None,
        typer.Option(
            "--expected-position", metavar="P", min=1, help="Append only if the first record gets position P."
        ),
    ] = None,
    stream: Annotated[
        int | None,
        typer.Option(
            "--stream", metavar="N", min=1, help="The stream of a topic with streams. [default: one after the other]"
        ),
    ] = None,
    ordered: Annotated[
        bool,
        typer.Option("--ordered", help="Keep the order of the lines over all streams, and show global positions."),
    ] = False,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> int:
    """Append each line of a file, without its newline, as one record. Bytes are kept as they are.

    An empty input appends nothing and exits with 0, so that a pipeline which filters lines does not fail.

    With --expected-position each record follows directly after the one before. If another writer comes between, no
    further record is appended, and the exit code is 5.

    Of a topic with streams, the order of the lines is kept within each stream. With --stream it is kept for all, and
    with --ordered also over several streams, which takes longer.
    """
    if raw and rows:
        raise typer.BadParameter("--raw makes one record of the input, and --rows one of each line: drop one of them")
    if keyed and (raw or rows or key is not None):
        raise typer.BadParameter("--keyed takes lines of a key and a value: drop --raw, --rows and --key")
    target = find_cluster(directory, cluster)
    appended = Appended()
    try:
        with opened(file) as descriptor, _progress(descriptor, output) as advance:
            run_async(
                _append(
                    *(target, topic, descriptor, appended),
                    raw=raw,
                    rows=rows,
                    key=key,
                    keyed=keyed,
                    expected_position=expected_position,
                    stream=stream,
                    ordered=ordered,
                    timeout=timeout,
                    advance=advance,
                )
            )
    finally:
        _print(topic, appended, output)
    if appended.error is not None:
        if appended.acknowledged and isinstance(appended.error, UnavailableError):
            appended.error.message = appended.error.message.replace(
                "; nothing was written", "; nothing more was written"
            )
        raise appended.error
    return 0


async def _append(
    target: ClusterTarget,
    topic: str,
    descriptor: int,
    appended: Appended,
    *,
    raw: bool,
    rows: bool,
    key: str | None,
    keyed: bool,
    expected_position: int | None,
    stream: int | None,
    ordered: bool,
    timeout: float,
    advance: Callable[[int], None],
) -> None:
    from viewstamp.terminal.lines import read_all, read_lines

    async with target.connect() as client:
        try:
            has_streams = await _check_topic(client, topic, stream, timeout)
        except UnavailableError as error:
            error.message = error.message.replace("; nothing was read", "; nothing was written")
            raise
        limit = client.record_bytes_max
        if raw:
            data = await read_all(descriptor, limit)
            chunks = _one([data] if data else [])
        else:
            chunks = chunks_of(read_lines(descriptor, limit), advance)
            if rows:
                from viewstamp.cli.rows import encoded_rows

                chunks = encoded_rows(await client.get_schema(topic, timeout=timeout), chunks)
        await append_chunks(
            *(client, topic, _with_keys(chunks, key, keyed, has_streams), appended),
            timeout=timeout,
            expected_position=expected_position,
            stream=stream,
            ordered=ordered,
        )


async def _check_topic(client: Client, topic: str, stream: int | None, timeout: float) -> bool:
    """Return whether records go to several streams. Reject an unknown topic before any input is read."""
    if stream is not None:
        await client.describe_stream(topic, stream, timeout=timeout)
        return False
    try:
        await client.describe_topic(topic, timeout=timeout)
    except UnknownTopicError:
        with contextlib.suppress(UnknownTopicError):
            await client.describe_spread_topic(topic, timeout=timeout)
            return True
        raise
    return False


def _with_keys(
    chunks: AsyncIterator[list[bytes]], key: str | None, keyed: bool, has_streams: bool
) -> AsyncIterator[KeyedChunk] | AsyncIterator[list[bytes]]:
    """Return the chunks with the keys that the options give their records."""
    from viewstamp.cli.keyed_lines import single_records, split_lines, with_key

    if keyed:
        return single_records(split_lines(chunks)) if has_streams else split_lines(chunks)
    return chunks if key is None else with_key(key.encode(), chunks)


async def _one(values: list[bytes]) -> AsyncIterator[list[bytes]]:
    if values:
        yield values


def _print(topic: str, appended: Appended, output: Output) -> None:
    streams = sorted(appended.streams)
    if len(streams) > 1:
        appended.first_position = appended.last_position = None
    if output is Output.JSON:
        print_json(
            {
                "topic": topic,
                "acknowledged": appended.acknowledged,
                "first_position": appended.first_position,
                "last_position": appended.last_position,
                "durability": appended.durability,
                "unknown": appended.unknown,
                **({"streams": streams} if streams else {}),
                **(
                    {
                        "first_global_position": appended.first_global_position,
                        "last_global_position": appended.last_global_position,
                    }
                    if appended.last_global_position
                    else {}
                ),
            }
        )
        return
    first, last = appended.first_position, appended.last_position
    ordered = appended.last_global_position is not None
    if ordered:
        first, last = appended.first_global_position, appended.last_global_position
    where = "" if first is None else f": position {first:,}" if first == last else f": positions {first:,} to {last:,}"
    where = where.replace(": ", ": global ", 1) if ordered and streams else where
    within = f", stream{'s' * (len(streams) > 1)} {', '.join(map(str, streams))}" if streams else ""
    unknown = f"; {appended.unknown:,} more may or may not have been appended" if appended.unknown else ""
    count = f"{appended.acknowledged:,} record{'s' * (appended.acknowledged != 1)}"
    print(f"{count} appended to {topic}{within}{where}{unknown}", flush=True)


@contextlib.contextmanager
def _progress(descriptor: int, output: Output) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr if that is a terminal and the size is known; yield the function that advances it."""
    information = os.fstat(descriptor)
    if output is Output.JSON or not sys.stderr.isatty() or not stat.S_ISREG(information.st_mode):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns: list[Any] = [BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=information.st_size)
        yield lambda taken: progress.update(task, completed=taken)
