"""Planted mistakes in the heartbeats that several groups share."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.actors.turn_cell import TurnCell
from viewstamp.consensus import leader, quiet
from viewstamp.consensus.messages import HeartbeatRequest
from viewstamp.consensus.raft import Raft
from viewstamp.consensus.state import Core, Leading
from viewstamp.errors import UnavailableError
from viewstamp.node import beats, peer_frames
from viewstamp.node.alarms import Alarms
from viewstamp.node.beats import Beats, Heartbeat, decode_beats
from viewstamp.node.inbox import FromPeer
from viewstamp.node.peer_frames import PeerFrames
from viewstamp.node.replica import Replica
from viewstamp.node.ticker import Ticker
from viewstamp.wire.frame import Frame

__all__ = ["BEAT_MUTANTS"]


def share_a_busy_leaders() -> AbstractContextManager[None]:
    """A leader sends heartbeats on the connections of other groups while its appends are under way on its own."""
    original = quiet.is_in_step

    def is_in_step(core: Core, message: Heartbeat) -> bool:
        return isinstance(message, HeartbeatRequest) or original(core, message)

    return everywhere(original, is_in_step)


def share_a_busy_followers() -> AbstractContextManager[None]:
    original = quiet.is_in_step

    def is_in_step(core: Core, message: Heartbeat) -> bool:
        return not isinstance(message, HeartbeatRequest) or original(core, message)

    return everywhere(original, is_in_step)


def use_the_first_connection() -> AbstractContextManager[None]:
    return patched(beats, _carrier=lambda links: links[0])


def believe_the_carrier() -> AbstractContextManager[None]:
    """The disk of the sender in the group of the connection is taken for that in the group of the heartbeat."""

    def on_beats(self: PeerFrames, frame: Frame) -> None:
        for group, _, message in decode_beats(frame):
            with suppress(UnavailableError):
                self._caller.service.group_of(group).step(FromPeer(message, self._refuse), self._sender.incarnation)

    return patched(PeerFrames, _on_beats=on_beats)


def read_beats_everywhere() -> AbstractContextManager[None]:
    """A node reads heartbeats of other groups on connections of group 0, and of nodes that are no members."""
    return patched(PeerFrames, _check_carrier=lambda self: None)


def beat_always() -> AbstractContextManager[None]:
    """A beat sends the heartbeats of a leader that is not idle, also to members with an unknown state."""

    def beat(self: Raft) -> None:
        if isinstance(self.core.state, Leading):
            leader.send_heartbeats(self.core, self.core.state)

    return patched(Raft, beat=beat)


def keep_the_timer() -> AbstractContextManager[None]:
    """The timer stays where it was before the beat, so an idle leader wakes up once more for each heartbeat."""
    original = Ticker.plan
    return patched(Ticker, plan=lambda self, ticks, *, moves=False: original(self, ticks))


def wake_twice() -> AbstractContextManager[None]:
    return patched(peer_frames, FromPeer=lambda message, refuse, **_: FromPeer(message, refuse))


def check_without_answers() -> AbstractContextManager[None]:
    """With the last beat of an election timeout a leader begins the next one, although no quorum has answered."""

    def check_with_beat(core: Core, leading: Leading) -> None:
        if leading.ticks_since_check + quiet.beat_ticks(core.options) >= core.patience.ticks - 1:
            leader._end_window(core, leading, has_majority=True)

    return patched(leader, check_with_beat=check_with_beat)


def check_by_the_timer() -> AbstractContextManager[None]:
    return patched(leader, check_with_beat=lambda core, leading: None)


def count_news() -> AbstractContextManager[None]:
    """A heartbeat with a newer commit end is taken in a short turn, in which nothing is applied."""
    original = quiet.only_counts

    def only_counts(core: Core, message: Heartbeat) -> bool:
        if isinstance(message, HeartbeatRequest):
            message = replace(message, commit_end=core.log.commit_end)
        return original(core, message)

    return everywhere(original, only_counts)


def let_readers_wait() -> AbstractContextManager[None]:
    """A leader steps the responses that confirm a read in the turn of its next beat."""
    original = quiet.only_counts

    def only_counts(core: Core, message: Heartbeat) -> bool:
        if not isinstance(core.state, Leading) or not core.state.reads:
            return original(core, message)
        waiting, core.state.reads = core.state.reads, []
        try:
            return original(core, message)
        finally:
            core.state.reads = waiting

    return everywhere(original, only_counts)


def forget_the_plan() -> AbstractContextManager[None]:
    """A short turn does not set the timer of a follower later."""

    def count(self: Replica, item: FromPeer) -> None:
        ticks = self._ticker.catch_up()
        if ticks:
            self.raft.tick(self.raft.core.wall_us, has_room=True, ticks=ticks)
        self.raft.step(item.message)
        ready = self.raft.ready()
        if ready is not None:
            self._act(ready)

    return patched(Replica, _count=count)


def leave_the_timer() -> AbstractContextManager[None]:
    """The timer of the event loop stays where it was for an alarm that is cancelled, so that it wakes the node."""
    return patched(Alarms, forget=lambda self, alarm: self._due.pop(alarm, None))


def overtake_waiting_messages() -> AbstractContextManager[None]:
    """A message that is told now is handled before those that wait."""

    def tell_now(self: TurnCell[Any], message: Any) -> None:
        waiting = self.mailbox.take()
        self.mailbox.put(message, wakes=False)
        self._context.run(self._turn)
        self.mailbox.give_back(waiting)

    return patched(TurnCell, tell_now=tell_now)


def beat_alone() -> AbstractContextManager[None]:
    return patched(Beats, join=lambda self: None)


def beat_at_each_frame() -> AbstractContextManager[None]:
    """A node beats whenever heartbeats arrive, so that two nodes answer the beats of each other with theirs."""

    def join(self: Beats) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._on_time)
            for beat in self._leaders():
                beat()

    return patched(Beats, join=join)


BEAT_MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "share-a-busy-leaders-heartbeats",
            "a leader whose appends are lost keeps its followers by heartbeats on connections of other groups",
            share_a_busy_leaders,
            rule="§7",
        ),
        Mutant(
            "share-a-busy-followers-heartbeats",
            "a follower whose acknowledgements are lost keeps its leader by responses on connections of other groups",
            share_a_busy_followers,
            rule="§7",
        ),
        Mutant(
            "share-the-first-connection",
            "the heartbeats of all groups are lost with one connection",
            use_the_first_connection,
            rule="§7",
        ),
        Mutant(
            "believe-the-carrier-of-a-beat",
            "heartbeats of a replaced disk count if they arrive on the connection of another group",
            believe_the_carrier,
            rule="rule 18",
        ),
        Mutant(
            "read-beats-everywhere",
            "heartbeats of other groups are read on connections of group 0 and of strangers",
            read_beats_everywhere,
            rule="§7",
        ),
        Mutant("beat-always", "a beat sends the heartbeats of a leader that is not idle", beat_always, rule="rule 6"),
        Mutant(
            "beat-wakes-twice",
            "an idle follower wakes up for its own timer as well",
            wake_twice,
            rule="§7",
        ),
        Mutant("beat-keeps-the-timer", "a leader wakes up once more after each beat", keep_the_timer, rule="§7"),
        Mutant(
            "beat-checks-without-answers",
            "an idle leader without a majority leads for ever",
            check_without_answers,
            rule="§4, check-quorum",
        ),
        Mutant(
            "beat-leaves-the-check",
            "each leader wakes up once in an election timeout to check for its quorum",
            check_by_the_timer,
            rule="§7",
        ),
        Mutant(
            "count-news", "a follower applies a record only with the next message or tick", count_news, rule="rule 8"
        ),
        Mutant(
            "count-what-a-read-waits-for",
            "a read waits for the next beat, because the responses that confirm it are stepped with it",
            let_readers_wait,
            rule="§4, reads",
        ),
        Mutant("beat-alone", "each node wakes up for its own beat and those of all others", beat_alone, rule="§7"),
        Mutant("beat-at-each-frame", "nodes answer heartbeats with heartbeats for ever", beat_at_each_frame, rule="§7"),
        Mutant("short-turn-without-plan", "an idle follower wakes up for its own timer", forget_the_plan, rule="§7"),
        Mutant(
            "alarm-leaves-the-timer", "the node wakes up for timers that were set later", leave_the_timer, rule="§7"
        ),
        Mutant(
            "overtake-waiting-messages",
            "a heartbeat is stepped before the messages that arrived before it",
            overtake_waiting_messages,
            rule="§7",
        ),
    )
}
"""The mutants by name."""
