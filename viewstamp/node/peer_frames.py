"""The frames that a member sends, or a node that asks to join: messages, heartbeats, reports and requests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from viewstamp.consensus.messages import HeartbeatRequest
from viewstamp.errors import FrameError, PeerError, RequestError, UnavailableError, ViewstampError, WrongClusterError
from viewstamp.ids import GroupId, NodeId, name_of
from viewstamp.node.beats import decode_beats
from viewstamp.node.changes import check_address
from viewstamp.node.inbox import FromPeer, Join
from viewstamp.node.peers.codec import decode_message
from viewstamp.node.service import FROM_PEERS, Caller, GroupService
from viewstamp.value_class import value_class
from viewstamp.wire.frame import Frame, FrameKind
from viewstamp.wire.handshake import NAME_MAX
from viewstamp.wire.peer_requests import AskToJoin, PeerReport, ReportHosted, ReportLeft, ReportStreams

__all__ = ["PeerFrames", "PeerSender"]


@value_class(kw_only=False)
class PeerSender:
    """The other side of a connection, as its HELLO names it.

    Attributes:
      peer: its member id.
      incarnation: that of its directory in the group of the connection.
      is_member: whether it is a member of that group; only then it may read the log.
      takes_beats: whether BEATS frames may arrive on this connection.
    """

    peer: NodeId
    incarnation: str
    is_member: bool
    takes_beats: bool


_REPORTS: dict[int, type[PeerReport]] = {row.kind: row for row in (ReportHosted, ReportLeft, ReportStreams)}


class PeerFrames:
    """Handles the frames of one connection.

    Args:
      caller: the connection.
      sender: the other side.
      refuse: ends this connection because of a message that a replica has refused.
      refuse_in: ends the connections of a member in another group.
    """

    def __init__(
        self,
        caller: Caller,
        sender: PeerSender,
        refuse: Callable[[ViewstampError], None],
        refuse_in: Callable[[NodeId, GroupService, ViewstampError], None],
    ) -> None:
        self._caller = caller
        self._group = caller.group
        self._sender = sender
        self._refuse = refuse
        self._refuse_in = refuse_in

    def on_frame(self, frame: Frame) -> None:
        """Handle a frame. Raises FrameError, PeerError, WrongClusterError: the connection must end."""
        if frame.kind == FrameKind.PEER:
            message = decode_message(frame)
            if message.source != self._sender.peer or message.target != self._group.me:
                raise PeerError(f"{self._sender.peer} sent a message from {message.source} to {message.target}")
            self._group.step(FromPeer(message, self._refuse), self._sender.incarnation)
        elif frame.kind == FrameKind.BEATS:
            self._check_carrier()
            self._on_beats(frame)
        elif frame.kind == FrameKind.DIGEST:
            self._group.digest(self._sender.peer, self._sender.incarnation, frame.body)
        elif frame.kind == AskToJoin.kind:
            self._on_join(frame)
        elif frame.kind in _REPORTS:
            self._on_report(frame, _REPORTS[frame.kind])
        elif frame.kind in FROM_PEERS:
            row, handler = FROM_PEERS[frame.kind]
            request = _id_of(frame)
            asked = row.decode(frame.body)
            if not self._sender.is_member:  # The log and its snapshots hold the incarnations of all members.
                raise WrongClusterError(f"{self._sender.peer} is no member of this group, and may only ask to join it")
            handler(self._caller, request, asked, frame)
        else:
            raise FrameError(f"a peer sent a frame of kind {frame.kind}")

    def _check_carrier(self) -> None:
        """Check that BEATS frames may arrive on this connection, because none of their entries ends it."""
        if not self._sender.takes_beats:
            raise FrameError(
                f"{self._sender.peer} sent heartbeats of other groups on a connection that does not take them"
            )
        self._group.check_source(self._sender.peer, self._sender.incarnation)

    def _on_beats(self, frame: Frame) -> None:
        """Take the heartbeats of several groups, each under the checks of its own group; see ``beats``."""
        refused: dict[GroupId, Callable[[], None]] = {}
        is_beat = False
        for group, incarnation, message in decode_beats(frame):
            is_beat = is_beat or isinstance(message, HeartbeatRequest)
            if name_of(message.source) != name_of(self._sender.peer):
                raise PeerError(f"{self._sender.peer} sent a heartbeat from {message.source} to {message.target}")
            with suppress(UnavailableError):
                hosted = self._caller.service.group_of(group)
                if group not in refused and message.target == hosted.me != message.source:
                    refuse = partial(self._refuse_in, message.source, hosted)
                    try:
                        hosted.step(FromPeer(message, refuse, is_beat=True), incarnation)
                    except PeerError as error:
                        refused[group] = partial(refuse, error)
        for end in refused.values():
            end()
        if is_beat:
            self._caller.service.beats.join()

    def _on_join(self, frame: Frame) -> None:
        try:
            asked = AskToJoin.decode(frame.body if isinstance(frame.body, dict) else {})
        except RequestError as error:
            raise FrameError(f"a peer sent an invalid request to join: {error.message}") from error
        if not asked.address or len(asked.member) > NAME_MAX:
            raise FrameError(f"a peer asks to join without an address, or under an id of over {NAME_MAX} characters")
        check_address(asked.address)
        member = NodeId(asked.member or self._sender.peer)
        self._group.join(Join(member, asked.address, is_direct=member == self._sender.peer))

    def _on_report(self, frame: Frame, row: type[PeerReport]) -> None:
        try:
            asked = row.decode(frame.body if isinstance(frame.body, dict) else {})
        except RequestError as error:
            raise FrameError(f"a peer sent an invalid report: {error.message}") from error
        self._group.take_report(self._sender.peer, self._sender.incarnation, asked)


def _id_of(frame: Frame) -> int:
    request = frame.body.get("id") if isinstance(frame.body, dict) else None
    if type(request) is not int:
        raise FrameError(f"a request of kind {frame.kind} without an id")
    return request
