"""A client's administrative calls about snapshots, copies for a backup, members and groups."""

from __future__ import annotations

from collections.abc import Sequence

from viewstamp.client.checks import as_text, as_whole
from viewstamp.client.results import (
    GroupInfo,
    Members,
    SnapshotInfo,
    group_info,
    members_of,
    snapshot_info,
)
from viewstamp.client.router import Router
from viewstamp.errors import NoQuorumError, OutcomeUnknownError, RequestError, UnavailableError
from viewstamp.host.address import parse_address
from viewstamp.wire.frame import Frame
from viewstamp.wire.group_requests import CancelGroup, HostGroup, ListGroups, PlaceGroup, UnhostGroup
from viewstamp.wire.requests import (
    ChangeMembership,
    CreateSnapshot,
    ListSnapshots,
    TransferLeadership,
)
from viewstamp.wire.schema import RequestBody

__all__ = ["Admin"]


class Admin:
    """Describes and changes snapshots, members and groups of nodes. Appends no records."""

    def __init__(self, router: Router) -> None:
        self._router = router

    # Snapshots.

    async def create_snapshot(self, node: str | None = None, *, timeout: float | None = None) -> SnapshotInfo:
        """Let a member take a snapshot. Returns when the snapshot is durable; writes continue meanwhile.

        Cancelled: the member may take the snapshot all the same.

        Args:
          node: the member; None = the leader.
          timeout: seconds from now; None = the client's default. A large state takes longer.

        Raises:
          UnavailableError: not done in time; the member may still complete it.
          RequestError: no such node.
        """
        frame = await self._ask_member(CreateSnapshot(), node, timeout, is_slow=True)
        return snapshot_info(frame.body["snapshot"])

    async def list_snapshots(self, node: str | None = None, *, timeout: float | None = None) -> list[SnapshotInfo]:
        """List the snapshots on a member's disk, the newest first. As :meth:`create_snapshot` otherwise."""
        frame = await self._ask_member(ListSnapshots(), node, timeout)
        return [snapshot_info(snapshot) for snapshot in frame.body["snapshots"]]

    async def _ask_member(
        self, request: RequestBody, node: str | None, timeout: float | None, *, is_slow: bool = False
    ) -> Frame:
        """Ask a member, or the leader for None."""
        router = self._router
        deadline = router.deadline(timeout)
        if node is None:
            node, _ = await router.leader_status(deadline)
        seconds = router.left(deadline)
        wait = seconds if is_slow else 0.0
        _, frame = await router.ask_any(request, seconds=seconds, wait=wait, node=node, is_read=not is_slow)
        return frame

    # Members.

    async def list_members(self, *, timeout: float | None = None) -> Members:
        """Return the membership as the leader has it. It may include a change that is not committed yet.

        Raises:
          UnavailableError: there is no leader, or no node answered in time.
        """
        _, status = await self._router.leader_status(self._router.deadline(timeout))
        return members_of(status["membership"])

    async def add_member(
        self, node: str, address: str, *, voter: bool = True, replaces: str = "", timeout: float | None = None
    ) -> Members:
        """Add a node as a learner, or change a member's address. Returns when the change is committed.

        The cluster promotes the node to a voter when it has caught up; until then :meth:`list_members` has it in
        ``joining``. The same call again is harmless. Cancelled: the change may happen all the same.

        Args:
          node: the node's name in its settings.
          address: its address, ``host:port``.
          voter: whether it becomes a voter; False = it stays a learner, which has no vote.
          replaces: the voter whose place it takes when it is promoted; "" = it becomes an additional voter.
          timeout: seconds from now; None = the client's default.

        Raises:
          RequestError: ``replaces`` is not a voter, or ``node`` is a voter already.
          UnavailableError: nothing changed; there is no leader, or another change is under way.
          OutcomeUnknownError: the change may have happened (``token`` is None); call again.
        """
        parse_address(as_text(address, "the address of a member"))
        action = "replace" if replaces else "add" if voter else "learn"
        return await self._change_members(action, node, address, replaces, timeout)

    async def remove_member(self, node: str, *, timeout: float | None = None) -> Members:
        """Remove a voter or a learner. Returns when that is committed; a leader transfers its leadership first.

        The removed node keeps running without any part in the cluster: stop it. Cancelled: the node may be removed all
        the same.

        Raises:
          RequestError: it is not a member, or it is the last voter.
          UnavailableError, OutcomeUnknownError: as for :meth:`add_member`.
        """
        before = await self.list_members(timeout=timeout)
        try:
            return await self._change_members("remove", node, "", "", timeout)
        except RequestError:
            try:
                now = await self.list_members(timeout=timeout)
            except UnavailableError as error:
                # An earlier copy of the request may have removed the node. Without the list of members that is unknown.
                raise self._router.pool.unanswered("no node leads", is_unknown=True) from error
            if node in before.addresses and node not in now.addresses:
                return now  # It was asked for twice, because the first answer was lost.
            raise

    async def transfer_leadership(self, node: str | None = None, *, timeout: float | None = None) -> str:
        """Transfer the leadership to ``node``; None = to the voter with the most complete log. Returns the leader.

        Cancelled: the transfer may happen all the same.

        Raises:
          RequestError: ``node`` is not a voter.
          UnavailableError: there is no leader, or ``node`` did not take over; the old leader continues.
          OutcomeUnknownError: the connection to the leader was lost meanwhile: see :meth:`status` for the leader.
        """
        name = "" if node is None else as_text(node, "the name of a member")
        frame = await self._router.ask_leader(TransferLeadership(node=name), timeout)
        return str(frame.body["leader"])

    async def _change_members(
        self, action: str, node: str, address: str, replaces: str, timeout: float | None
    ) -> Members:
        request = ChangeMembership(
            action=action,
            node=as_text(node, "the name of a member"),
            address=address,
            replaces=as_text(replaces, "the name of a member"),
        )
        frame = await self.ask_leader(request, "the members are not changed", timeout=timeout)
        return members_of(frame.body["membership"])

    async def ask_leader(
        self, request: RequestBody, failed: str, *, timeout: float | None = None, deadline: float | None = None
    ) -> Frame:
        """Send a request to the leader. If each leader has refused it for the moment, the error has the last reason."""
        try:
            return await self._router.ask_leader(request, timeout, deadline=deadline)
        except UnavailableError as error:
            refusal = error.__cause__
            is_answered = not isinstance(error, NoQuorumError)
            if is_answered and isinstance(refusal, UnavailableError) and refusal.remedy:
                # The leader has answered each attempt, so its last refusal has the reason.
                raise UnavailableError(f"{failed}: {refusal}", remedy=refusal.remedy) from error
            raise

    # Groups.

    async def place_group(self, *streams: str, founders: Sequence[str] = (), timeout: float | None = None) -> GroupInfo:
        """Place a group with these streams. Returns when its record is committed; the group is not established then.

        Each founder then creates its directory, and when all have done so the group elects a leader: see
        ``is_established`` of :meth:`list_groups`. Topics cannot be put into a group yet. The same call again finds the
        group, by the names of its streams. Cancelled: the group may be placed all the same.

        Example::

            group = await client.place_group("orders-1")

        Args:
          streams: 1 to 64 names of streams; no other group has one of them.
          founders: names of up to 9 members, voters or learners, better an odd number; () = all voters.
          timeout: seconds from now; None = the client's default.

        Raises:
          RequestError: a founder is no member or is named twice, another group has one of the streams, there are 256
            groups, or a member runs a release without groups or acknowledges before it syncs.
          AccessDeniedError: access control is on, and the client is no administrator.
          UnavailableError: not placed; there is no leader, or a member does not answer.
          OutcomeUnknownError: it may have been placed (``token`` is None); call again, which is harmless.
        """
        names = [as_text(name, "the name of a stream") for name in streams]
        chosen = [as_text(name, "the name of a founder") for name in founders]
        deadline = self._router.deadline(timeout)
        _, index = await self._groups(deadline)
        request = PlaceGroup(streams=names, founders=chosen, since=index)
        try:
            frame = await self.ask_leader(request, "the group is not placed", deadline=deadline)
        except RequestError as refusal:
            # An earlier copy may have placed it on other members than this one would have, because they have changed.
            try:
                groups, _ = await self._groups(deadline)
            except UnavailableError as error:
                raise OutcomeUnknownError(
                    f"the last copy of the request was refused, and one before it may have placed the group: {refusal}",
                    token=None,
                    remedy="look with `viewstamp group list`",
                ) from error
            for group in groups:
                if list(group.streams) == names and set(chosen) in (set(), set(group.founders)):
                    return group
            raise
        return group_info(frame.body["group"])

    async def cancel_group(self, group: int, *, timeout: float | None = None) -> None:
        """Cancel a group that is not established. Returns when that is committed; its nodes remove its directories.

        Nothing was acknowledged in the group. Its id is not used again. The same call again is harmless. Cancelled: the
        group may be cancelled all the same.

        Raises:
          RequestError: the group is established, or there is no such group.
          AccessDeniedError: access control is on, and the client is no administrator.
          UnavailableError: not cancelled; try again.
          OutcomeUnknownError: it may have been cancelled (``token`` is None); call again.
        """
        await self._router.ask_leader(CancelGroup(group=as_whole(group, "the id of a group")), timeout)

    async def add_group_member(self, group: int, node: str, *, timeout: float | None = None) -> GroupInfo:
        """Let one more node host an established group. Returns when that is committed; the node is no member then.

        It then makes a directory for the group and asks to be added. The leader of the group adds it as a learner, and
        promotes it to a voter when it has caught up: see ``hosted`` in :meth:`status`. The same call again is harmless.
        Cancelled: the node may become a host all the same.

        Example::

            [group] = await client.list_groups()
            await client.add_group_member(group.id, "n1")

        Args:
          group: the id of the group.
          node: the name of a member of the cluster.
          timeout: seconds from now; None = the client's default.

        Raises:
          RequestError: there is no such group or member, the group is not established, the node has left the group once
            or is leaving it, the group has 9 hosts, or a member runs an older release.
          AccessDeniedError: access control is on, and the client is no administrator.
          UnavailableError: nothing was changed; there is no leader.
          OutcomeUnknownError: it may be a host (``token`` is None); call again.
        """
        request = HostGroup(group=as_whole(group, "the id of a group"), node=as_text(node, "the name of a node"))
        frame = await self.ask_leader(request, "the hosts are not changed", timeout=timeout)
        return group_info(frame.body["group"])

    async def remove_group_member(self, group: int, node: str, *, timeout: float | None = None) -> GroupInfo:
        """Let a host leave an established group. Returns when that is committed; the node is still a member then.

        The leader of the group then removes it, as soon as a majority of the other voters answers. The node has left
        when :meth:`list_groups` does not have it in ``hosts`` any more. It then removes its directory of the group, and
        is not added to the group again. Parameters and errors as :meth:`add_group_member`; RequestError also if no
        other host would stay. The same call again is harmless.
        """
        request = UnhostGroup(group=as_whole(group, "the id of a group"), node=as_text(node, "the name of a node"))
        frame = await self.ask_leader(request, "the hosts are not changed", timeout=timeout)
        return group_info(frame.body["group"])

    async def list_groups(self, *, timeout: float | None = None) -> list[GroupInfo]:
        """List the groups that are placed, in the order of their ids; linearizable.

        Raises:
          UnavailableError: no node that has a leader answered in time.
          RequestError: the node runs a release without groups.
        """
        groups, _ = await self._groups(self._router.deadline(timeout))
        return groups

    async def _groups(self, deadline: float) -> tuple[list[GroupInfo], int]:
        """Return the groups, and the index that the node had applied."""
        body = (await self._router.ask(ListGroups(), deadline=deadline)).body
        return [group_info(each) for each in body["groups"]], body["applied_index"]
