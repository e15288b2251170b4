"""The settings of a node as plain values, with what is allowed for each. Reads nothing; see ``load.py``.

The dataclasses are the only list of settings there is: ``load.py`` walks their fields, so that a key
added here can be set in a file, in the environment and by a flag, and shows up in ``config show``. Only the
names in ``[actors]`` are the user's own.
"""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Final

from viewstamp.errors import ConfigError
from viewstamp.host.network import parse_address
from viewstamp.ids import ClusterId, NodeId

__all__ = [
    "INTERVAL",
    "SYNC",
    "ClusterSection",
    "Key",
    "LimitsSection",
    "LoggingSection",
    "NodeSection",
    "NodeSettings",
    "SnapshotsSection",
    "TimeoutsSection",
    "WalSection",
    "actor_key",
    "is_loopback",
    "keys_of",
]

SYNC: Final = "sync"
"""The durability in which nothing is acknowledged before it is synced."""

INTERVAL: Final = "interval_may_lose_acknowledged_writes"
"""The durability that syncs now and then. Its name says what it costs: in settings, in ``status``, in receipts."""

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NAME_ALLOWED = "1 to 64 of the characters A-Z a-z 0-9 . _ -, starting with a letter or digit"
_ADDRESS_ALLOWED = 'host:port with a port from 1 to 65535, such as "127.0.0.1:7001"'

_CLASS = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_SEGMENTS_MIN: Final = 8
"""A limited log drops whole segments: with fewer, it would have to be nearly empty before one comes free."""

