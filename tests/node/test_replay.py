"""The initial state of a member that reads its directory."""

from __future__ import annotations

from dataclasses import replace

from viewstamp.consensus.membership import Membership
from viewstamp.host.clock import RealClock
from viewstamp.ids import Index, NodeId, Position, Term
from viewstamp.node.applier import Applier
from viewstamp.node.log_store import stored_membership
from viewstamp.node.replay import _Replay
from viewstamp.streams.machine import Streams
from viewstamp.wal.control_file import ControlState
from viewstamp.wire.batch import Batch, Kind, build_batch


def membership_record(index: int) -> Batch:
    batch = build_batch([Membership({NodeId("n1"): "127.0.0.1:7001"}).encode()], kind=Kind.MEMBERSHIP)
    batch.stamp(
        term=Term(index),
        first_index=Index(index),
        previous_term=Term(index - 1),
        log_time=1000 - index,
        first_position=Position(0),
    )
    return batch


def test_a_replay_applies_committed_batches_at_once_and_keeps_only_the_rest() -> None:
    """However long the log is, the replay holds only the batches that were uncommitted when later ones were written."""
    applier = Applier(Streams(), RealClock())
    replay = _Replay(applier)
    for index in range(1, 501):
        replay.on_batch(membership_record(index), commit_end=max(1, index - 3))
        assert len(replay.tail()) <= 4
    assert applier.applied_end == 497
    tail = replay.tail()
    assert [batch.first_index for batch in tail] == [497, 498, 499, 500]
    assert [entry.index for entry in replay.memberships] == list(range(1, 501))
    assert replay.log_time == 999


def test_the_tail_of_a_replay_stands_in_buffers_of_its_own() -> None:
    """A batch read from disk is a view, which would keep the whole piece in memory."""
    replay = _Replay(Applier(Streams(), RealClock()))
    piece = bytes(membership_record(1).buffer) + bytes(1024 * 1024)
    batch = membership_record(1)
    replay.on_batch(Batch.decode(memoryview(piece)[: batch.size]), commit_end=1)
    (kept,) = replay.tail()
    assert isinstance(kept.buffer, bytearray)
    assert bytes(kept.buffer) == piece[: batch.size]


def test_the_membership_that_a_repair_stored_counts_where_the_log_holds_none() -> None:
    """B2.13: settings that have changed since are not a membership change."""
    stored, settings = Membership({NodeId("n1"): "127.0.0.1:7001"}), Membership({NodeId("n2"): "127.0.0.1:7002"})
    state = ControlState(cluster_id="c", node_id="n1", incarnation="i", membership=stored.encode())
    assert stored_membership(state, settings).membership == stored
    assert stored_membership(replace(state, membership=b""), settings).membership == settings
