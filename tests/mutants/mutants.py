"""The planted mistakes of the protocol's table: each is one of its lines, made by replacing a function.

A mutant has a name, a description, and a context manager that plants it. The product contains no switch for any of
them. A replaced function that is in the core's dispatch table is replaced there, too.
"""

from __future__ import annotations

import inspect
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from viewstamp.consensus import candidate, follower, leader, raft
from viewstamp.consensus.messages import Announcement, AppendRequest, Message, PreVoteRequest, VoteRequest, VoteResponse
from viewstamp.consensus.progress import Progress, ProgressState
from viewstamp.consensus.raft import Raft
from viewstamp.consensus.ready import TruncateLog, WriteHistory
from viewstamp.consensus.state import Campaign, Core, Leading, SnapshotPoint
from viewstamp.consensus.term_history import TermHistory
from viewstamp.ids import Index, NodeId, Position, Viewstamp
from viewstamp.node import log_reader, replay
from viewstamp.node.snapshots import choice
from viewstamp.node.snapshots.file import SnapshotMeta
from viewstamp.node.snapshots.policy import Snapshotter
from viewstamp.node.snapshots.store import StoredSnapshot
from viewstamp.node.state_machine import SnapshotView
from viewstamp.streams.admission import AdmissionView
from viewstamp.streams.session import SessionState
from viewstamp.streams.staging import SinkState, Staging
from viewstamp.streams.topic import Topic
from viewstamp.wal.log import Wal
from viewstamp.wire.batch import Batch, Buffer
from viewstamp.wire.staged import CommitRequest, StagedBatch, decode_commit, decode_fields

__all__ = ["MUTANTS", "Mutant", "both", "everywhere", "patched"]


@dataclass(frozen=True)
class Mutant:
    """One planted mistake."""

    name: str
    mistake: str
    plant: Callable[[], AbstractContextManager[None]]
    mix: str = ""
    """The mix of ``tests.consensus.schedule`` that finds it soonest; "" = it is not in the core."""
    rule: str = ""
    """The requirement: a row in the table of known mistakes, a rule of the protocol, or a section of the design."""


@contextmanager
def patched(owner: Any, **replacements: Any) -> Iterator[None]:
    """Replace attributes of a module or a class, and restore them afterwards."""
    before = {name: owner.__dict__[name] for name in replacements}
    for name, replacement in replacements.items():
        _check_parameters(before[name], replacement)
    for name, replacement in replacements.items():
        _set(owner, name, replacement)
    try:
        yield
    finally:
        for name, original in before.items():
            _set(owner, name, original)


def _set(owner: Any, name: str, value: Any) -> None:
    """Set an attribute; a function in the core's dispatch table is replaced there, too."""
    before = owner.__dict__[name]
    setattr(owner, name, value)
    for row in raft.DISPATCH.values():
        row.update({kind: value for kind, handler in row.items() if handler is before})


@contextmanager
def everywhere(function: Any, replacement: Any) -> Iterator[None]:
    """Replace a function in every module that imported it by name, including tests, and restore it afterwards."""
    _check_parameters(function, replacement)
    _rebind(function, replacement)
    try:
        yield
    finally:
        _rebind(replacement, function)


def _rebind(function: Any, other: Any) -> None:
    for module in list(sys.modules.values()):
        found = [name for name, value in getattr(module, "__dict__", {}).items() if value is function]
        for name in found:
            setattr(module, name, other)


