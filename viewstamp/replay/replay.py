"""Runs a replay from its beginning to its summary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from viewstamp.errors import CorruptionError, NoQuorumError
from viewstamp.host.interfaces import Disk
from viewstamp.ids import Index, Term
from viewstamp.replay.chain import Chain, build_chain, choose_tail
from viewstamp.replay.digest import Digest
from viewstamp.replay.read import ExtentReader, RecordRun, extents, read_runs
from viewstamp.replay.replica import (
    ReplicaFiles,
    ReplicaFinding,
    describe_loss,
    find_replicas,
    list_segments,
    read_replica,
)
from viewstamp.replay.visible import ReplayPlan, build_plan
from viewstamp.wire.batch import Columns

__all__ = ["OfflineReplay", "Summary", "total_bytes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The result of a replay.

    ``records`` and ``batches`` are those that readers would see. ``dropped_divergent``: batches that a replica holds
    and the log does not. ``repaired``: batches of the log that a replica lacks or holds damaged, and another one
    provided. ``corrupt``: places where replicas hold different intact bytes, or where no replica holds a required
    record. ``digest``: as in ``replay/digest.py``; None = not all records could be read. ``not_known_committed``:
    records that became visible above the highest index that a replica knew to be committed. ``commands``: calls of
    actors, which are not replayed.
    """

    records: int = 0
    batches: int = 0
    replicas: int = 0
    dropped_divergent: int = 0
    repaired: int = 0
    corrupt: int = 0
    digest: str | None = None
    not_known_committed: int = 0
    commands: int = 0
    topics: dict[str, int] = field(default_factory=dict)
    """Records by topic."""