_Check = Callable[[Any], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One setting: its place, its type, and what is allowed.

    ``kind`` is str, int, float, bool or dict (a table of node ids and addresses).
    """

    section: str
    name: str
    kind: type
    required: bool
    default: Any
    allowed: str
    check: _Check

    def __str__(self) -> str:
        return f"[{self.section}] {self.name}"


def _text(allowed: str, check: _Check) -> dict[str, Any]:
    return {"kind": str, "allowed": allowed, "check": check}


def _one_of(*choices: str) -> dict[str, Any]:
    return _text(" or ".join(f'"{choice}"' for choice in choices), lambda value: value in choices)


def _boolean() -> dict[str, Any]:
    return {"kind": bool, "allowed": "true or false", "check": lambda _: True}


def _integer(minimum: int, maximum: int, *, or_zero: str = "") -> dict[str, Any]:
    def check(value: int) -> bool:
        return minimum <= value <= maximum or (bool(or_zero) and value == 0)

    allowed = f"an integer from {minimum} to {maximum}" + (f", or 0 ({or_zero})" if or_zero else "")
    return {"kind": int, "allowed": allowed, "check": check}


def _seconds(minimum: float, maximum: float, *, or_zero: str = "") -> dict[str, Any]:
    def check(value: float) -> bool:
        return minimum <= value <= maximum or (bool(or_zero) and value == 0)

    allowed = f"a number of seconds from {minimum:g} to {maximum:g}" + (f", or 0 ({or_zero})" if or_zero else "")
    return {"kind": float, "allowed": allowed, "check": check}


def _addresses(allowed: str) -> dict[str, Any]:
    def check(value: Mapping[str, str]) -> bool:
        return all(_is_name(node) and _is_address(address) for node, address in value.items())

    return {"kind": dict, "allowed": allowed, "check": check}


def _is_name(value: str) -> bool:
    return _NAME.fullmatch(value) is not None


def _is_address(value: str) -> bool:
    try:
        return parse_address(value)[1] > 0
    except ConfigError:
        return False


def is_loopback(address: str) -> bool:
    """Say whether ``host:port`` can be reached from this machine only. A name other than localhost is not resolved."""
    host, _ = parse_address(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSection:
    """``[node]``: this node alone."""

    id: NodeId = field(metadata=_text(_NAME_ALLOWED, _is_name))
    """Its name in the cluster; never changes once the data directory exists."""

    data_dir: str = field(metadata=_text("a directory, relative to this file", bool))
    """Where its log lies. Absolute once loaded."""

    listen: str = field(metadata=_text(_ADDRESS_ALLOWED, _is_address))
    """Where peers and clients connect, on one port."""

    advertise: str = field(
        default="", metadata=_text(_ADDRESS_ALLOWED + ', or "" (what listen says)', lambda v: not v or _is_address(v))
    )
    """What others are told to connect to. Never empty once loaded."""

    insecure_network: bool = field(default=False, metadata=_boolean())
    """Allow a listen address that other machines can reach, although nothing is encrypted and nobody authenticated."""

    chaos: bool = field(default=False, metadata=_boolean())
    """Obey ``viewstamp chaos``: whoever may write into data_dir can then slow this node's disk, fill it, cut it off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSection:
    """``[cluster]``: the same on every node.

    Members and learners are hints: they count only where the log holds no membership yet.
    """

    id: ClusterId = field(metadata=_text(_NAME_ALLOWED, _is_name))
    """Made once, when the cluster is; stands in every handshake and on every disk."""

    members: Mapping[NodeId, str] = field(
        default_factory=dict, metadata=_addresses('a table of voters, such as { n1 = "127.0.0.1:7001" }')
    )
    """Who votes: node id to address."""

    learners: Mapping[NodeId, str] = field(
        default_factory=dict, metadata=_addresses('a table of learners, such as { n4 = "127.0.0.1:7004" }')
    )
    """Who follows without a vote: node id to address."""

    leader_hint: str = field(
        default="", metadata=_text('the id of a member, or "" (an election decides)', lambda v: not v or _is_name(v))
    )
    """Who campaigns first where the log is new, so that a new cluster need not wait for an election timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WalSection:
    """``[wal]``: the log on disk."""

    durability: str = field(default=SYNC, metadata=_one_of(SYNC, INTERVAL))
    """When a write counts as durable: when it is synced, or when it is written and a sync will follow soon."""

    sync_interval_ms: int = field(default=100, metadata=_integer(1, 60_000))
    """How often the log is synced where durability is not "sync"."""

    interval_wait_all_seconds: float = field(default=300.0, metadata=_seconds(1, 86_400))
    """How long an election waits for all voters, after a majority lost power where durability is not "sync"."""

    bytes_max: int = field(default=0, metadata=_integer(MIB, 2**60, or_zero="as much as the disk holds"))
    """The log's total size; a full log refuses appends and goes on serving reads."""

    segment_bytes: int = field(
        default=0, metadata=_integer(64 * KIB, GIB, or_zero="16 MiB, or a sixteenth of bytes_max where that is less")
    )
    """The size of one segment file, prepared ahead and filled with zeros; the log shrinks by whole segments."""

    reserve_bytes: int = field(default=64 * MIB, metadata=_integer(0, 2**60))
    """Free space on the disk that the log leaves alone: appends are refused before a write can fail."""

    queue_bytes_max: int = field(default=64 * MIB, metadata=_integer(MIB, GIB))
    """Bytes that may wait for the writer before appends are refused as overload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotsSection:
    """``[snapshots]``: when the state is written down, so that the log before it can be dropped."""

    log_bytes: int = field(
        default=0, metadata=_integer(64 * KIB, 2**60, or_zero="64 MiB, or a quarter of bytes_max where that is less")
    )
    """Take a snapshot whenever the log has grown by so much since the last one."""

    restart_seconds_max: float = field(default=10.0, metadata=_seconds(0.1, 86_400, or_zero="no bound"))
    """Never more than this to restart: a snapshot is taken before replaying the log would take longer."""

    kept_max: int = field(default=6, metadata=_integer(2, 1000))
    """How many snapshots are kept, so that a damaged one can be skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsSection:
    """``[limits]``: what one request may be, and how much of them may wait. Bytes."""

    record_bytes_max: int = field(default=MIB, metadata=_integer(1, GIB))
    """The largest record."""

    batch_bytes_max: int = field(default=8 * MIB, metadata=_integer(KIB, GIB))
    """The largest batch, which is also the largest atomic append."""

    frame_bytes_max: int = field(default=64 * MIB, metadata=_integer(64 * KIB, 2 * GIB - 1))
    """The largest frame that is accepted from a connection."""

    connections_max: int = field(default=8192, metadata=_integer(1, 65_536))
    """Clients that may be connected; fewer where the process may have fewer file descriptors."""

    buffered_bytes_max: int = field(default=512 * MIB, metadata=_integer(MIB, 64 * GIB))
    """What all clients together may have sent of unfinished frames, and not taken of answers."""

    in_flight_bytes_max: int = field(default=64 * MIB, metadata=_integer(KIB, 16 * GIB))
    """Appends taken from clients and not answered yet, all together; more are refused as overload."""

    result_bytes_max: int = field(default=MIB, metadata=_integer(4 * KIB, 64 * MIB))
    """The largest result, or error text, of one command or query of an actor; of commands the leader's counts."""

    staged_bytes_max: int = field(default=GIB, metadata=_integer(MIB, 1024 * GIB))
    """What sinks may have staged and not committed, all together; at most an eighth of a limited log."""

    session_seconds: float = field(default=7 * 24 * 3600.0, metadata=_seconds(1, 1e9))
    """After so long without use a session is forgotten, with what became of its appends; the leader's counts."""

    scrub_bytes_per_second: int = field(default=8 * MIB, metadata=_integer(0, GIB))
    """How fast the node reads its old segments and snapshots to find rot, once an hour at most; 0 = it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutsSection:
    """``[timeouts]``: the pace of the cluster. Equal on all nodes, or the impatient one disturbs the rest."""

    tick_ms: int = field(default=10, metadata=_integer(1, 1000))
    """One step of logical time."""

    heartbeat_ms: int = field(default=50, metadata=_integer(1, 60_000))
    """How often a leader lets followers hear from it."""

    election_ms: int = field(default=300, metadata=_integer(10, 600_000))
    """How long a follower waits before it campaigns: between this and twice this, at random."""

    clock_bound_s: float = field(default=10.0, metadata=_seconds(1, 86_400))
    """How far the time of records may be from the clocks of a majority of the voters, by the leader's own clock."""

    request_s: float = field(default=30.0, metadata=_seconds(0.1, 3600))
    """How long a node works on a request before it answers that it could not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggingSection:
    """``[logging]``: the log messages of a node process. A node inside another program logs as that program does."""

    level: str = field(default="info", metadata=_one_of("info", "warning", "error"))
    """Messages below this level are not written."""

    bytes_max: int = field(default=64 * MIB, metadata=_integer(64 * KIB, 64 * GIB, or_zero="no bound"))
    """At this size ``log.jsonl`` in ``data_dir`` becomes ``log.jsonl.1``, in the place of an earlier one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """Everything that ``node run`` and ``open_node`` need to know.

    Invariants, once :meth:`check` has passed:
      * the node is a member or a learner of the cluster it names, and so is the leader hint a member
      * no two nodes have the same id or address
      * the largest record fits into a batch, a batch into a frame, into what may be in flight and into the WAL's queue
      * a limited log holds eight segments at least, two of the largest batches, and four times what asks for a snapshot
      * ``tick_ms <= heartbeat_ms`` and ``2 * heartbeat_ms <= election_ms``
      * listen is a loopback address, or ``insecure_network`` is set
    """

    node: NodeSection
    cluster: ClusterSection
    wal: WalSection = field(default_factory=WalSection)
    limits: LimitsSection = field(default_factory=LimitsSection)
    timeouts: TimeoutsSection = field(default_factory=TimeoutsSection)
    snapshots: SnapshotsSection = field(default_factory=SnapshotsSection)
    logging: LoggingSection = field(default_factory=LoggingSection)
    actors: Mapping[str, str] = field(default_factory=dict)
    """``[actors]``: the name of each replicated actor, and the class that runs it, as ``module:Class``."""

    def __post_init__(self) -> None:
        """Put sizes that follow from others in the place of their zeros."""
        total = self.wal.bytes_max
        if not self.wal.segment_bytes:
            share = max(1, total // 16) if total else 16 * MIB
            segment = min(16 * MIB, max(64 * KIB, 1 << share.bit_length() - 1))
            object.__setattr__(self, "wal", replace(self.wal, segment_bytes=segment))
        if not self.snapshots.log_bytes:
            log_bytes = min(64 * MIB, total // 4) if total else 64 * MIB
            object.__setattr__(self, "snapshots", replace(self.snapshots, log_bytes=log_bytes))

    def check(self, name: Callable[[str, str], str] = "[{}] {}".format) -> None:
        """Check every value alone and all of them together; settings made by code are checked by calling this.

        ``name(section, key)`` says in an error where the value came from.

        Raises:
          ConfigError: names the key, the value and what is allowed.
        """
        for key in keys_of(NodeSettings):
            value = getattr(getattr(self, key.section), key.name)
            if not key.check(value):
                _refuse(name(key.section, key.name), value, key.allowed)
        for actor, target in self.actors.items():
            key = actor_key(actor)
            if not _is_name(actor) or not key.check(target):
                _refuse(name("actors", actor), target, key.allowed)
        self._check_network(name)
        self._check_cluster(name)
        self._check_sizes(name)

    def _check_network(self, name: Callable[[str, str], str]) -> None:
        node = self.node
        if not is_loopback(node.listen) and not node.insecure_network:
            raise ConfigError(
                f"{name('node', 'listen')} = {node.listen!r} can be reached from other machines, and nothing here "
                "encrypts or authenticates: a loopback address is allowed, or any with insecure_network = true",
                remedy='listen on "127.0.0.1:PORT", or set insecure_network = true in [node] if the network is trusted',
            )
        if _is_wildcard(node.advertise or node.listen):
            _refuse(
                name("node", "advertise"), node.advertise, f"an address that others can connect to, not {node.listen}"
            )

    def _check_cluster(self, name: Callable[[str, str], str]) -> None:
        cluster = self.cluster
        both = sorted(set(cluster.members) & set(cluster.learners))
        if both:
            _refuse(name("cluster", "learners"), both[0], "a node that is not also in members")
        if self.node.id not in cluster.members and self.node.id not in cluster.learners:
            known = ", ".join(sorted([*cluster.members, *cluster.learners])) or "nobody is listed"
            _refuse(name("node", "id"), self.node.id, f"an id from [cluster] members or learners ({known})")
        if cluster.leader_hint and cluster.leader_hint not in cluster.members:
            known = ", ".join(sorted(cluster.members)) or "there are none"
            _refuse(name("cluster", "leader_hint"), cluster.leader_hint, f'a member ({known}), or ""')
        seen: dict[str, str] = {}
        for node, address in [*cluster.members.items(), *cluster.learners.items()]:
            if address in seen:
                _refuse(name("cluster", "members"), address, f"one node per address, and {seen[address]} has this one")
            seen[address] = node

    def _check_sizes(self, name: Callable[[str, str], str]) -> None:
        wal, limits, timeouts = self.wal, self.limits, self.timeouts
        # A batch travels in a frame with a message around it; 64 KiB is far more than any message needs.
        frame_bytes_min = limits.batch_bytes_max + 64 * KIB
        # A batch of one record has a header, an offsets table and padding around it.
        batch_bytes_min = limits.record_bytes_max + 4 * KIB
        result_frame_min = limits.result_bytes_max + 64 * KIB
        limited = wal.bytes_max or sys.maxsize
        for section, key, value, minimum, why in (
            ("limits", "batch_bytes_max", limits.batch_bytes_max, batch_bytes_min, "record_bytes_max + 4096"),
            ("limits", "frame_bytes_max", limits.frame_bytes_max, frame_bytes_min, "batch_bytes_max + 65536"),
            ("limits", "buffered_bytes_max", limits.buffered_bytes_max, limits.frame_bytes_max, "frame_bytes_max"),
            ("limits", "frame_bytes_max", limits.frame_bytes_max, result_frame_min, "result_bytes_max + 65536"),
            ("limits", "in_flight_bytes_max", limits.in_flight_bytes_max, limits.batch_bytes_max, "batch_bytes_max"),
            ("wal", "queue_bytes_max", wal.queue_bytes_max, limits.batch_bytes_max, "[limits] batch_bytes_max"),
            ("wal", "bytes_max", limited, _SEGMENTS_MIN * wal.segment_bytes, f"{_SEGMENTS_MIN} * segment_bytes"),
            ("wal", "bytes_max", limited, 2 * limits.batch_bytes_max, "2 * [limits] batch_bytes_max"),
            ("wal", "bytes_max", limited, 4 * self.snapshots.log_bytes, "4 * [snapshots] log_bytes"),
            ("timeouts", "heartbeat_ms", timeouts.heartbeat_ms, timeouts.tick_ms, "tick_ms"),
            ("timeouts", "election_ms", timeouts.election_ms, 2 * timeouts.heartbeat_ms, "2 * heartbeat_ms"),
        ):
            if value < minimum:
                _refuse(name(section, key), value, f"at least {minimum}, which is {why}")


def keys_of(settings: type[NodeSettings]) -> list[Key]:
    """Return every setting that has a name of its own, section by section, in the order of the dataclasses."""
    return [
        Key(
            section=section.name,
            name=item.name,
            kind=item.metadata["kind"],
            required=item.default is MISSING and item.default_factory is MISSING,
            default={} if item.metadata["kind"] is dict else None if item.default is MISSING else item.default,
            allowed=item.metadata["allowed"],
            check=item.metadata["check"],
        )
        for section in fields(settings)
        if section.name in _SECTIONS
        for item in fields(_SECTIONS[section.name])
    ]


def actor_key(name: str) -> Key:
    """Return what is allowed for an actor called ``name``."""
    return Key(
        section="actors",
        name=name,
        kind=str,
        required=False,
        default=None,
        allowed='"module:Class", such as "shop.stock:Inventory", for a name of ' + _NAME_ALLOWED,
        check=lambda value: _CLASS.fullmatch(value) is not None,
    )


_SECTIONS: Final[dict[str, Any]] = {
    "node": NodeSection,
    "cluster": ClusterSection,
    "wal": WalSection,
    "limits": LimitsSection,
    "timeouts": TimeoutsSection,
    "snapshots": SnapshotsSection,
    "logging": LoggingSection,
}


def _is_wildcard(address: str) -> bool:
    try:
        return ipaddress.ip_address(parse_address(address)[0]).is_unspecified
    except ValueError:
        return False


def _refuse(where: str, value: object, allowed: str) -> None:
    raise ConfigError(f"{where} = {value!r} is not allowed; allowed: {allowed}", remedy=f"set it to {allowed}")
