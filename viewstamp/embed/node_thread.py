"""A node in a thread of its own: the common part of ``open_node`` for asyncio and for trio."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from viewstamp.config.model import NodeSettings
from viewstamp.embed.actor_classes import Actors
from viewstamp.embed.compose import compose_node, node_host, resolve
from viewstamp.embed.run_node import run_on_fast_loop
from viewstamp.host.blocking import to_the_end
from viewstamp.host.logger import Logger
from viewstamp.node.node import Node

__all__ = ["HostedNode", "NodeThread", "make_node", "peers_of", "stdlib_logger"]


def make_node(settings: str | Path | NodeSettings, actors: Actors, log: Logger | None) -> Node:
    """Build a node, not started, on the running event loop. Blocks: it loads settings and imports actors.

    Raises:
      ConfigError: the settings, or an actor's class, are wrong; the message names it.
    """
    loaded, classes = resolve(settings, actors)
    log = log if log is not None else stdlib_logger()
    return compose_node(loaded, node_host(loaded, log), log, classes)


def peers_of(node: Node) -> list[str]:
    """Return the addresses for a client of a node in this process: the node's own first."""
    return [node.address, *(address for address in node.options.members.values() if address != node.address)]


def stdlib_logger() -> Logger:
    """Return a structlog logger that hands its events to the standard library's logger "viewstamp".

    Silent until the program sets up logging: a library does not print.
    """
    import structlog  # Imported here, because a node process does not use it and should not wait for its import.

    target = logging.getLogger("viewstamp")
    if not target.handlers:
        target.addHandler(logging.NullHandler())
    logger: Logger = structlog.wrap_logger(
        target,
        processors=[structlog.stdlib.filter_by_level, structlog.processors.LogfmtRenderer(key_order=("event", "node"))],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return logger


class HostedNode:
    """The properties of an embedded node that a client does not have."""

    _node: Node

    def stop_without_handing_over(self) -> None:
        """Make this node stop without transferring its leadership, because all nodes are about to stop."""
        self._node.hands_over = False

    @property
    def id(self) -> str:
        """The node's name."""
        return self._node.options.node

    @property
    def address(self) -> str:
        """The ``host:port`` at which the node listens."""
        return self._node.address

    @property
    def node_status(self) -> dict[str, object]:
        """The node's status, with the keys that ``viewstamp status --output json`` prints."""
        return self._node.status

    @property
    def failure(self) -> BaseException | None:
        """The error that stopped the node; None = it runs. A failed node serves no calls: leave the context."""
        failed = self._node.failed
        return failed.result() if failed.done() and not failed.cancelled() else None


class NodeThread:
    """A thread that runs a node on an event loop of its own until ``stop`` is called.

    Invariants:
      * ``on_started`` is called, in this thread, when the node is RUNNING, and when it cannot start or has stopped
      * ``node`` is set from RUNNING on; None = the node did not reach that
    """

    def __init__(self, make: Callable[[], Node], timeout: float, on_started: Callable[[], object]) -> None:
        """Prepare a thread.

        Args:
          make: builds the node, in this thread.
          timeout: seconds to wait for RUNNING.
          on_started: see above.
        """
        self.node: Node | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.error: BaseException | None = None
        """Why it could not start, or not stop."""
        self._make = make
        self._timeout = timeout
        self._on_started = on_started
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    def run(self) -> None:
        """Run the node until ``stop``. The main function of the thread."""
        try:
            run_on_fast_loop(self._serve)
        except asyncio.CancelledError:
            pass  # By ``stop``: no other code has a reference to this task.
        except BaseException as error:
            self.error = error
        finally:
            self._on_started()

    def stop(self) -> None:
        """Stop the node, even while it starts. Called in the program's thread; ``run`` returns soon after."""
        self._is_stopping = True
        if self.loop is not None:
            try:
                self.loop.call_soon_threadsafe(self._interrupt)
            except RuntimeError:
                return  # The loop has ended by itself: the node could not start.

    def _interrupt(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _serve(self) -> None:
        loop = self.loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        if self._is_stopping:
            return
        node = self._make()
        try:
            await node.start()
            await node.wait_running(self._timeout)
            self.node = node
            self._on_started()
            await loop.create_future()
        finally:
            self._task = None
            # In a task of its own: until Python 3.11.2 a timeout in a cancelled task raises CancelledError.
            await to_the_end(node.stop())
