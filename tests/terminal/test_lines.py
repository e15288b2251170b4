"""Lines as bytes, from files and pipes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from viewstamp.errors import RecordTooLargeError
from viewstamp.terminal.lines import read_all, read_lines


async def collect(descriptor: int, limit: int = 1000) -> list[bytes]:
    found = []
    async for lines, _ in read_lines(descriptor, limit):
        found += lines
    return found


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"\n\n", [b"", b""]),
        (b"a\r\nb\xff\n\nc", [b"a\r", b"b\xff", b"", b"c"]),
    ],
)
async def test_lines_are_bytes_and_a_last_one_needs_no_newline(
    tmp_path: Path, data: bytes, expected: list[bytes]
) -> None:
    (tmp_path / "file").write_bytes(data)
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    assert await collect(descriptor) == expected
    os.close(descriptor)


async def test_a_line_comes_as_soon_as_a_pipe_has_it_however_it_was_cut() -> None:
    reading, writing = os.pipe()
    lines = read_lines(reading, 1000)
    os.write(writing, b"one\ntw")
    assert await anext(lines) == ([b"one"], 6)
    os.write(writing, b"o\n")
    assert await anext(lines) == ([b"two"], 8)
    os.close(writing)
    with pytest.raises(StopAsyncIteration):
        await anext(lines)
    os.close(reading)


@pytest.mark.parametrize("data", [b"fits\n" + b"x" * 11 + b"\nnext\n", b"fits\n" + b"x" * 500_000])
async def test_a_line_over_the_limit_is_an_error_after_all_lines_before_it(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    lines = read_lines(descriptor, 10)
    assert (await anext(lines))[0] == [b"fits"]
    with pytest.raises(RecordTooLargeError, match="line 2 is longer than the limit of 10 bytes"):
        await anext(lines)
    os.close(descriptor)


async def test_waiting_for_a_silent_pipe_can_be_cancelled() -> None:
    reading, writing = os.pipe()
    waiting = asyncio.create_task(collect(reading))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    os.write(writing, b"later\n")
    os.close(writing)
    assert await collect(reading) == [b"later"]
    os.close(reading)


async def test_the_whole_input_is_bounded_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    for limit, fits in ((10, True), (9, False)):
        descriptor = os.open(tmp_path / "file", os.O_RDONLY)
        if fits:
            assert await read_all(descriptor, limit) == b"0123456789"
        else:
            with pytest.raises(RecordTooLargeError):
                await read_all(descriptor, limit)
        os.close(descriptor)
