"""The source of a backup: the members of a running cluster, one at a time, or the files of stopped ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from viewstamp.client.aio import Client
from viewstamp.consensus.term_history import TermHistory
from viewstamp.errors import FrameError, PeerError, RequestError, UnavailableError
from viewstamp.ids import Index
from viewstamp.node.order_queries import HomeCut
from viewstamp.wire.batch import Batch
from viewstamp.wire.brief_repr import brief_repr

__all__ = ["BackupSource", "ClusterSource", "LogPoint", "OfferedSnapshot"]


@dataclass(frozen=True, slots=True)
class OfferedSnapshot:
    """A snapshot that a source has: the state before index ``end``; its last record has ``term``; ``size`` bytes."""

    end: int
    term: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPoint:
    """The committed log of a node at one moment: indices from ``first_index`` up to ``end`` (exclusive).

    ``term`` and ``log_time`` are those of the last record. For ``chain``, ``lineage``, ``topics``, ``sinks`` and
    ``actors`` see :class:`viewstamp.backup.manifest.Manifest`.

    The rest is about a cluster with other groups, and only in a point of group 0. ``groups`` are the ids of the other
    established groups. The logs of these groups are cut by ``cut``, and have at least what they had in ``floors``, by
    group; None and {} = their logs never contradict this one. ``placement`` has what must not change until the end of
    the backup: the groups, their streams, and the actors of groups.
    """

    cluster: str
    node: str
    first_index: int
    end: int
    term: int
    log_time: int
    history: TermHistory
    snapshots: tuple[OfferedSnapshot, ...]
    chain: int | None = None
    lineage: int | None = None
    topics: tuple[Mapping[str, Any], ...] = ()
    sinks: tuple[Mapping[str, Any], ...] = ()
    actors: tuple[Mapping[str, Any], ...] = ()
    group: int = 0
    groups: tuple[int, ...] = ()
    cut: HomeCut | None = None
    floors: Mapping[int, LogPoint] = field(default_factory=dict)
    placement: object = None


class BackupSource(Protocol):
    """Returns committed batches and snapshots, without the incarnations of members."""

    async def describe(self) -> LogPoint:
        """Choose a node, and describe its log of group 0, which has every record acknowledged before the call.

        Raises:
          UnavailableError: no node answers, or there is no leader.
        """
        ...

    async def describe_group(self, group: int) -> LogPoint:
        """Describe the log of another group, as :meth:`describe` does."""
        ...

    async def placement(self) -> object:
        """Return what must not change during a backup: see :class:`LogPoint`."""
        ...

    async def read_log(self, point: LogPoint, start: int, bytes_max: int) -> list[Batch]:
        """Return batches from index ``start`` on, none beyond ``point.end``, with verified checksums; [] = not yet.

        Raises:
          TrimmedError: the log begins above ``start`` by now.
          UnavailableError, PeerError: the node does not answer, or wrongly.
        """
        ...

    async def read_snapshot(
        self, point: LogPoint, snapshot: OfferedSnapshot, offset: int, bytes_max: int
    ) -> tuple[int, int, bytes]:
        """Return size and identity of a snapshot's file, and bytes of it; raises as :meth:`read_log`."""
        ...

    def failed(self, node: str) -> None:
        """Prefer another node from now on."""
        ...


