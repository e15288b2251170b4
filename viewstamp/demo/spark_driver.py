"""A Spark driver in its own process, with its child processes: started, commanded, killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any, Final

from viewstamp.errors import UnavailableError, ViewstampError
from viewstamp.local.process import processes_of_session

__all__ = ["Driver"]

GONE_SECONDS: Final = 30.0
QUICK_START: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that lives for half a minute does not benefit from its better compiler or a parallel collector. With both, on
two busy cores, Spark's first micro-batch took three times as long."""


class Driver:
    """One run of ``spark_job``: a Python, its JVM, and the Python workers of the JVM.

    All of them are in one session of the system, whose number is the driver's process number; the workers are in
    process groups of their own.
    """

    def __init__(self, process: asyncio.subprocess.Process, log: str) -> None:
        self._process = process
        self._log = log
        self.started_at = time.monotonic()
        self.is_ready = False
        """Whether Spark runs."""
        self.is_killed = False
        self._is_gone = False

    @classmethod
    async def start(cls, cluster: str, folder: str) -> Driver:
        """Start a driver for the cluster at the addresses ``cluster``; its output goes to ``folder``/driver.log."""
        scratch = os.path.join(folder, "scratch")
        os.makedirs(scratch, exist_ok=True)
        # Temporary files of a killed process must be where the demo deletes them.
        options = (
            f'{os.environ.get("JDK_JAVA_OPTIONS", "")} {QUICK_START} -XX:-UsePerfData "-Djava.io.tmpdir={scratch}"'
        )
        log = os.path.join(folder, "driver.log")
        with _opened(log) as stream:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "viewstamp.demo.spark_job", cluster, folder),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stream,
                env={**os.environ, "TMPDIR": scratch, "JDK_JAVA_OPTIONS": options.strip()},
                start_new_session=True,  # So that Ctrl-C in the terminal reaches the demo, which then ends this.
            )
        return cls(process, log)

    def tell(self, command: str) -> None:
        """Send the next command. Commands are executed one after the other."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())

    async def wait_for(self, name: str, on_event: Callable[[dict[str, Any]], None] | None = None) -> Any:
        """Wait until the driver sends the event ``name``, and return it; None = the driver was killed first.

        Earlier events are passed to ``on_event``.

        Raises:
          ViewstampError: the driver failed, or has ended.
        """
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            event = json.loads(line)
            if event["event"] == "failed":
                raise self._failure(event["message"])
            self.is_ready = True
            if event["event"] == name:
                return event
            if on_event is not None:
                on_event(event)
        if self.is_killed:
            return None
        raise self._failure(f"it ended with exit code {await self._process.wait()}")

    def _failure(self, reason: str) -> ViewstampError:
        return ViewstampError(f"the Spark driver failed: {reason}", remedy=f"read its output in {self._log}")

    async def kill(self) -> None:
        """Kill all its processes with SIGKILL, and wait until they have ended. Safe to repeat.

        Raises:
          UnavailableError: a process does not end.
        """
        self.is_killed = True
        if self._is_gone:
            return  # Its process number may belong to another process by now.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # The driver and the JVM at the same instant.
        deadline = time.monotonic() + GONE_SECONDS
        while left := list(processes_of_session(self._process.pid)):
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"processes {left} of the Spark driver still run {GONE_SECONDS:g} s after SIGKILL"
                )
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.01)
        await self._process.wait()
        self._is_gone = True


def _opened(path: str) -> IO[bytes]:
    return open(path, "ab")