@dataclass(slots=True)
class OfflineReplay:
    """The result of pass 1, and the plan for pass 2.

    ``problem`` is why there is no plan, or why its records cannot be trusted; nothing may be written then.
    ``is_majority`` False: chosen among fewer than a majority of the members, as ``unsafe`` allows.
    """

    replicas: Sequence[ReplicaFiles]
    is_majority: bool
    chain: Chain | None = None
    plan: ReplayPlan | None = None
    problem: CorruptionError | None = None

    @classmethod
    def open(
        cls,
        disk: Disk,
        paths: Sequence[str],
        *,
        unsafe: bool = False,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> OfflineReplay:
        """Read the replicas in ``paths`` once, and plan; blocking.

        Raises:
          NoQuorumError: fewer than a majority of the members are given, and ``unsafe`` is not set.
          ConfigError: a path has no log, the replicas do not belong together, or a file has a newer format.
          StorageError: the disk failed.
        """
        directories = find_replicas(disk, paths)
        return cls.of(
            disk, [read_replica(disk, directory, on_bytes=on_bytes) for directory in directories], unsafe=unsafe
        )

    @classmethod
    def of(cls, disk: Disk, replicas: Sequence[ReplicaFiles], *, unsafe: bool = False) -> OfflineReplay:
        """Plan from the replicas that pass 1 read. Raises as :meth:`open`.

        If the chosen log lacks records that no replica has, and that none knew to be committed, the log is chosen again
        without the vote of that replica, as if it were recovering (protocol rule 17). That is correct because, if they
        were committed, a majority without this replica has another copy.
        """
        winner, is_majority = choose_tail(replicas, unsafe=unsafe)
        first = replay = cls._planned(disk, replicas, winner, is_majority, unsafe=unsafe)
        lost: list[ReplicaFiles] = []
        while replay.problem is not None and replay.chain is not None and not unsafe:
            if replay.chain.corrupt or not replay.chain.lacks_what_may_not_be_committed:
                return first
            lost.append(winner)
            try:
                winner, is_majority = choose_tail(replicas, without=[each.directory for each in lost])
            except NoQuorumError:
                return first
            replay = cls._planned(disk, replicas, winner, is_majority, unsafe=unsafe)
        if replay.problem is not None:
            return first
        for each in lost:
            pair = Term(each.pair[0]), Index(each.pair[1])
            text = f"{describe_loss(each.member, pair)}; it has no vote"
            each.findings.append(ReplicaFinding("recovering", each.directory, 0, text))
        return replay

    @classmethod
    def _planned(
        cls, disk: Disk, replicas: Sequence[ReplicaFiles], winner: ReplicaFiles, is_majority: bool, *, unsafe: bool
    ) -> OfflineReplay:
        replay = cls(replicas, is_majority)
        try:
            replay.chain = build_chain(replicas, winner, unsafe=unsafe)
            if replay.chain.corrupt:
                replay.problem = _corrupt(replay.chain)
            replay.plan = build_plan(disk, replay.chain)
        except CorruptionError as error:
            replay.problem = replay.problem or error
        return replay

    @property
    def findings(self) -> list[ReplicaFinding]:
        """All findings, replica by replica."""
        found = [finding for replica in self.replicas for finding in replica.findings]
        if self.chain is not None and self.chain.end < self.chain.commit_end:
            text = f"index {self.chain.commit_end - 1} was committed, but this log ends at {self.chain.end - 1}"
            found.append(ReplicaFinding("missing", self.replicas[0].directory, 0, text))
        if self.chain is not None and self.chain.unlinked:
            text = f"the log could not be followed below index {self.chain.begin}: {self.chain.unlinked} batches there"
            text += " were left out, because they may not belong to it; name the directories of more members"
            found.append(ReplicaFinding("not linked", self.replicas[0].directory, 0, text))
        return found + (self.plan.findings if self.plan is not None else [])

    def only(self, topics: Sequence[str]) -> OfflineReplay:
        """Return the replay of some topics. Raises RequestError for a topic that is not in the log."""
        return replace(self, plan=None if self.plan is None else self.plan.only(topics))

    def runs(self, reader: ExtentReader, digest: Digest, on_bytes: Callable[[int], None] = lambda _: None) -> Runs:
        """Yield all records of the plan, batch by batch, and add them to ``digest``; blocking.

        Raises:
          CorruptionError: a batch has changed since pass 1.
          StorageError: a file cannot be read.
        """
        assert self.plan is not None, "without a plan there is nothing to read"
        for run, columns in read_runs(reader, extents(self.plan)):
            digest.add(run.topic, run.position, columns)
            on_bytes(columns.size)
            yield run, columns

    def summary(self, digest: str | None = None) -> Summary:
        """Return the summary; ``digest`` = that of all records, if they were read."""
        chain, plan = self.chain, self.plan
        topics: dict[str, int] = {}
        if plan is not None:
            topics = dict.fromkeys(plan.shown_topics, 0)
            for topic, count in zip(plan.topic, plan.count, strict=True):
                topics[plan.topics[topic]] += count
        lost = self.problem is not None and not (chain is not None and chain.corrupt)
        return Summary(
            records=sum(topics.values()),
            batches=len(plan) if plan is not None else 0,
            replicas=len(self.replicas),
            dropped_divergent=chain.dropped if chain is not None else 0,
            repaired=chain.repaired if chain is not None else 0,
            corrupt=(len(chain.corrupt) if chain is not None else 0) + lost,
            digest=digest,
            not_known_committed=plan.not_known_committed if plan is not None else 0,
            commands=plan.commands if plan is not None else 0,
            topics=topics,
        )


Runs = Iterator[tuple[RecordRun, Columns]]


def total_bytes(disk: Disk, paths: Sequence[str]) -> int:
    """Return how many bytes pass 1 will read."""
    total = 0
    for directory in find_replicas(disk, paths):
        for segment in list_segments(disk, directory):
            file = disk.open_read(segment.path)
            try:
                total += file.size() if segment.limit is None else min(segment.limit, file.size())
            finally:
                file.close()
    return total


def _corrupt(chain: Chain) -> CorruptionError:
    places = chain.corrupt
    more = f" (and {len(places) - 1} more)" if len(places) > 1 else ""
    return CorruptionError(
        f"replicas contradict each other: {places[0]}{more}",
        expected="the same bytes for the same term and index",
        found=places[0],
        remedy="nothing was written, because the files do not show which replica is right. Check each with `viewstamp"
        " wal verify`; leave out a replica that is known to be wrong, if a majority remains",
    )