class ClusterSource:
    """A running cluster, read through a client. It takes a follower if there is one, to spare the leader."""

    def __init__(self, client: Client, *, node: str | None = None, stale: bool = False, timeout: float = 10.0) -> None:
        """Use ``client``, which the caller closes.

        Args:
          client: of the cluster.
          node: the id of the only member to read from; None = any.
          stale: take the log of a member without asking a leader; acknowledged records may be missing then.
          timeout: seconds for one request.
        """
        self._client = client
        self._node = node
        self._stale = stale
        self._timeout = timeout
        self._failed: list[str] = []
        self._hosts: dict[int, list[str]] = {}
        """The hosts of each other established group."""

    async def describe(self) -> LogPoint:
        """Choose a node, and describe its log of group 0; as :class:`BackupSource`."""
        node = await self._choose()
        try:
            return _point(await self._client.describe_log(node, stale=self._stale, timeout=self._timeout))
        except RequestError:
            groups = await self._client.list_groups(timeout=self._timeout)
            self._hosts = {int(each.id): sorted(each.hosts) for each in groups if each.is_established}
            if not self._hosts or self._stale:
                raise
        # Both before the description of group 0. The placement is compared after it: so it is that of its state, too.
        placement = await self.placement()
        floors = {group: await self.describe_group(group) for group in self._hosts}
        point = _point(await self._client.describe_log(node, with_groups=True, timeout=self._timeout))
        if point.cut is None or {*point.groups} != self._hosts.keys():
            raise UnavailableError("a group was established meanwhile; no backup was taken", remedy="run it again")
        return replace(point, floors=floors, placement=placement)

    async def placement(self) -> object:
        """Return the groups, their streams, and the actors of groups, linearizably; as :class:`BackupSource`."""
        groups = await self._client.list_groups(timeout=self._timeout)
        topics = await self._client.list_spread_topics(timeout=self._timeout)
        actors = await self._client.list_spread_actors(timeout=self._timeout)
        return (
            sorted(each.id for each in groups if each.is_established),
            [(each.id, each.groups, each.closed) for each in topics],
            actors,
        )

    async def describe_group(self, group: int) -> LogPoint:
        """Choose a host of a group, and describe the log of the group; as :class:`BackupSource`."""
        hosts = self._hosts[group]
        turn = group % len(hosts)  # So that one node is not asked for all groups.
        node = self._node if self._node in hosts else min(hosts[turn:] + hosts[:turn], key=self._failed.count)
        fields = await self._client.describe_log(node, group=group, timeout=self._timeout)
        return replace(_point(fields), group=group)

    async def read_log(self, point: LogPoint, start: int, bytes_max: int) -> list[Batch]:
        """Return batches; as :class:`BackupSource`."""
        return await self._client.copy_log(
            point.node, start, point.end, bytes_max=bytes_max, group=point.group, timeout=self._timeout
        )

    async def read_snapshot(
        self, point: LogPoint, snapshot: OfferedSnapshot, offset: int, bytes_max: int
    ) -> tuple[int, int, bytes]:
        """Return a piece of a snapshot; as :class:`BackupSource`."""
        return await self._client.copy_snapshot(
            point.node,
            snapshot.end,
            snapshot.term,
            offset=offset,
            bytes_max=bytes_max,
            group=point.group,
            timeout=self._timeout,
        )

    def failed(self, node: str) -> None:
        """Prefer another node from now on; as :class:`BackupSource`."""
        self._failed.append(node)

    async def _choose(self) -> str:
        if self._node is not None:
            return self._node
        statuses = await self._client.status(timeout=self._timeout)
        reachable = [status for status in statuses if status["reachable"]]
        running = [each for each in reachable if self._stale or each.get("lifecycle") == "running"]
        if not running:
            where = "; ".join(
                f"{each.get('address')}: {each.get('error') or each.get('lifecycle')}" for each in statuses
            )
            raise UnavailableError(
                f"no member of the cluster is running and answers ({where})",
                remedy="start the nodes; or take the backup from the files of stopped nodes, with --from",
            )
        chosen = min(
            running,
            key=lambda each: (self._failed.count(str(each["id"])), each.get("role") == "leader", str(each["id"])),
        )
        return str(chosen["id"])


def _point(fields: Mapping[str, Any]) -> LogPoint:
    """Return the answer to DescribeLog as a point; the client has checked the types."""
    try:
        history = TermHistory([(term, begin) for term, begin in fields["history"]])
        snapshots = tuple(
            OfferedSnapshot(each["index"] + 1, each["term"], each["bytes"]) for each in fields["snapshots"]
        )
    except (PeerError, ValueError, RequestError) as error:
        raise FrameError(f"a node described its log as {brief_repr(fields)}") from error
    lists: dict[str, Sequence[Mapping[str, Any]]] = {key: fields[key] for key in ("topics", "sinks", "actors")}
    return LogPoint(
        cluster=fields["cluster"],
        node=fields["node"],
        first_index=fields["first_index"],
        end=fields["end"],
        term=fields["term"],
        log_time=fields["log_time"],
        chain=fields["chain"],
        lineage=fields["lineage"],
        history=history,
        snapshots=snapshots,
        topics=tuple(lists["topics"]),
        sinks=tuple(lists["sinks"]),
        actors=tuple(lists["actors"]),
        groups=tuple(fields.get("groups", ())),
        cut=_cut(fields) if "version" in fields else None,
    )


def _cut(fields: Mapping[str, Any]) -> HomeCut:
    return HomeCut(
        end=Index(fields["end"]),
        version=fields["version"],
        open_attempts=frozenset(fields["open_attempts"]),
        pending_attempts=frozenset(fields["pending_attempts"]),
    )
