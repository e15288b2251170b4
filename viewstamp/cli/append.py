"""``viewstamp append``: one record a line, as fast as the cluster takes them, and always says how far it came."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from viewstamp.cli.options import ClusterOption, DirOption, Output, OutputOption, TimeoutOption, print_json
from viewstamp.cli.target import Target, run_async
from viewstamp.errors import ConfigError, OutcomeUnknownError, UnavailableError, ViewstampError

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.client.results import Receipt

__all__ = ["Appended", "append", "append_chunks", "chunks_of", "opened"]

CHUNK_BYTES: Final = 64 * 1024
CHUNK_RECORDS: Final = 2000
CHUNKS_IN_FLIGHT: Final = 32
GRACE_SECONDS: Final = 2.0


@dataclass(slots=True)
class Appended:
    """How far an append has come. ``unknown`` counts records that may or may not have been appended."""

    acknowledged: int = 0
    first_position: int | None = None
    last_position: int | None = None
    durability: str | None = None
    """How durable what was acknowledged is, in the node's words; None = nothing was."""
    unknown: int = 0
    error: BaseException | None = None
    on_receipts: Callable[[list[Receipt]], None] | None = None
    """Hears every list of receipts, in order."""

    def acknowledge(self, receipts: list[Receipt]) -> None:
        """Count what came back."""
        self.acknowledged += len(receipts)
        first, last = receipts[0].position, receipts[-1].position
        self.first_position = first if self.first_position is None else min(first, self.first_position)
        self.last_position = last if self.last_position is None else max(last, self.last_position)
        self.durability = receipts[-1].durability
        if self.on_receipts is not None:
            self.on_receipts(receipts)


def append(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="An existing topic.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where the lines are; - is stdin.")] = "-",
    raw: Annotated[bool, typer.Option("--raw", help="The whole input is one record.")] = False,
    expected_position: Annotated[
        int | None,
        typer.Option(
            "--expected-position", metavar="P", min=1, help="Append there or not at all; the other records follow it."
        ),
    ] = None,
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = 30.0,
    output: OutputOption = Output.TABLE,
) -> int:
    """Append each line of a file, without its newline, as one record. Bytes are kept as they are.

    An empty input appends nothing, and that is no error: so a pipeline that filters lines does not fail.

    With --expected-position each record stands right behind the one before, or nothing more is appended: exit 5.
    """
    target = Target.resolve(directory, cluster)
    appended = Appended()
    try:
        with opened(file) as descriptor, _progress(descriptor, output) as advance:
            run_async(
                _append(
                    *(target, topic, descriptor, appended),
                    raw=raw,
                    expected_position=expected_position,
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
    target: Target,
    topic: str,
    descriptor: int,
    appended: Appended,
    *,
    raw: bool,
    expected_position: int | None,
    timeout: float,
    advance: Callable[[int], None],
) -> None:
    from viewstamp.cli.lines import read_all, read_lines

    async with target.connect() as client:
        await client.describe_topic(topic, timeout=timeout)  # An unknown topic is told before any input is read.
        limit = client.record_bytes_max
        if raw:
            data = await read_all(descriptor, limit)
            chunks = _one([data] if data else [])
        else:
            chunks = chunks_of(read_lines(descriptor, limit), advance)
        await append_chunks(client, topic, chunks, appended, timeout=timeout, expected_position=expected_position)


async def _one(values: list[bytes]) -> AsyncIterator[list[bytes]]:
    if values:
        yield values


async def chunks_of(
    lines: AsyncIterator[tuple[list[bytes], int]], advance: Callable[[int], None]
) -> AsyncIterator[list[bytes]]:
    """Cut lists of lines into chunks that are appended atomically: big enough to be cheap, small enough to flow."""
    async for found, taken in lines:
        chunk: list[bytes] = []
        size = 0
        for line in found:
            chunk.append(line)
            size += len(line)
            if size >= CHUNK_BYTES or len(chunk) >= CHUNK_RECORDS:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk
        advance(taken)


async def append_chunks(
    client: Client,
    topic: str,
    chunks: AsyncIterator[list[bytes]],
    appended: Appended,
    *,
    timeout: float,
    expected_position: int | None = None,
) -> None:
    """Append the chunks in order, several at a time, and count in ``appended`` what became of them.

    With an ``expected_position`` one at a time: where one is refused, the next one must not be where it expected to be.
    Stops reading at the first failure, which is left in ``appended.error``. Cancelled: what was on its way
    is counted as unknown.
    """
    room = asyncio.Semaphore(CHUNKS_IN_FLIGHT if expected_position is None else 1)
    tasks: dict[asyncio.Task[list[Receipt]], int] = {}

    def settle(task: asyncio.Task[list[Receipt]]) -> None:
        count = tasks.pop(task)
        room.release()
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or isinstance(error, OutcomeUnknownError):
            appended.unknown += count
        if error is not None:
            if appended.error is None or isinstance(error, OutcomeUnknownError):
                appended.error = error  # That something is unknown says more than that something was not written.
        elif not task.cancelled():
            appended.acknowledge(task.result())

    try:
        try:
            async for chunk in chunks:
                await room.acquire()
                if appended.error is not None:
                    break
                task = asyncio.create_task(
                    client.append_many(topic, chunk, timeout=timeout, expected_position=expected_position)
                )
                if expected_position is not None:
                    expected_position += len(chunk)
                tasks[task] = len(chunk)
                task.add_done_callback(settle)
        except ViewstampError as error:
            appended.error = appended.error or error
        while tasks:
            await asyncio.wait(tasks)
    finally:
        if tasks:  # Cancelled. What is on its way usually arrives in no time, and is then not unknown.
            await asyncio.wait(tasks, timeout=GRACE_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _print(topic: str, appended: Appended, output: Output) -> None:
    if output is Output.JSON:
        print_json(
            {
                "topic": topic,
                "acknowledged": appended.acknowledged,
                "first_position": appended.first_position,
                "last_position": appended.last_position,
                "durability": appended.durability,
                "unknown": appended.unknown,
            }
        )
        return
    first, last = appended.first_position, appended.last_position
    where = "" if first is None else f": position {first:,}" if first == last else f": positions {first:,} to {last:,}"
    unknown = f"; the outcome of {appended.unknown:,} more is unknown" if appended.unknown else ""
    print(
        f"{appended.acknowledged:,} record{'s' * (appended.acknowledged != 1)} appended to {topic}{where}{unknown}",
        flush=True,
    )


@contextlib.contextmanager
def opened(file: str) -> Iterator[int]:
    """Yield the descriptor of a file, or of stdin for ``-``. Raises ConfigError where it cannot be read."""
    if file == "-":
        yield sys.stdin.fileno()
        return
    try:
        if os.path.isdir(file):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(
            f"cannot read {file}: {error.strerror}", remedy="name a file of lines, or - for stdin"
        ) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _progress(descriptor: int, output: Output) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr where a person looks and the size is known; yield what takes the bytes read so far."""
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