def _check_parameters(original: Any, replacement: Any) -> None:
    """Refuse a replacement by a mutant that some call of the original would not fit.

    A test may replace a function by one that fits its own call only. But a mutant whose original has got
    another parameter would be found by the TypeError of its call, and no longer by a test that notices the mistake.
    """
    if not getattr(replacement, "__module__", "").startswith("tests.mutants."):
        return
    originals, replacements = _parameters(original), _parameters(replacement)
    if originals is None or replacements is None:
        return
    kinds = {each.kind for each in replacements.values()}
    where = f"the mutant's {replacement!r} takes {inspect.Signature(list(replacements.values()))}"
    wanted = f"{original!r} takes {inspect.Signature(list(originals.values()))}"
    by_place, by_place_there = _by_place(originals), _by_place(replacements)
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        assert len(by_place) <= len(by_place_there), f"{where}, but {wanted}"
    needed = [each for each in by_place_there if each.default is inspect.Parameter.empty]
    given = [each for each in by_place if each.default is inspect.Parameter.empty]
    assert len(needed) <= len(given), f"{where}, but {wanted}"
    by_name = {name for name, each in originals.items() if each.kind is inspect.Parameter.KEYWORD_ONLY}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        assert by_name <= replacements.keys(), f"{where}, but {wanted}"
    for name, each in replacements.items():
        if each.kind is inspect.Parameter.KEYWORD_ONLY and each.default is inspect.Parameter.empty:
            assert name in originals, f"{where}, but {wanted}"


def _parameters(function: Any) -> dict[str, inspect.Parameter] | None:
    """Return the parameters of a function, a method or a property; None = of no other thing."""
    if isinstance(function, property):
        function = function.fget
    function = inspect.unwrap(getattr(function, "__func__", function))
    return dict(inspect.signature(function).parameters) if inspect.isfunction(function) else None


def _by_place(parameters: dict[str, inspect.Parameter]) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [each for each in parameters.values() if each.kind in kinds]


@contextmanager
def both(*plants: AbstractContextManager[None]) -> Iterator[None]:
    """Plant several replacements as one mistake."""
    with ExitStack() as stack:
        for plant in plants:
            stack.enter_context(plant)
        yield


def history_first() -> AbstractContextManager[None]:
    original = follower.on_announcement

    def on_announcement(core: Core, message: Announcement) -> None:
        original(core, message)
        writes = core.output.writes
        if len(writes) >= 2 and isinstance(writes[-2], TruncateLog) and isinstance(writes[-1], WriteHistory):
            writes[-2], writes[-1] = writes[-1], writes[-2]

    return patched(follower, on_announcement=on_announcement)


def strictly_advertised() -> AbstractContextManager[None]:
    def advertised(self: TermHistory, end: Index) -> TermHistory:
        return TermHistory(self.starts[: max(1, bisect_left(self._begins, end))])

    return patched(TermHistory, advertised=advertised)


def announce_early() -> AbstractContextManager[None]:
    """The history is written last, after the announcement and even after the first record of the term."""
    original = leader.become_leader

    def become_leader(core: Core, campaign: Campaign, *, elected_without: tuple[NodeId, ...] = ()) -> None:
        original(core, campaign, elected_without=elected_without)
        history = core.output.writes.pop()
        assert isinstance(history, WriteHistory)
        core.installing = False
        leader.on_durable(core, core.leading, was_installing=True)
        core.output.writes.append(history)

    return patched(leader, become_leader=become_leader)


def vote_before_durable() -> AbstractContextManager[None]:
    original = Core.send_after_durable

    def send_after_durable(self: Core, message: Message) -> None:
        if isinstance(message, VoteResponse | VoteRequest) and message.target != self.me:
            self.output.messages.append(message)
        else:
            original(self, message)

    return patched(Core, send_after_durable=send_after_durable)


def count_before_sync() -> AbstractContextManager[None]:
    original = leader._maybe_commit

    def maybe_commit(core: Core, leading: Leading) -> None:
        with durable_in_words_only(core):
            original(core, leading)

    return patched(leader, _maybe_commit=maybe_commit)


@contextmanager
def durable_in_words_only(core: Core) -> Iterator[None]:
    """Pretend for a moment that the whole log is durable."""
    before = core.log.durable_end
    core.log.durable_end = core.log.end
    try:
        yield
    finally:
        core.log.durable_end = before


def acknowledge_before_sync() -> AbstractContextManager[None]:
    original = follower.on_append_request

    def on_append_request(core: Core, message: AppendRequest) -> None:
        with durable_in_words_only(core):
            original(core, message)
        if core.announced_number and message.number == core.announced_number:
            with durable_in_words_only(core):
                follower._answer_append(core, rejected=False)

    return patched(follower, on_append_request=on_append_request)


