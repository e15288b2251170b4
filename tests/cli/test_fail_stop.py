"""A node's process exits when its disk fails, also if its log stream is on that disk; and only then."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from viewstamp.cli import main
from viewstamp.client import ClientOptions
from viewstamp.embed.connect import connect
from viewstamp.errors import StorageError, ViewstampError

pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 60.0

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
/* Writes and syncs of files whose path begins with $BROKEN_PATH fail with EIO while the file $BROKEN_FLAG exists. */
static int is_broken(int fd) {
    char link[64], path[4096];
    if (access(getenv("BROKEN_FLAG"), F_OK)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strncmp(path, getenv("BROKEN_PATH"), strlen(getenv("BROKEN_PATH"))) == 0;
}
#define FAILING(type, name, parameters, arguments)                      \
    type name parameters {                                              \
        static type(*real) parameters;                                  \
        if (!real) real = (type(*) parameters)dlsym(RTLD_NEXT, #name);  \
        if (is_broken(fd)) { errno = EIO; return -1; }                  \
        return real arguments;                                          \
    }
FAILING(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
FAILING(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
FAILING(ssize_t, pwritev, (int fd, const struct iovec *parts, int count, off_t at), (fd, parts, count, at))
FAILING(ssize_t, pwritev64, (int fd, const struct iovec *parts, int count, off64_t at), (fd, parts, count, at))
FAILING(ssize_t, pwritev64v2, (int fd, const struct iovec *parts, int count, off64_t at, int flags), \
        (fd, parts, count, at, flags))
FAILING(int, fsync, (int fd), (fd))
FAILING(int, fdatasync, (int fd), (fd))
"""


class Running:
    """The only node of a group, as a process; its log stream goes to ``stderr``."""

    def __init__(self, directory: Path, stderr: str, environment: dict[str, str], *, descriptors: int = 0) -> None:
        assert main.run(["config", "new", str(directory), "--nodes", "1"]) == 0
        config = directory / "n1.toml"
        found = re.search(r'listen = "([^"]+)"', config.read_text())
        assert found is not None
        self.address = found[1]
        command = [sys.executable, "-m", "viewstamp", "node", "run", "--config", str(config)]
        if descriptors:
            command = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command]
        with open(stderr, "ab") as stream:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stream,
                env={**os.environ, **environment},
            )

    async def append(self) -> None:
        """Create a topic and append a record."""
        async with connect(self.address, options=ClientOptions(timeout=PATIENCE_SECONDS)) as client:
            await client.create_topic("orders")
            await client.append("orders", b"1")

    async def status(self) -> dict[str, Any]:
        async with connect(self.address, options=ClientOptions(timeout=PATIENCE_SECONDS)) as client:
            return (await client.status())[0]

    async def append_until_it_ends(self) -> None:
        """Append one record after the other until the process has ended."""
        while self.process.poll() is None:
            try:
                async with connect(self.address, options=ClientOptions(timeout=1.0)) as client:
                    await client.append("orders", b"." * 10_000)
            except ViewstampError:
                await asyncio.sleep(0.02)

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait, PATIENCE_SECONDS)


@asynccontextmanager
async def running(directory: Path, stderr: str, *, descriptors: int = 0, **environment: str) -> AsyncIterator[Running]:
    node = Running(directory, stderr, environment, descriptors=descriptors)
    try:
        yield node
    finally:
        node.process.kill()
        node.process.wait()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
async def test_node_with_a_full_log_stream_starts_works_and_stops(tmp_path: Path) -> None:
    async with running(tmp_path, "/dev/full") as node:
        await node.append()
        assert (await node.status())["log_lines_lost"] > 0
        node.process.terminate()
        assert await node.ended() == 0


@contextmanager
def full_pipe() -> Iterator[str]:
    """Yield the path of a full pipe that is never read."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"." * 4096)
    os.set_blocking(writer, True)
    yield f"/proc/{os.getpid()}/fd/{writer}"
    os.close(reader)
    os.close(writer)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
async def test_node_whose_log_stream_is_an_unread_pipe_works(tmp_path: Path) -> None:
    with full_pipe() as pipe:
        async with running(tmp_path, pipe) as node:
            await node.append()
            node.process.terminate()
            assert await node.ended() == 0


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs Linux's prlimit")
async def test_node_that_cannot_write_any_file_exits(tmp_path: Path) -> None:
    """Writes of the log, the control file and the log stream all fail, as on a disk that stays full."""
    async with running(tmp_path, str(tmp_path / "log.jsonl")) as node:
        await node.append()
        resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (0, 0))
        await node.append_until_it_ends()
        assert await node.ended() == StorageError.exit_code


def compiled(directory: Path) -> Path:
    """Return the compiled library, which makes writes fail."""
    source, library = directory / "eio.c", directory / "eio.so"
    source.write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return library


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler for the library that fails writes")
@pytest.mark.skipif(sys.platform != "linux", reason="needs LD_PRELOAD and /proc")
@pytest.mark.parametrize("broken", ["", "n1/wal"])
async def test_node_whose_disk_fails_with_eio_exits(tmp_path: Path, broken: str) -> None:
    """Writes fail to all files ("", so the log stream too), or only to the log of records."""
    library, flag = compiled(tmp_path), tmp_path / "flag"
    directory = tmp_path / "cluster"
    directory.mkdir()
    path = str(directory / broken)
    async with running(
        directory, str(directory / "log.jsonl"), LD_PRELOAD=str(library), BROKEN_FLAG=str(flag), BROKEN_PATH=path
    ) as node:
        await node.append()
        flag.touch()
        await node.append_until_it_ends()
        assert await node.ended() == StorageError.exit_code


async def test_node_keeps_file_descriptors_for_its_log(tmp_path: Path) -> None:
    """300 idle connections may only take the descriptors that the log does not need."""
    async with running(tmp_path, str(tmp_path / "log.jsonl"), descriptors=80) as node:
        await node.append()
        async with connect(node.address, options=ClientOptions(timeout=PATIENCE_SECONDS)) as client:
            await client.append("orders", b"1")
            host, port = node.address.rsplit(":", 1)
            strangers = [socket.create_connection((host, int(port))) for _ in range(300)]
            for _ in range(100):
                await client.append("orders", b"." * 200_000)  # More than one segment.
            for stranger in strangers:
                stranger.close()
        node.process.terminate()
        assert await node.ended() == 0
