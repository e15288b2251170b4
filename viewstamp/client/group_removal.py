"""A client's call that removes an established group which has nothing left.

The group itself says whether it keeps a topic: a stream that it has not deleted yet, or a topic of a release before
streams. ``streams/group_removal.py`` has the rest of the rule, and the reason why the answer stays true.
"""

from __future__ import annotations

from viewstamp.client.admin import Admin
from viewstamp.client.checks import as_whole
from viewstamp.client.groups import Groups
from viewstamp.client.router import Router
from viewstamp.errors import PeerError, RequestError, UnavailableError
from viewstamp.ids import GroupId
from viewstamp.wire.group_requests import ListGroups, RemoveGroup
from viewstamp.wire.requests import ListTopics

__all__ = ["GroupRemovalCalls"]

_LOOK_SECONDS = 3.0
"""The time in which a group has to answer, so that it is not lost."""
_NAMED_MAX = 5


class GroupRemovalCalls:
    """Removes groups."""

    def __init__(self, router: Router, admin: Admin, groups: Groups) -> None:
        self._router = router
        self._admin = admin
        self._groups = groups

    async def remove_group(self, group: int, *, lost: bool = False, timeout: float | None = None) -> None:
        """Remove an established group that has nothing left. Returns when the record is committed.

        There is no way back. Each node closes the group, and removes its directory. Receipts of its sessions go with
        it. Its id is never used again. The same call again is harmless. Cancelled: the group may be removed all the
        same.

        A group whose streams are all removed, and that answers, is asked whether it has deleted them. With ``lost`` a
        group that has no leader with a majority within three seconds is removed without its answer. Archived files of
        its streams then stay in the store, and what its nodes have is deleted when they are found again.

        Example::

            topics = await client.list_spread_topics()
            in_use = {group for topic in topics for group in topic.groups}
            for group in await client.list_groups():
                if group.id not in in_use:
                    await client.remove_group(group.id)

        Args:
          group: the id of the group.
          lost: whether the group may be removed although its nodes do not answer, because they never do again.
          timeout: seconds from now; None = the client's default.

        Raises:
          RequestError: the group has streams or instances of actors, keeps a topic, is not established, or does not
            exist; or a member runs a release without such changes. Nothing was changed.
          AccessDeniedError: access control is on, and the client is no administrator.
          UnavailableError: not removed; group 0, or the group without ``lost``, has no leader, or a member does not
            answer before the first removal.
          OutcomeUnknownError: it may have been removed (``token`` is None); call again.
        """
        number = GroupId(as_whole(group, "the id of a group"))
        deadline = self._router.deadline(timeout)
        # The index comes first: a stream that is removed after the group was asked makes the record refused.
        listed = (await self._router.ask(ListGroups(), deadline=deadline)).body
        is_placed = any(each["id"] == number and each["is_established"] for each in listed["groups"])
        is_lost = is_placed and not await self._is_empty(number, lost, deadline)
        request = RemoveGroup(group=number, seen=listed["applied_index"], is_lost=is_lost)
        await self._admin.ask_leader(request, "the group is not removed", deadline=deadline)

    async def _is_empty(self, group: GroupId, lost: bool, deadline: float) -> bool:
        """Return whether a group says that it keeps no topic; False = it does not answer, and is lost.

        Raises:
          RequestError: it keeps a topic.
          UnavailableError: it does not answer, and is not said to be lost.
        """
        seconds = self._router.left(deadline)
        try:
            with self._groups.call(group) as parts:
                asked = ListTopics(stale=False)
                frame = await parts.router.ask(asked, min(seconds, _LOOK_SECONDS) if lost else seconds)
        except (UnavailableError, PeerError) as error:
            if lost:
                return False
            raise UnavailableError(
                f"group {group} was not removed, because it does not say whether it keeps anything: {error}",
                remedy="start its nodes; if it never has a majority again, give it up: viewstamp group remove"
                f" {group} --lost",
            ) from error
        names = [topic["name"] for topic in frame.body["topics"]]
        if names:
            more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
            raise RequestError(
                f"group {group} keeps {', '.join(map(repr, names[:_NAMED_MAX]))}{more}; it was not removed",
                remedy="move its streams to other groups, delete their records, and remove them: `viewstamp stream"
                " move`, `viewstamp topic trim`, `viewstamp stream remove`; the leader of the group deletes them"
                " within seconds, and waits for the archive to remove their files",
            )
        return True
