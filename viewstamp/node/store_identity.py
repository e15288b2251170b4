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
| ... of a bucket, or another directory with a folder of the cluster | the object is created in the other store. The \
question is asked once more between the creation and the reading back, so there is no COMMIT_RUN. Only a store that \
leaves, is back for this question, and leaves again, is not found out |
| from the creation on | the calls fail, or the object is not found when it is read back: no COMMIT_RUN. What was \
written is an orphan when the store is back |
| between the removal of an object and its FORGET_RUN | if the object is still there, it belongs to no run: the next \
list of orphans has it |
| a list of orphans, a check of a run | RequestError, and not "none", or "damaged" |
| this leader's state is old, and other leaders have removed the runs | it asks again after a linearizable read |
| no group has a committed run with kept records, or only those of the cluster that it is a fork of | nothing can be \
asked for: the store counts as new, and the folder of the group is created |
| a group has no such run, but group 0 has | group 0's runs are asked for, as far as this node has applied them |
| neither has one, but another group that is open on this node has | those of all these groups are asked for. If one \
of them has no majority, and the store has none of its runs, these may have been deleted: nothing is archived then |
| only groups that are not open on this node have such runs | as if there were none |
| the files are lost for good | their records have to be deleted: ``topic trim``. Then there is nothing to ask for |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from viewstamp.errors import RequestError
from viewstamp.ids import GROUP_0, GroupId, Term
from viewstamp.node.archive_queries import ArchivedRun, NewestRunsQuery
from viewstamp.node.group import Group

__all__ = ["StoreIdentity"]

_PROOFS: Final = 16
"""Runs of which the store must have one. More than one, because a single file may be lost without the others."""


class StoreIdentity:
    """Recognises the store of a group that this node leads."""

    def __init__(self, group: Group, hosted: Mapping[GroupId, Group]) -> None:
        """Recognise the store of ``group``. ``hosted``: the groups that are open on this node, also group 0."""
        self._group = group
        self._hosted = hosted
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
            asked = {GROUP_0, self._group.id, *(run.group for run in self._runs())}
            for group in [each for each in self._hosted.values() if each.id in asked]:
                await group.reading.query(NewestRunsQuery(1), stale=False)
            runs = self._runs()
            if not await recognise(runs):
                of_group = f" of group {runs[0].group}" if runs[0].group != GROUP_0 else ""
                others = f", and none of {len(runs) - 1} other runs" if len(runs) > 1 else ""
                error = RequestError(
                    f"{self._group.options.node} leads, and cannot go on with the archive: {where} is empty, or another"
                    f" store, because it has no file of run {runs[0].id}{of_group}{others}",
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
        """Return those of the group; if it has none, those of group 0, and then those of all other groups."""
        first = (self._group, self._hosted[GROUP_0])
        others = (group for group in self._hosted.values() if group not in first)
        for groups in ((first[0],), (first[1],), others):
            runs = [run for group in groups for run in group.machine.query(NewestRunsQuery(_PROOFS))]
            if runs:
                return runs[:_PROOFS]
        return []
