"""A client's administrative calls: topics, snapshots, members, groups and tokens."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from viewstamp.client.checks import as_staleness, as_text, as_whole
from viewstamp.client.results import (
    AuditEntry,
    GroupInfo,
    Members,
    SnapshotInfo,
    TokenInfo,
    TopicInfo,
    group_info,
    members_of,
    snapshot_info,
    token_info,
    topic_info,
)
from viewstamp.client.router import Router
from viewstamp.errors import NoQuorumError, OutcomeUnknownError, RequestError, UnavailableError
from viewstamp.host.address import parse_address
from viewstamp.wire.access import Token, check_roles
from viewstamp.wire.archive_requests import ConfigureArchive
from viewstamp.wire.batch import Batch
from viewstamp.wire.brief_repr import brief_repr
from viewstamp.wire.frame import Frame
from viewstamp.wire.names import check_topic
from viewstamp.wire.requests import (
    CancelGroup,
    ChangeMembership,
    ConfigureTopic,
    CopyLog,
    CopySnapshot,
    CreateSnapshot,
    CreateToken,
    CreateTopic,
    DescribeLog,
    DescribeTopic,
    FindTime,
    ListAudit,
    ListGroups,
    ListSnapshots,
    ListTokens,
    ListTopics,
    PlaceGroup,
    RevokeToken,
    RotateToken,
    SplitTopic,
    TransferLeadership,
    TrimTopic,
)
from viewstamp.wire.schema import RequestBody

__all__ = ["Admin"]


class Admin:
    """Describes and changes topics, snapshots, members, groups and tokens. Appends no records."""

    def __init__(self, router: Router, entropy: Random) -> None:
        """``entropy`` draws the secrets of tokens, so a real client passes the operating system's entropy."""
        self._router = router
        self._entropy = entropy

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

    # Copies for a backup.

    async def describe_log(self, node: str, *, stale: bool = False, timeout: float | None = None) -> dict[str, Any]:
        """Return a member's description of its applied log and state; the keys are those of ``DescribeLog``.

        By default it includes every record that was acknowledged before the call. With ``stale`` the member answers
        without a leader, and its newest records may be missing.

        Raises:
          UnavailableError: the member did not answer in time, or has no leader.
          RequestError: no such member, or it runs a release without this request.
        """
        return dict((await self._router.ask(DescribeLog(stale=stale), timeout, node=node)).body["log"])

    async def copy_log(
        self, node: str, start: int, end: int, *, bytes_max: int, timeout: float | None = None
    ) -> list[Batch]:
        """Return committed batches of a member from index ``start`` on, about ``bytes_max`` bytes, none beyond ``end``.

        Their checksums have been verified, their indices have not. Empty: they are not durable on that member yet.

        Raises:
          TrimmedError: the log of the member begins above ``start``.
          UnavailableError: the member did not answer in time, or does not know them to be committed.
          FrameError: the member sent bytes that are no batches.
        """
        request = CopyLog(start=start, end=end, bytes_max=bytes_max)
        return Batch.decode_all((await self._router.ask(request, timeout, node=node)).payload)

    async def copy_snapshot(
        self, node: str, end: int, term: int, *, offset: int, bytes_max: int, timeout: float | None = None
    ) -> tuple[int, int, bytes]:
        """Return size and identity of a member's snapshot, and bytes of it from ``offset`` on, not verified.

        Raises:
          TrimmedError: the member does not keep the snapshot any more.
          UnavailableError: the member did not answer in time.
        """
        request = CopySnapshot(end=end, term=term, offset=offset, bytes_max=bytes_max)
        frame = await self._router.ask(request, timeout, node=node)
        return int(frame.body["size"]), int(frame.body["identity"]), bytes(frame.payload)

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
          founders: names of up to 9 voters, better an odd number; () = all voters.
          timeout: seconds from now; None = the client's default.

        Raises:
          RequestError: a founder is no voter or is named twice, another group has one of the streams, there are 256
            groups, access control is on, or a member runs a release without groups or acknowledges before it syncs.
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

    # Tokens.

    async def create_token(
        self,
        name: str,
        roles: Sequence[str],
        *,
        expire_seconds: int = 0,
        timeout: float | None = None,
    ) -> tuple[TokenInfo, str]:
        """Create a token. Returns its description and its text, which is secret and is stored nowhere else.

        The first token with the role ``administer`` turns access control on, for good: from then on each request needs
        a token with the right for it. Cancelled: the token may exist all the same; revoke it by its name.

        Example::

            token, text = await client.create_token("orders-writer", ["append:orders*"])

        Args:
          name: for people; no two valid tokens have the same name.
          roles: ``read:NAME``, ``append:NAME``, ``call:NAME`` (a NAME that ends with ``*`` is the beginning of names;
            without ``:NAME`` the role is for all names), or ``administer``.
          expire_seconds: seconds of log time until the token ends; 0 = never.
          timeout: seconds from now; None = the client's default.

        Raises:
          RequestError: a role or the name is not allowed, or a valid token has this name.
          AccessDeniedError: access control is on, and the client is no administrator.
          UnavailableError: not created; try again.
          OutcomeUnknownError: it may have been created (``token`` is None): revoke it by its name, and create another.
        """
        token = Token.new(self._entropy.randbytes)
        request = CreateToken(
            token=token.id,
            name=as_text(name, "the name of a token"),
            roles=[str(role) for role in check_roles(list(roles))],
            hash=token.hash,
            expire_seconds=as_whole(expire_seconds, "the seconds until a token ends"),
        )
        frame = await self._router.ask_leader(request, timeout)
        return token_info(frame.body["token"]), token.text

    async def list_tokens(self, *, timeout: float | None = None) -> list[TokenInfo]:
        """List all tokens, those that have ended too. Raises AccessDeniedError, UnavailableError."""
        return await self._tokens(self._router.deadline(timeout))

    async def _tokens(self, deadline: float) -> list[TokenInfo]:
        frame = await self._router.ask(ListTokens(), deadline=deadline)
        return [token_info(each) for each in frame.body["tokens"]]

    async def rotate_token(
        self, token: str, *, keep_seconds: int = 0, timeout: float | None = None
    ) -> tuple[TokenInfo, str]:
        """Give a token a new secret. Returns its description and its new text. Cancelled: it may be rotated.

        Args:
          token: the id or the name of a valid token.
          keep_seconds: seconds of log time for which the secret before it stays valid; 0 = it ends at once.
          timeout: seconds from now; None = the client's default.

        Raises:
          RequestError: no valid token has this id or name.
          AccessDeniedError, UnavailableError, OutcomeUnknownError: as for :meth:`create_token`; rotate it again.
        """
        deadline = self._router.deadline(timeout)
        found = await self._find_token(token, deadline)
        new = Token.new(self._entropy.randbytes, id=found.id)
        request = RotateToken(
            token=found.id,
            rotation=found.rotation + 1,
            hash=new.hash,
            keep_seconds=as_whole(keep_seconds, "the seconds for which the older secret stays valid"),
        )
        frame = await self._router.ask_leader(request, deadline=deadline)
        return token_info(frame.body["token"]), new.text

    async def revoke_token(self, token: str, *, only_old: bool = False, timeout: float | None = None) -> TokenInfo:
        """End a token for good. After it has returned, no write and no linearizable read of the token takes effect.

        Stale reads of a node that has not applied the revocation may still be answered. Cancelled: the token may end.

        Args:
          token: the id or the name of a valid token.
          only_old: end only the secret before the newest one, after a rotation.
          timeout: seconds from now; None = the client's default.

        Raises:
          RequestError: no valid token has this id or name.
          AccessDeniedError, UnavailableError, OutcomeUnknownError: as for :meth:`create_token`; revoke it again.
        """
        deadline = self._router.deadline(timeout)
        found = await self._find_token(token, deadline)
        request = RevokeToken(token=found.id, only_old=only_old)
        frame = await self._router.ask_leader(request, deadline=deadline)
        return token_info(frame.body["token"])

    async def _find_token(self, token: str, deadline: float) -> TokenInfo:
        """Return the valid token with this id or name; an ended one only by its id."""
        tokens = await self._tokens(deadline)
        found = [each for each in tokens if each.id == token or (each.name == token and not each.ended)]
        if not found:
            raise RequestError(
                f"no token has the id or the name {brief_repr(token)}", remedy="look with `viewstamp token list`"
            )
        return found[0]

    async def list_audit(self, *, since: int = 0, timeout: float | None = None) -> list[AuditEntry]:
        """Return the newest administrative actions, the oldest first; at most 10,000 are kept.

        Args:
          since: log time in microseconds since 1970; entries before it are left out.
          timeout: seconds from now; None = the client's default.

        Raises:
          AccessDeniedError: the client is no administrator.
          UnavailableError: no node answered in time.
        """
        frame = await self._router.ask(ListAudit(since=as_whole(since, "the time of the first entry")), timeout)
        return [AuditEntry(*entry) for entry in frame.body["entries"]]

    # Topics.

    async def create_topic(
        self,
        name: str,
        *,
        retain_bytes: int = 0,
        retain_seconds: float = 0.0,
        archive: bool = False,
        archive_after_seconds: float | None = None,
        archive_delay_seconds: float | None = None,
        delete_after_seconds: float | None = None,
        timeout: float | None = None,
    ) -> TopicInfo:
        """Create a topic. If it exists with the same settings, return it as it is. Cancelled: it may be created.

        Example::

            topic = await client.create_topic("events", retain_bytes=64 * 2**20)

        Args:
          name: 1 to 128 letters, digits, dots, underscores or hyphens; the first is not a dot or a hyphen.
          retain_bytes: the oldest records are trimmed when the topic is larger than this; 0 = never.
          retain_seconds: records older than this are trimmed; 0 = never.
          archive: as the ages after it, see :meth:`configure_topic`.
          archive_after_seconds: the same.
          archive_delay_seconds: the same.
          delete_after_seconds: the same.
          timeout: seconds from now; None = the client's default.

        Raises:
          RequestError: the name or a setting is not allowed; with ``archive``, a member runs an older release.
          AccessDeniedError: access control is on, and the client lacks the right; ``archive`` needs an administrator.
          TopicExistsError: the topic exists with other settings; see :meth:`configure_topic`.
          UnavailableError: not created; try again.
          OutcomeUnknownError: it may have been created (``token`` is None); create it again, which is harmless.
        """
        as_whole(retain_bytes, "retain_bytes")
        ages = (archive_after_seconds, archive_delay_seconds, delete_after_seconds)
        request: RequestBody
        if archive or ages != (None, None, None):
            request = _archive_request(name, retain_bytes, retain_seconds, archive, ages, is_new=True)
        else:
            request = CreateTopic(name=check_topic(name), retain_bytes=retain_bytes, retain_seconds=retain_seconds)
        return await self._change_topic(request, timeout)

    async def configure_topic(
        self,
        name: str,
        *,
        retain_bytes: int | None = None,
        retain_seconds: float | None = None,
        archive: bool | None = None,
        archive_after_seconds: float | None = None,
        archive_delay_seconds: float | None = None,
        delete_after_seconds: float | None = None,
        timeout: float | None = None,
    ) -> TopicInfo:
        """Change the settings of a topic; None = unchanged. Records beyond the new limits are deleted at once.

        With the archive the retention deletes nothing: it says for how long the log keeps its copy of archived records.
        All ages are log time. Cancelled: the settings may be changed all the same.

        Example::

            await client.configure_topic("orders", archive=True, delete_after_seconds=90 * 86_400)

        Args:
          name: the topic's name.
          retain_bytes: as for :meth:`create_topic`.
          retain_seconds: the same.
          archive: whether the leader archives the topic by itself. Without it the three ages have no value.
          archive_after_seconds: records are archived when they are older than this; 0 = at any age.
          archive_delay_seconds: for so long the log keeps its copy too, from the commit of a run on; default one day.
          delete_after_seconds: archived records older than this are deleted, in whole runs; 0 = never.
          timeout: seconds from now; None = the client's default.

        Raises:
          UnknownTopicError: no topic has this name.
          RequestError: a setting is not allowed; about the archive, a member runs an older release, or acknowledges
            before it syncs.
          UnavailableError, OutcomeUnknownError: as for :meth:`create_topic`; the same call again is harmless.
        """
        if retain_bytes is not None:
            as_whole(retain_bytes, "retain_bytes")
        ages = (archive_after_seconds, archive_delay_seconds, delete_after_seconds)
        request: RequestBody
        if (archive, *ages) != (None, None, None, None):
            request = _archive_request(name, retain_bytes, retain_seconds, archive, ages, is_new=False)
        else:
            request = ConfigureTopic(name=check_topic(name), retain_bytes=retain_bytes, retain_seconds=retain_seconds)
        return await self._change_topic(request, timeout)

    async def trim_topic(self, name: str, position: int, *, timeout: float | None = None) -> TopicInfo:
        """Delete all records of a topic before ``position``, for good. Does nothing if they are deleted already.

        Cancelled: the records may be deleted all the same.

        Raises:
          UnknownTopicError: no topic has this name.
          RequestError: the position is beyond the end of the topic.
          UnavailableError, OutcomeUnknownError: as for :meth:`create_topic`; the same call again is harmless.
        """
        request = TrimTopic(name=check_topic(name), position=as_whole(position, "the position to trim to"))
        return await self._change_topic(request, timeout)

    async def _change_topic(self, request: RequestBody, timeout: float | None) -> TopicInfo:
        if isinstance(request, ConfigureArchive):
            frame = await self.ask_leader(request, "the topic was not changed", timeout=timeout)
        else:
            frame = await self._router.ask_leader(request, timeout)
        return topic_info(frame.body["topic"])

    async def describe_topic(
        self, name: str, *, stale: bool = False, max_staleness: float | None = None, timeout: float | None = None
    ) -> TopicInfo:
        """Describe a topic, by default linearizably.

        Args:
          name: the topic's name.
          stale: accept the state of any one node; ``age_seconds`` of the result bounds its age.
          max_staleness: accept the state of any one node that is at most this many seconds old. A node with an older
            state asks the leader, or the client asks another node. None = no limit.
          timeout: seconds from now; None = the client's default.

        Raises:
          UnknownTopicError: no topic has this name.
          UnavailableError: no node, or none that is fresh enough, answered in time.
        """
        request = DescribeTopic(name=check_topic(name), **as_staleness(stale, max_staleness))
        frame = await self._router.ask(request, timeout)
        return topic_info(frame.body["topic"], frame.body["age"])

    async def list_topics(
        self, *, stale: bool = False, max_staleness: float | None = None, timeout: float | None = None
    ) -> list[TopicInfo]:
        """List all topics in the order of their creation. Otherwise as :meth:`describe_topic`."""
        frame = await self._router.ask(ListTopics(**as_staleness(stale, max_staleness)), timeout)
        return [topic_info(topic, frame.body["age"]) for topic in frame.body["topics"]]

    async def split_topic(
        self,
        topic: str,
        start: int,
        end: int,
        bytes: int,  # noqa: A002  # as on the wire
        *,
        timeout: float | None = None,
    ) -> list[int]:
        """Divide a range of positions into parts of about equal size, for readers that share the work.

        Args:
          topic: the topic's name.
          start: the first position.
          end: the position after the last one.
          bytes: the size of a part.
          timeout: seconds from now; None = the client's default.

        Returns:
          Rising positions from ``start`` to ``end``; each part reaches from one position up to the next.

        Raises:
          UnknownTopicError, RequestError: no such topic, or no such range in it.
          UnavailableError: no node answered in time.
        """
        frame = await self._router.ask(SplitTopic(name=topic, start=start, end=end, bytes=bytes), timeout)
        return [int(position) for position in frame.body["positions"]]

    async def find_time(self, topic: str, timestamp: int, *, timeout: float | None = None) -> int:
        """Return a position at or before the first record whose log time is ``timestamp`` or later.

        Args:
          topic: the topic's name.
          timestamp: microseconds since 1970.
          timeout: seconds from now; None = the client's default.

        Raises:
          UnknownTopicError: no topic has this name.
          UnavailableError: no node answered in time.
        """
        request = FindTime(name=topic, timestamp=as_whole(timestamp, "the time to look for"))
        frame = await self._router.ask(request, timeout)
        return int(frame.body["position"])


def _archive_request(
    name: str,
    retain_bytes: int | None,
    retain_seconds: float | None,
    archive: bool | None,
    ages: tuple[float | None, float | None, float | None],
    *,
    is_new: bool,
) -> ConfigureArchive:
    """Return the request for settings of the archive; ``ages``: of archiving, of the log's copy, of deletion."""
    after, delay, delete = ages
    return ConfigureArchive(
        name=check_topic(name),
        retain_bytes=retain_bytes,
        retain_seconds=retain_seconds,
        is_on=archive,
        after_seconds=after,
        delay_seconds=delay,
        delete_seconds=delete,
        is_new=is_new,
    )
