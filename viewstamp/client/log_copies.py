"""Reads the logs and snapshots of members, of group 0 or of another group, for a backup."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from viewstamp.client.groups import Groups
from viewstamp.client.router import Router
from viewstamp.ids import GroupId
from viewstamp.wire.batch import Batch
from viewstamp.wire.copy_requests import CopyLog, CopySnapshot, DescribeLog

__all__ = ["LogCopies"]


class LogCopies:
    """Describes and copies committed logs, without the incarnations of members. Changes nothing."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    async def describe_log(
        self, node: str, *, group: int = 0, stale: bool = False, with_groups: bool = False, timeout: float | None = None
    ) -> dict[str, Any]:
        """Return a member's description of its applied log and state; the keys are those of ``DescribeLog``.

        By default it includes every record that was acknowledged before the call. With ``stale`` the member answers
        without a leader, and its newest records may be missing.

        Args:
          node: the name of the member's node.
          group: the id of the group.
          stale: see above.
          with_groups: of group 0: the caller copies the logs of the other groups, too.
          timeout: seconds from now; None = the client's default.

        Raises:
          UnavailableError: the member did not answer in time, or has no leader.
          RequestError: no such member; or it runs a release without this request; or the cluster has other groups, and
            the caller does not copy them.
        """
        request = DescribeLog(stale=stale, groups=with_groups)
        with self._router_of(group) as router:
            return dict((await router.ask(request, timeout, node=node)).body["log"])

    async def copy_log(
        self, node: str, start: int, end: int, *, bytes_max: int, group: int = 0, timeout: float | None = None
    ) -> list[Batch]:
        """Return committed batches of a member from index ``start`` on, about ``bytes_max`` bytes, none beyond ``end``.

        Their checksums have been verified, their indices have not. Empty: they are not durable on that member yet.

        Raises:
          TrimmedError: the log of the member begins above ``start``.
          UnavailableError: the member did not answer in time, or does not know them to be committed.
          FrameError: the member sent bytes that are no batches.
        """
        request = CopyLog(start=start, end=end, bytes_max=bytes_max)
        with self._router_of(group) as router:
            return Batch.decode_all((await router.ask(request, timeout, node=node)).payload)

    async def copy_snapshot(
        self,
        node: str,
        end: int,
        term: int,
        *,
        offset: int,
        bytes_max: int,
        group: int = 0,
        timeout: float | None = None,
    ) -> tuple[int, int, bytes]:
        """Return size and identity of a member's snapshot, and bytes of it from ``offset`` on, not verified.

        Raises:
          TrimmedError: the member does not keep the snapshot any more.
          UnavailableError: the member did not answer in time.
        """
        request = CopySnapshot(end=end, term=term, offset=offset, bytes_max=bytes_max)
        with self._router_of(group) as router:
            frame = await router.ask(request, timeout, node=node)
        return int(frame.body["size"]), int(frame.body["identity"]), bytes(frame.payload)

    @contextmanager
    def _router_of(self, group: int) -> Iterator[Router]:
        with self._groups.call(GroupId(group)) as parts:
            parts.router.start()
            yield parts.router
