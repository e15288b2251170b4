"""The store of runs as the archivist calls it (``archivist.py``): Protocols, which packages above implement."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple, Protocol

from viewstamp.ids import GroupId, Position, RunId, TopicId
from viewstamp.node.archive_queries import ArchivedRun
from viewstamp.wire.batch import Buffer
from viewstamp.wire.ordering import GlobalRun

__all__ = ["KeyChecks", "RunObject", "RunStore", "WrittenRun"]


class WrittenRun(NamedTuple):
    """The description of the object of a run, as ``COMMIT_RUN`` has it; ``streams.runs.RunContent`` explains it."""

    size: int
    digest: bytes
    first_index: int
    end_index: int
    first_time: int
    last_time: int
    first_global: int = 0
    end_global: int = 0


class RunObject(Protocol):
    """The object of one run that is being written. All calls block; they raise StorageError as the store's calls."""

    def add(self, end: Position, buffers: Sequence[Buffer], order: Sequence[GlobalRun] = ()) -> Position:
        """Add records of batches that follow the last one, up to position ``end``; return the next position.

        Args:
          end: records from this position on are left out, and so are those that were added before.
          buffers: whole batches of the topic, in the order of their positions, as bytes one after the other.
          order: of a stream the runs that hold the global positions of these records.

        A piece may still be written when the next one is added. Then its error is raised by the next call.

        Raises:
          FrameError: a batch has no valid layout, or is not the next one, or the order lacks a record. The object can
            only be abandoned.
        """
        ...

    def finish(self) -> WrittenRun:
        """Make the object durable, and return its description. Raises as :meth:`add`."""
        ...

    def abandon(self) -> None:
        """Remove what was written."""
        ...


class KeyChecks(Protocol):
    """The runs of keys of a store, as far as they are checked as those of archived records are."""

    def check_keys(self, run: ArchivedRun) -> Generator[int, None, None]:
        """Read the object of a run of keys and compare it with the catalogue. As ``RunStore.check``."""
        ...


class RunStore(Protocol):
    """The store of the runs of one group of a cluster. All calls block.

    Calls raise StorageError if the store refuses them, and UnavailableError if it does not answer.
    """

    where: str

    def of_group(self, group: GroupId) -> RunStore:
        """Return the objects of another group of the cluster: its ids are ids of that group."""
        ...

    @property
    def keys(self) -> KeyChecks:
        """The runs of keys."""
        ...

    def check_usable(self) -> None:
        """Check within a second that this process can write runs.

        Raises:
          ConfigError: a package is missing, or the store lacks what it needs. UnavailableError: it does not answer.
        """
        ...

    def status(self) -> dict[str, object]:
        """Return where the store is, and what is wrong with it, for ``viewstamp status``. Never blocks."""
        ...

    def recognise(self, runs: Sequence[ArchivedRun]) -> bool:
        """Return whether this is the store that has these committed runs, because the object of one of them is here.

        The objects are asked for in this order, until one is found. Without runs any store is the right one. If none of
        the runs is of this group, the group's folder is created; otherwise nothing is.

        Raises:
          ConfigError: this machine cannot have what calls need. Others: as the other calls.
        """
        ...

    def begin(self, run: RunId, topic: TopicId, first: Position, schema: str = "") -> RunObject:
        """Begin to write the object of a run. ``schema``: that of the topic, "" = it has none.

        Raises UnavailableError if there is an object of its name already.
        """
        ...

    def check(self, run: ArchivedRun) -> Generator[int, None, None]:
        """Read the object of a run and compare it with the catalogue; yields the bytes of each step.

        Raises:
          CorruptionError: it is not there, or is not that run. OutdatedCodeError: its format is newer.
        """
        ...

    def remove(self, run: RunId) -> None:
        """Remove the object of a run of this cluster; one that is not there is no error."""
        ...

    def list_sizes(self) -> dict[int, int]:
        """Return the size in bytes of each object of this cluster, by the id of its run; 0 = it is not complete."""
        ...

    def rest(self) -> None:
        """Free what calls need, because none is expected soon. Never blocks."""
        ...

    def close(self) -> None:
        """End a call under way, with UnavailableError, and refuse later ones with ClosedError. Never blocks."""
        ...
