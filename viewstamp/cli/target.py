"""Which cluster a command talks to, and the loop on which it does."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from viewstamp.cli.options import cluster_flag, program
from viewstamp.errors import ConfigError

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.client.options import Options
    from viewstamp.client.roster import Identity

__all__ = ["DEFAULT_DIRECTORY", "Target", "run_async"]

DEFAULT_DIRECTORY: Final = "viewstamp-data"
VARIABLE: Final = "VIEWSTAMP_CLUSTER"

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Target:
    """The addresses of a cluster. ``cluster_id`` "" = whichever cluster answers there.

    ``names`` says who should be at which address, so that a node that does not answer has a name too. ``expected`` says
    by the files of a directory who has to answer at which address: no request is sent to another node. None = no files.
    ``where`` is what a command needs to find the cluster, as it is typed.
    """

    addresses: list[str]
    cluster_id: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    expected: dict[str, Identity] | None = None
    where: str = ""

    @classmethod
    def resolve(cls, directory: Path | None, cluster: str | None) -> Target:
        """Find the cluster that is meant: ``--dir`` or ``--cluster``, else the environment, else ./viewstamp-data.

        Raises:
          ConfigError: both are given, or there is none.
        """
        if directory is not None and cluster is not None:
            raise ConfigError("--dir and --cluster are both given", remedy="name the cluster one way")
        if directory is None and cluster is None:
            cluster = os.environ.get(VARIABLE) or None
        if cluster is not None:
            return cls(_split(cluster), where=cluster_flag(directory, cluster))
        from viewstamp.cli.local import LocalCluster

        return LocalCluster.open(directory or DEFAULT_DIRECTORY).target

    @staticmethod
    def is_local(directory: Path | None, cluster: str | None) -> bool:
        """Say whether :meth:`resolve` takes a local cluster for the one that is meant."""
        return directory is not None or (cluster is None and not os.environ.get(VARIABLE))

    def connect(self, timeout: float | None = None, options: Options | None = None) -> Client:
        """Return a client of the cluster; use it as ``async with``. ``timeout`` is for calls that name none."""
        from viewstamp.client.aio import Client
        from viewstamp.client.options import Options
        from viewstamp.host.network import RealNetwork

        return Client(
            self.addresses,
            network=RealNetwork(),
            entropy=random.Random(),
            cluster_id=self.cluster_id,
            options=replace(
                options or (Options() if timeout is None else Options(timeout=timeout)),
                expected=self.expected,
                doctor=f"{program()} doctor{self.where}",
            ),
        )

    def ask(self, question: Callable[[Client], Coroutine[Any, Any, ResultT]]) -> ResultT:
        """Ask one question on a loop of its own, and return its answer; see :func:`run_async`."""

        async def ask() -> ResultT:
            async with self.connect() as client:
                return await question(client)

        return run_async(ask())


def run_async(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run a coroutine to its end, on uvloop where there is one.

    Ctrl-C, SIGTERM and the end of the terminal cancel it and raise KeyboardInterrupt: whoever started processes
    ends them then, whatever the reason is.
    """
    ended = False

    async def cancellable() -> ResultT:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def end() -> None:
            nonlocal ended
            ended = True
            if task is not None:
                task.cancel()

        # A signal that is ignored stays ignored, because nohup asks for that.
        caught = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
        for number in caught:
            loop.add_signal_handler(number, end)
        try:
            return await work
        finally:
            for number in caught:
                # uvloop leaves its handler behind when it closes: the process could not be ended any more.
                loop.remove_signal_handler(number)

    try:
        with asyncio.Runner(loop_factory=_new_event_loop) as runner:
            return runner.run(cancellable())
    except asyncio.CancelledError:
        if ended:
            raise KeyboardInterrupt from None
        raise


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _split(cluster: str) -> list[str]:
    from viewstamp.host.network import parse_address

    addresses = [part.strip() for part in cluster.split(",") if part.strip()]
    if not addresses:
        raise ConfigError(
            f"{cluster!r} names no node", remedy="write HOST:PORT,HOST:PORT,... in --cluster or VIEWSTAMP_CLUSTER"
        )
    for address in addresses:
        parse_address(address)
    return addresses
