"""A Spark driver in a process of its own, with all that it starts: begun, told what to do, killed."""

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
"""A JVM that lives for half a minute earns back neither its better compiler nor a collector with threads of its own:
with both, on two busy cores, Spark's first micro-batch took three times as long."""


class Driver:
    """One run of ``demo_spark_job``: a Python, its JVM, and the Python workers that the JVM starts.

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
        """Start a driver for the cluster at the addresses ``cluster``; what it prints goes to ``folder``/driver.log."""
        scratch = os.path.join(folder, "scratch")
        os.makedirs(scratch, exist_ok=True)
        # What a killed process leaves behind has to lie where it is removed with the rest.
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
                start_new_session=True,  # Ctrl-C in the terminal is for the demo, which then ends this.
            )
        return cls(process, log)

    def tell(self, command: str) -> None:
        """Say what to do next; it does one after the other."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())

    async def wait_for(self, name: str, on_event: Callable[[dict[str, Any]], None] | None = None) -> Any:
        """Wait until the driver says ``name``, and return that event; None = it was killed before.

        Events that come before go to ``on_event``.

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
        return ViewstampError(f"the Spark driver failed: {reason}", remedy=f"all that it said is in {self._log}")

    async def kill(self) -> None:
        """Kill all of it with SIGKILL, and wait until nothing of it is left. Idempotent.

        Raises:
          UnavailableError: a process does not end.
        """
        self.is_killed = True
        if self._is_gone:
            return  # Its number may be another's by now.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # The driver and the JVM, at one instant.
        deadline = time.monotonic() + GONE_SECONDS
        while left := list(processes_of_session(self._process.pid)):
            if time.monotonic() > deadline:
                raise UnavailableError(f"the Spark driver's processes {left} do not end, not even by SIGKILL")
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.01)
        await self._process.wait()
        self._is_gone = True


def _opened(path: str) -> IO[bytes]:
    return open(path, "ab")