def compare_lengths() -> AbstractContextManager[None]:
    def is_up_to_date(core: Core, message: PreVoteRequest | VoteRequest) -> bool:
        return message.end >= core.log.durable_end

    return patched(candidate, is_up_to_date=is_up_to_date)


def append_unannounced() -> AbstractContextManager[None]:
    """A mistake on two sides.

    The leader does not wait for the answer to its announcement, and the member does not wait for the announcement.
    """
    original = follower.on_append_request

    def on_append_request(core: Core, message: AppendRequest) -> None:
        if core.announced_number == 0 and message.batches and message.start == core.log.end:
            follower.note_leader(core, message)
            take_unchecked(core, message)
        else:
            original(core, message)

    announce = leader._announce

    def hasty_announce(core: Core, member: NodeId, progress: Progress, start: Index | None, *, life: int = 0) -> None:
        announce(core, member, progress, start, life=life)
        sent = core.output.messages[-1]
        if progress.state is ProgressState.ANNOUNCING and isinstance(sent, Announcement):
            progress.become_replicating(sent.start, is_recovering=True)
            progress.durable_end = Index(0)

    @contextmanager
    def plant() -> Iterator[None]:
        with patched(follower, on_append_request=on_append_request), patched(leader, _announce=hasty_announce):
            yield

    return plant()


def take_unchecked(core: Core, message: AppendRequest) -> None:
    """Append batches that start at the end, without comparing the history."""
    for batch in message.batches:
        core.append(batch)


def append_of_older_term() -> AbstractContextManager[None]:
    original = Raft.step

    def step(self: Raft, message: Message) -> None:
        core = self.core
        is_old = isinstance(message, AppendRequest) and message.term < core.term and message.target == core.me
        if is_old and not core.installing and core.leader != core.me:
            assert isinstance(message, AppendRequest)
            if message.batches and message.start == core.log.end:
                take_unchecked(core, message)
        original(self, message)

    return patched(Raft, step=step)


def announcement_of_older_term() -> AbstractContextManager[None]:
    original = Raft.step

    def step(self: Raft, message: Message) -> None:
        core = self.core
        is_old = isinstance(message, Announcement) and message.term < core.term and message.target == core.me
        if is_old and not core.installing and core.leader != core.me and core.is_synced:
            assert isinstance(message, Announcement)
            start = follower._continue_from(core, message)
            if start == message.start and start is not None and start >= core.log.commit_end:
                if start < core.log.end:
                    core.truncate(start)
                    core.output.writes.append(TruncateLog(start))
                core.store_history(message.history)
        original(self, message)

    return patched(Raft, step=step)


def trust_the_point() -> AbstractContextManager[None]:
    def continue_from(core: Core, message: Announcement) -> Index | None:
        return Index(min(message.start, core.log.end))

    return patched(follower, _continue_from=continue_from)


def completion_by_index() -> AbstractContextManager[None]:
    original = Raft.durable

    def durable(self: Raft, viewstamp: Viewstamp) -> None:
        original(self, Viewstamp(self.core.accept_term, viewstamp.index))

    return patched(Raft, durable=durable)


def install_by_header() -> AbstractContextManager[None]:
    """A node that died between the two writes of an installation finds an empty log that continues the snapshot."""

    def holds(wal: Wal, _: TermHistory, snapshot: StoredSnapshot) -> bool:
        return wal.end >= snapshot.end and wal.recovery.previous_term == snapshot.term

    return patched(replay, _holds=holds)


def keep_history_at_install() -> AbstractContextManager[None]:
    original = follower.install

    def install(core: Core, point: SnapshotPoint) -> bool | None:
        return original(core, replace(point, history=core.history))

    return patched(follower, install=install)


def drop_before_durable() -> AbstractContextManager[None]:
    original = Snapshotter._write

    async def write(self: Snapshotter, cut: SnapshotView, meta: SnapshotMeta) -> StoredSnapshot:
        keep_from = self._applier.machine.keep_from()
        await self._trim(meta.end if keep_from is None else min(meta.end, keep_from))
        return await original(self, cut, meta)

    return patched(Snapshotter, _write=write)


