"""Whether the store is the one that has the runs of a group, which each job of the archivist asks before it begins.

A store directory whose mount is away looks like an empty store. Without this rule the leader would create the folder
anew, and write runs into the disk below the mount point, where no reader finds them later.

The store is asked for the objects of the newest committed runs, until it has one. That is one read of a byte for each
run of 256 MiB. It needs no object of its own, so the stores of earlier releases are recognised too, and a store that
was set back to an older state is not.

| the store is empty, or another one | effect |
| --- | --- |
| before the job | RequestError; nothing is prepared, dropped, removed or forgotten. The log keeps the records, and \
the next job asks again |
| the node dies, or is deposed, behind the question | nothing was changed by it |
| from the question to the creation of the object | a directory has no folder of the cluster then, and none is \
created: the run is dropped. Its removal finds nothing, which is right, because nothing was written |
| from the creation on | the calls fail, or the object is not found when it is read back: no COMMIT_RUN. What was \
written is an orphan when the store is back |
| between the removal of an object and its FORGET_RUN | if the object is still there, it belongs to no run: the next \
list of orphans has it |
| a list of orphans, a check of a run | RequestError, and not "none", or "damaged" |
| this leader's state is old, and other leaders have removed the runs | it asks again after a linearizable read |
| the group has no committed run with kept records, or only those of the cluster that it is a fork of | nothing can be \
asked for: the store counts as new, and the folder of the group is created |
| a group has no such run, but group 0 has | group 0's runs are asked for, as far as this node has applied them |
| the files are lost for good | their records have to be deleted: ``topic trim``. Then there is nothing to ask for |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from viewstamp.errors import RequestError
from viewstamp.ids import GROUP_0, Term
from viewstamp.node.archive_queries import ArchivedRun, NewestRunsQuery
from viewstamp.node.group import Group

__all__ = ["StoreIdentity"]

_PROOFS: Final = 16
"""Runs of which the store must have one. More than one, because a single file may be lost without the others."""


class StoreIdentity:
    """Recognises the store of a group that this node leads."""

    def __init__(self, group: Group, home: Group) -> None:
        """Recognise the store of ``group``; ``home`` is group 0 of this node."""
        self._group = group
        self._home = home
        self._trouble: tuple[str, str] | None = None
        self._term = Term(0)
        """The term of ``_trouble``."""

    async def check(self, where: str, recognise: Callable[[list[ArchivedRun]], Awaitable[bool]]) -> None:
        """Check that the store has one of the newest runs, if there are any.

        Args:
          where: the store, for messages.
          recognise: as ``RunStore.recognise``.

        Raises:
          RequestError: it has none of them. NoQuorumError: that is not known, because this node has no majority.
          Others: as ``recognise``.
        """
        if not await recognise(self._runs()):
            for group in {GROUP_0: self._home, self._group.id: self._group}.values():
                await group.reading.query(NewestRunsQuery(1), stale=False)
            runs = self._runs()
            if not await recognise(runs):
                others = f", and none of the {len(runs) - 1} runs before it" if len(runs) > 1 else ""
                error = RequestError(
                    f"{self._group.options.node} leads, and cannot go on with the archive: {where} is empty, or another"
                    f" store, because it has no file of run {runs[0].id}{others}",
                    remedy="mount it, or restore it; another store needs a copy of the files first. If they are lost"
                    " for good, delete their records: `viewstamp topic trim`",
                )
                self._trouble = error.message[error.message.index(where) :], error.remedy
                self._term = self._current_term
                raise error
        self._trouble = None

    @property
    def trouble(self) -> tuple[str, str] | None:
        """The reason and the remedy, if the last :meth:`check` in this term failed and this node still leads.

        None = it found the store. The reason has no name of a node, because a status is that of one node.
        """
        replica = self._group.replica
        is_current = replica is not None and replica.is_leading and self._current_term == self._term
        return self._trouble if is_current else None

    @property
    def _current_term(self) -> Term:
        assert self._group.replica is not None, "the archivist works for a group that runs"
        return self._group.replica.raft.core.term

    def _runs(self) -> list[ArchivedRun]:
        of_group = self._group.machine.query(NewestRunsQuery(_PROOFS))
        return of_group or self._home.machine.query(NewestRunsQuery(_PROOFS))
