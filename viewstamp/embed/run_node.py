"""Runs a node as a process: the work of ``viewstamp node run``."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from viewstamp.config.model import NodeSettings
from viewstamp.embed.actor_classes import NO_ACTORS, Actors
from viewstamp.embed.compose import compose_node, node_host, prepare_process
from viewstamp.embed.service_manager import ServiceManager
from viewstamp.host.chaos import Chaos
from viewstamp.host.event_loop import new_event_loop
from viewstamp.host.logger import Logger, SafeLogger

__all__ = ["run_node", "run_on_fast_loop"]

ResultT = TypeVar("ResultT")

_COLLECT_AFTER_OBJECTS = 50_000


def run_on_fast_loop(main: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
    """Run a coroutine to its end on a loop of its own, as ``asyncio.run`` does."""
    prepare_process()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main())


def _ignore(_: BaseException) -> None:
    pass


def _spare_the_collector() -> None:
    """Let the garbage collector of a node's process look seldom: after each 50,000 new objects.

    A start and a round leave no reference cycles behind, so the collector finds nearly nothing; by default it looks
    after each 700 new objects, which is each few rounds, and now and then at all of the state. While a state of a
    million actor instances was loaded, it took a third of the start. Not for an embedded node: in that process the
    collector belongs to the program.
    """
    gc.set_threshold(_COLLECT_AFTER_OBJECTS, 20, 20)


def _freeze_the_state() -> None:
    """Let the garbage collector never look at the objects that the start of the node has made."""
    gc.collect(1)
    gc.freeze()


async def run_node(
    settings: NodeSettings,
    log: Logger,
    actors: Actors = NO_ACTORS,
    *,
    on_failed: Callable[[BaseException], None] = _ignore,
) -> None:
    """Run a node with ``actors`` until SIGTERM or SIGINT, then stop it cleanly.

    Args:
      settings: the node's.
      log: the logger; exceptions that it raises are ignored.
      actors: the replicated actors, name to class.
      on_failed: called with the cause when a part of the node has failed, before the rest is stopped. Stopping waits
        for calls of the disk that are under way, and a broken disk may never return from them.

    Raises:
      ViewstampError: the node could not start, or a part of it failed; it has been stopped.
    """
    _spare_the_collector()
    log = SafeLogger.of(log)
    host, chaos = node_host(settings, log), None
    if settings.node.chaos:
        chaos = Chaos(settings.node.data_dir, host)
        host = chaos.host
    node = compose_node(settings, host, log, actors)
    manager = ServiceManager(os.environ)
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    stopped = loop.create_task(stopping.wait())
    starting = loop.create_task(node.start())
    reporting = loop.create_task(manager.extend_start(node))
    # A repair waits for other members as long as it takes, and can be stopped all the same.
    await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.wait([starting])
    else:
        reporting.cancel()
        await starting
        manager.tell("READY=1")
        reporting = loop.create_task(manager.feed_watchdog(node))
        _freeze_the_state()
        log.info("= node started", node=settings.node.id, address=node.address)
    waiting: list[asyncio.Future[Any]] = [node.failed, stopped]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    failure = node.failed.result() if node.failed.done() and not node.failed.cancelled() else None
    stopped.cancel()
    reporting.cancel()
    manager.tell("STOPPING=1")
    try:
        if failure is not None:
            on_failed(failure)
        await node.stop()
        if chaos is not None:
            chaos.stop()
        log.info("= node stopped", node=settings.node.id)
    finally:
        # Also if stopping failed, because the class of the first failure decides the exit code.
        if failure is not None:
            raise failure