def drop_what_topics_keep() -> AbstractContextManager[None]:
    original = choice.choose_base

    def choose_base(ends: Sequence[Index], _: Index | None, **how: Any) -> Index | None:
        return original(ends, None, **how)

    return everywhere(original, choose_base)


def forget_results() -> AbstractContextManager[None]:
    original = SessionState.image

    def image(self: SessionState) -> list[object]:
        *receipts, _, used_at = original(self)
        return [*receipts, [], used_at]

    return patched(SessionState, image=image)


def forget_last_batch() -> AbstractContextManager[None]:
    original = Staging.committed

    def committed(self: Staging, sink: SinkState, number: int, ranges: list[list[Any]], batch: Batch) -> None:
        original(self, sink, number, ranges, batch)
        sink.batch = -1

    return patched(Staging, committed=committed)


def abort_a_commit() -> AbstractContextManager[None]:
    original = Staging.abort

    def abort(self: Staging, batch: Batch) -> dict[str, object]:
        name, run, number = decode_fields(batch, sink=str, run=str, batch=int)
        sink = self.sinks.get(name)
        if sink is not None and sink.run == run and sink.batch == number:
            sink.batch = number - 1
        return original(self, batch)

    return patched(Staging, abort=abort)


def reset_without_recount() -> AbstractContextManager[None]:
    original = Staging.begin

    def begin(self: Staging, batch: Batch, log_bytes: int) -> dict[str, object]:
        (name,) = decode_fields(batch, sink=str)
        last = self.sinks[name].batch if name in self.sinks else -1
        answer = original(self, batch, log_bytes)
        self.sinks[name].batch = last
        return answer

    return patched(Staging, begin=begin)


def keep_leftovers() -> AbstractContextManager[None]:
    original = Staging.committed

    def committed(self: Staging, sink: SinkState, number: int, ranges: list[list[Any]], batch: Batch) -> None:
        with patched(Staging, _drop=lambda self, attempts: None):
            original(self, sink, number, ranges, batch)

    return patched(Staging, committed=committed)


def forget_staging() -> AbstractContextManager[None]:
    original = Staging.image

    def image(self: Staging) -> list[object]:
        sinks, _, idle_commits = original(self)
        return [sinks, [], idle_commits]

    return patched(Staging, image=image)


def forget_busy_sinks() -> AbstractContextManager[None]:
    original = Staging.expire

    def expire(self: Staging, log_time: int, log_bytes: int) -> None:
        for sink in [sink for sink in self.sinks.values() if log_time > sink.forget_at]:
            self._drop(attempt for attempt in self.attempts.values() if attempt.sink == sink.name)
        original(self, log_time, log_bytes)

    return patched(Staging, expire=expire)


def forget_idle_commits() -> AbstractContextManager[None]:
    original = Staging.image

    def image(self: Staging) -> list[object]:
        return [*original(self)[:2], []]

    return patched(Staging, image=image)


def drop_what_is_staged() -> AbstractContextManager[None]:
    return patched(Staging, first_index=property(lambda self: None))


def drop_what_was_staged() -> AbstractContextManager[None]:
    original = Topic.extend

    def extend(self: Topic, index: int, count: int, size: int, time: int, log_bytes: int, _: int) -> None:
        original(self, index, count, size, time, log_bytes, index)

    return patched(Topic, extend=extend)


def append_beside_a_commit() -> AbstractContextManager[None]:
    return patched(AdmissionView, check_settled=lambda self, topic: None)


def append_where_it_was() -> AbstractContextManager[None]:
    original = AdmissionView.committed

    def committed(self: AdmissionView, topics: Iterable[int]) -> None:
        before = dict(self._positions)
        original(self, topics)
        self._positions = before

    return patched(AdmissionView, committed=committed)


def read_idle_commits() -> AbstractContextManager[None]:
    return patched(Staging, note_idle=lambda self, index, kept_from: None)


