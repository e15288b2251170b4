"""Planted mistakes in the heartbeats that several groups share."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.consensus import leader, quiet
from viewstamp.consensus.messages import HeartbeatRequest
from viewstamp.consensus.raft import Raft
from viewstamp.consensus.state import Core, Leading
from viewstamp.errors import UnavailableError
from viewstamp.node import beats, peer_frames
from viewstamp.node.beats import Heartbeat, decode_beats
from viewstamp.node.inbox import FromPeer
from viewstamp.node.peer_frames import PeerFrames
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
    )
}
"""The mutants by name."""
