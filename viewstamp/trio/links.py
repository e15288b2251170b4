"""The links that the clients of one ``trio.run`` share; see ``viewstamp/client/links.py``."""

from __future__ import annotations

import trio

from viewstamp.client.links import Links
from viewstamp.trio.network import TrioNetwork
from viewstamp.trio.runtime import TrioRuntime

__all__ = ["Shared", "shared"]


class Shared:
    """The links that the clients of one ``trio.run`` share, and their runtime of system tasks, which end with it."""

    def __init__(self) -> None:
        """Start the task that makes the calls of the links."""
        runtime = TrioRuntime(trio.lowlevel.spawn_system_task)
        trio.lowlevel.spawn_system_task(runtime.run)
        self.network = TrioNetwork()
        self.links = Links(runtime)


_of_run: trio.lowlevel.RunVar[Shared] = trio.lowlevel.RunVar("viewstamp links")


def shared() -> Shared:
    """Return the links of the running ``trio.run``."""
    try:
        return _of_run.get()
    except LookupError:
        made = Shared()
        _of_run.set(made)
        return made