def read_by_index() -> AbstractContextManager[None]:
    def decode(batch: Batch) -> CommitRequest:
        request = decode_commit(batch)
        return request._replace(parts=sorted(request.parts, key=lambda part: part[1]))

    return patched(log_reader, decode_commit=decode)


def read_at_the_staged_time() -> AbstractContextManager[None]:
    def placed(batch: Batch, _: StagedBatch, position: Position, commit: Batch) -> tuple[Buffer, Buffer]:
        return batch.placed(position, batch.log_time)

    return patched(log_reader, _placed=placed)


MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant("history-first", "the history is persisted before the truncation", history_first, "episodes"),
        Mutant(
            "strictly-advertised",
            "a member advertises only terms with begin < end, not with begin <= end",
            strictly_advertised,
            "figure 8",
        ),
        Mutant("announce-early", "a leader announces before its own history is durable", announce_early, "even"),
        Mutant("vote-before-durable", "a vote is sent before it is durable", vote_before_durable, "even"),
        Mutant("count-before-sync", "a leader counts itself before its sync", count_before_sync, "even"),
        Mutant("acknowledge-before-sync", "a member acknowledges before its sync", acknowledge_before_sync, "even"),
        Mutant("compare-lengths", "a voter compares lengths only", compare_lengths, "pairs"),
        Mutant(
            "append-unannounced", "an append of the term is taken without its announcement", append_unannounced, "even"
        ),
        Mutant("append-of-older-term", "an append of an older term is taken", append_of_older_term, "sync only"),
        Mutant(
            "announcement-of-older-term",
            "an announcement of an older term is taken",
            announcement_of_older_term,
            "sync only",
        ),
        Mutant("trust-the-point", "a member does not compute the common point itself", trust_the_point, "quiet disk"),
        Mutant("completion-by-index", "a completion is matched by index alone", completion_by_index, "even"),
        Mutant(
            "install-by-header",
            "a start takes the log's header for proof that a snapshot is installed",
            install_by_header,
        ),
        Mutant("keep-history-at-install", "the old history is kept at an installation", keep_history_at_install),
        Mutant("drop-before-durable", "the log is dropped before its snapshot is durable", drop_before_durable),
        Mutant(
            "drop-what-topics-keep",
            "the base is newer than the oldest record that a topic keeps",
            drop_what_topics_keep,
        ),
        Mutant("forget-results", "a snapshot leaves out the results that a session keeps", forget_results),
        Mutant("forget-last-batch", "a sink forgets which batch it has committed", forget_last_batch),
        Mutant("abort-a-commit", "an ABORT removes the record that its batch is committed", abort_a_commit),
        Mutant("reset-without-recount", "a new owner's batches are compared with the old one's", reset_without_recount),
        Mutant("keep-leftovers", "a COMMIT does not drop the staged records that it replaces", keep_leftovers),
        Mutant("forget-staging", "a snapshot leaves out staged batches", forget_staging),
        Mutant("forget-busy-sinks", "a sink is forgotten while attempts of it are left", forget_busy_sinks),
        Mutant("forget-idle-commits", "a snapshot leaves out which COMMITs had no effect", forget_idle_commits),
        Mutant("drop-what-is-staged", "the log is dropped below staged batches", drop_what_is_staged),
        Mutant("drop-what-was-staged", "the log is kept from the COMMIT on only", drop_what_was_staged),
        Mutant(
            "append-beside-a-commit",
            "records get positions while an unapplied COMMIT in the log may assign the same positions",
            append_beside_a_commit,
        ),
        Mutant(
            "append-where-it-was",
            "records after a COMMIT get positions as if there were no COMMIT",
            append_where_it_was,
        ),
        Mutant("read-idle-commits", "readers use COMMITs that had no effect", read_idle_commits),
        Mutant("read-by-index", "readers get a batch in the order in which it was staged", read_by_index),
        Mutant("read-at-the-staged-time", "readers get the log time at which it was staged", read_at_the_staged_time),
    )
}
"""The mutants by name: those of the core, in the order of the protocol's rules, then of snapshots, then of sinks."""
