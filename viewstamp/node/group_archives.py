"""The archivists of a node: one for each hosted group, and its rounds. They share the store, and take turns."""

from __future__ import annotations

from collections.abc import Mapping

from viewstamp.errors import UnavailableError
from viewstamp.host.interfaces import Clock, Network
from viewstamp.host.logger import Logger
from viewstamp.ids import GROUP_0, GroupId
from viewstamp.node.archive_rounds import ArchiveRounds
from viewstamp.node.archive_turns import ArchiveTurns
from viewstamp.node.archivist import Archivist
from viewstamp.node.group import Group
from viewstamp.node.keyed_archivist import KeyArchivist, KeyedStore

__all__ = ["GroupArchives"]


class GroupArchives:
    """Archives the topics of group 0, and the streams of the other groups, of which this node leads the group."""

    def __init__(
        self, hosted: Mapping[GroupId, Group], network: Network, store: KeyedStore | None, clock: Clock, log: Logger
    ) -> None:
        """Archive into ``store``; None = none is configured here. ``hosted``: the groups that are open on this node."""
        self._home = home = hosted[GROUP_0]
        self._network = network
        self._clock = clock
        self._logger = log
        self._turns = ArchiveTurns(store, hosted)
        self.archivist = Archivist(home, home, network, self._turns, clock, log)
        """That of group 0."""
        keys = KeyArchivist(
            home,
            self.archivist,
            store.keys if store is not None else None,
            log,
            range_bytes=home.options.archive_rounds.range_bytes,
        )
        self.rounds = ArchiveRounds(home, self.archivist, keys, clock, log)
        """Those of group 0."""
        self._parts = {GROUP_0: (self.archivist, self.rounds)}
        self._is_stopping = False

    def start(self, group: Group) -> None:
        """Begin the rounds of a group, which was started. Idempotent; none begins after :meth:`stop`."""
        if self._is_stopping:  # The node opens a group while it stops, because its start was under way.
            return
        if group.id not in self._parts:
            log = self._logger.bind(group=group.id)
            archivist = Archivist(group, self._home, self._network, self._turns, self._clock, log)
            self._parts[group.id] = archivist, ArchiveRounds(group, archivist, None, self._clock, log)
        archivist, rounds = self._parts[group.id]
        archivist.start()
        rounds.start()

    def of(self, group: GroupId) -> Archivist:
        """Return the archivist of a hosted group. Raises UnavailableError."""
        if group not in self._parts:
            raise UnavailableError(f"group {group} is not open on this node now", remedy="ask another node")
        return self._parts[group][0]

    def status_of(self, group: GroupId) -> dict[str, object]:
        """Return the status of the rounds of a group; {} = it is not open."""
        return self._parts[group][1].status if group in self._parts else {}

    @property
    def store_status(self) -> dict[str, object] | None:
        """Return what is wrong with the store, as ``RunStore.status``; None = this node has none."""
        if self._turns.store is None:
            return None
        status = self._turns.store.status()
        if not status["trouble"]:
            for archivist, _ in self._parts.values():
                if (trouble := archivist.identity.trouble) is not None:
                    return status | dict(zip(("trouble", "remedy"), trouble, strict=True))
        return status

    async def end(self, group: GroupId) -> None:
        """End the jobs of a group that is being closed. Idempotent."""
        if group in self._parts:
            archivist, rounds = self._parts[group]
            await rounds.stop()
            await archivist.stop()
            self._parts.pop(group, None)

    async def stop(self) -> None:
        """End all jobs. Idempotent."""
        self._is_stopping = True
        parts = list(self._parts.values())  # A group may be left meanwhile.
        for _, rounds in parts:
            await rounds.stop()
        for archivist, _ in parts:
            await archivist.stop()
