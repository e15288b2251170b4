"""The settings of a node as plain values, with the allowed values for each. Reads nothing; see ``load.py``.

The dataclasses are the only list of settings: ``load.py`` uses their fields, so that a key added here can be set in a
file, in the environment and by a flag, and appears in ``config show``. Only the names in ``[actors]`` are the user's
own.
"""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from fractions import Fraction
from typing import Any, Final

from viewstamp.errors import ConfigError
from viewstamp.host.address import parse_address
from viewstamp.host.object_url import OBJECT_URL_ALLOWED, is_object_url, parse_object_url
from viewstamp.host.tls import TlsFiles
from viewstamp.ids import ClusterId, NodeId
from viewstamp.quantities import DURATION_UNITS, parse_duration, parse_size, show_duration, show_size

__all__ = [
    "INTERVAL",
    "SYNC",
    "ArchiveSection",
    "ClusterSection",
    "Key",
    "LimitsSection",
    "LoggingSection",
    "NodeSection",
    "NodeSettings",
    "SnapshotsSection",
    "TimeoutsSection",
    "TlsSection",
    "WalSection",
    "actor_key",
    "is_loopback",
    "keys_of",
]

SYNC: Final = "sync"
"""The durability that acknowledges a write only after it is synced."""

INTERVAL: Final = "interval_may_lose_acknowledged_writes"
"""The durability that syncs at intervals. Its name states the risk: in settings, in ``status``, in receipts."""

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NAME_ALLOWED = "1 to 64 of the characters A-Z a-z 0-9 . _ -, starting with a letter or digit"
_ADDRESS_ALLOWED = 'host:port with a port from 1 to 65535, such as "127.0.0.1:7001"'

_CLASS = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_SEGMENTS_MIN: Final = 8
"""A limited log drops whole segments; with fewer than this, it would have to be nearly empty before one is free."""

_Check = Callable[[Any], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One setting: its section and name, its type, and the allowed values.

    ``kind`` is str, int, float, bool or dict (a table of node ids and addresses). ``unit`` is the unit of a number:
    "bytes", "s" or "ms"; "" = it has none, or is no number.
    """

    section: str
    name: str
    kind: type
    required: bool
    default: Any
    allowed: str
    check: _Check
    unit: str = ""

    def __str__(self) -> str:
        return f"[{self.section}] {self.name}"

    def parse_quantity(self, text: str) -> int | float:
        """Return the value of a size or duration in the notation of :mod:`viewstamp.quantities`.

        Raises:
          ValueError: ``text`` is no size or duration, or it is a fraction although the setting is an integer.
        """
        if self.unit == "bytes":
            return parse_size(text)
        count = Fraction(parse_duration(text, bare=self.unit), DURATION_UNITS[self.unit])
        if self.kind is int and count.denominator != 1:
            raise ValueError(f"{text!r} is not a whole number of {self.unit}")
        return int(count) if self.kind is int else float(count)

    def show(self, value: Any) -> str:
        """Return a value as text that can be written into a settings file in quotes, or as a flag: with its unit."""
        if self.unit and self.check(value):
            return _shown(value, self.unit)
        if isinstance(value, dict):
            return ",".join(f"{name}={address}" for name, address in value.items())
        return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(value: float, unit: str) -> str:
    return show_size(int(value)) if unit == "bytes" else show_duration(value * DURATION_UNITS[unit])


def _text(allowed: str, check: _Check) -> dict[str, Any]:
    return {"kind": str, "allowed": allowed, "check": check}


def _path_or_nothing() -> dict[str, Any]:
    return _text('a file, relative to this one, or "" (no TLS)', lambda _: True)


def _one_of(*choices: str) -> dict[str, Any]:
    return _text(" or ".join(f'"{choice}"' for choice in choices), lambda value: value in choices)


def _boolean() -> dict[str, Any]:
    return {"kind": bool, "allowed": "true or false", "check": lambda _: True}


def _number(kind: type, unit: str, minimum: float, maximum: float, or_zero: str) -> dict[str, Any]:
    def check(value: float) -> bool:
        return minimum <= value <= maximum or (bool(or_zero) and value == 0)

    sort = {"": "an integer", "bytes": "a size"}.get(unit, "a duration")
    first, last = (_shown(each, unit) if unit else str(each) for each in (minimum, maximum))
    allowed = f"{sort} from {first} to {last}" + (f", or 0 ({or_zero})" if or_zero else "")
    return {"kind": kind, "allowed": allowed, "check": check, "unit": unit}


def _count(minimum: int, maximum: int) -> dict[str, Any]:
    return _number(int, "", minimum, maximum, "")


def _bytes(minimum: int, maximum: int, *, or_zero: str = "") -> dict[str, Any]:
    return _number(int, "bytes", minimum, maximum, or_zero)


def _milliseconds(minimum: int, maximum: int) -> dict[str, Any]:
    return _number(int, "ms", minimum, maximum, "")


def _seconds(minimum: float, maximum: float, *, or_zero: str = "") -> dict[str, Any]:
    return _number(float, "s", minimum, maximum, or_zero)


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
    """Return whether ``host:port`` can only be reached from this machine. Of names, only localhost counts as such."""
    host, _ = parse_address(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSection:
    """``[node]``: settings of this node only."""

    id: NodeId = field(metadata=_text(_NAME_ALLOWED, _is_name))
    """The node's name in the cluster. It must never change once the data directory exists."""

    data_dir: str = field(metadata=_text("a directory, relative to this file", bool))
    """The directory of the node's log and snapshots. Absolute once loaded."""

    listen: str = field(metadata=_text(_ADDRESS_ALLOWED, _is_address))
    """The address on which the node accepts peers and clients, on one port."""

    advertise: str = field(
        default="",
        metadata=_text(_ADDRESS_ALLOWED + ', or "" (the value of listen)', lambda v: not v or _is_address(v)),
    )
    """The address that other nodes and clients connect to. Never empty once loaded."""

    insecure_network: bool = field(default=False, metadata=_boolean())
    """The last resort: without ``[tls]``, allow a listen address that other machines can reach, although connections
    are not encrypted or authenticated."""

    health: str = field(
        default="",
        metadata=_text(_ADDRESS_ALLOWED + ', or "" (no such port)', lambda v: not v or _is_address(v)),
    )
    """The address of ``/livez`` and ``/readyz``: plain HTTP, for the program that restarts this node."""

    chaos: bool = field(default=False, metadata=_boolean())
    """Obey ``viewstamp chaos``: a user who may write into data_dir can then slow the node's disk, fill it, or cut it
    off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSection:
    """``[cluster]``: equal on every node.

    Members and learners are only used if the log holds no membership yet.
    """

    id: ClusterId = field(metadata=_text(_NAME_ALLOWED, _is_name))
    """The id of the cluster, created with it. It is part of every handshake, and stored on every disk."""

    members: Mapping[NodeId, str] = field(
        default_factory=dict, metadata=_addresses('a table of voters, such as { n1 = "127.0.0.1:7001" }')
    )
    """The voters: node id to address."""

    learners: Mapping[NodeId, str] = field(
        default_factory=dict, metadata=_addresses('a table of learners, such as { n4 = "127.0.0.1:7004" }')
    )
    """The members without a vote: node id to address."""

    leader_hint: str = field(
        default="", metadata=_text('the id of a member, or "" (an election decides)', lambda v: not v or _is_name(v))
    )
    """The member that campaigns first in a new log, so that a new cluster need not wait for an election timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WalSection:
    """``[wal]``: the log on disk."""

    durability: str = field(default=SYNC, metadata=_one_of(SYNC, INTERVAL))
    """When a write counts as durable: after its sync, or after the write itself, with a sync soon after."""

    sync_interval_ms: int = field(default=100, metadata=_milliseconds(1, 60_000))
    """The pause between syncs of the log, if durability is not "sync"."""

    interval_wait_all_seconds: float = field(default=300.0, metadata=_seconds(1, 86_400))
    """Seconds for which an election waits for all voters after a majority lost power, if durability is not "sync"."""

    bytes_max: int = field(default=0, metadata=_bytes(MIB, 2**60, or_zero="as much as the disk holds"))
    """The log's total size. A full log refuses appends and still serves reads."""

    segment_bytes: int = field(
        default=0, metadata=_bytes(64 * KIB, GIB, or_zero="16MiB, or a sixteenth of bytes_max where that is less")
    )
    """The size of one segment file, which is prepared in advance and filled with zeros. The log shrinks by segments."""

    reserve_bytes: int = field(default=64 * MIB, metadata=_bytes(0, 2**60))
    """Free space on the disk that the log does not use: appends are refused before a write can fail."""

    queue_bytes_max: int = field(default=64 * MIB, metadata=_bytes(MIB, GIB))
    """Bytes that may wait for the writer; further appends are refused as overload."""

    cached_bytes: int = field(default=0, metadata=_bytes(MIB, 2**60, or_zero="as the operating system decides"))
    """Bytes of the newest full segments that may stay in the operating system's memory, in whole segments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotsSection:
    """``[snapshots]``: when snapshots are taken, so that the log before them can be dropped."""

    log_bytes: int = field(
        default=0, metadata=_bytes(64 * KIB, 2**60, or_zero="64MiB, or a quarter of bytes_max where that is less")
    )
    """Take a snapshot when the log has grown by this many bytes since the last one."""

    restart_seconds_max: float = field(default=10.0, metadata=_seconds(0.1, 86_400, or_zero="no bound"))
    """The longest restart: a snapshot is taken before replaying the log would take longer."""

    kept_max: int = field(default=6, metadata=_count(2, 1000))
    """The number of snapshots that are kept, because a damaged one must not leave the node without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsSection:
    """``[limits]``: the largest requests, and the bytes that may wait."""

    record_bytes_max: int = field(default=MIB, metadata=_bytes(1, GIB))
    """The largest record."""

    batch_bytes_max: int = field(default=8 * MIB, metadata=_bytes(KIB, GIB))
    """The largest batch, which is also the largest atomic append."""

    frame_bytes_max: int = field(default=64 * MIB, metadata=_bytes(64 * KIB, 2 * GIB - 1))
    """The largest frame that is accepted from a connection."""

    connections_max: int = field(default=8192, metadata=_count(1, 65_536))
    """The largest number of connected clients; fewer if the process may open fewer file descriptors."""

    buffered_bytes_max: int = field(default=512 * MIB, metadata=_bytes(MIB, 64 * GIB))
    """The bytes of unfinished frames from all clients, and of responses that they have not read yet."""

    in_flight_bytes_max: int = field(default=64 * MIB, metadata=_bytes(KIB, 16 * GIB))
    """The bytes of unanswered appends of all clients; further appends are refused as overload."""

    result_bytes_max: int = field(default=MIB, metadata=_bytes(4 * KIB, 64 * MIB))
    """The largest result, or error text, of one command or query of an actor. For commands the leader's value
    counts."""

    staged_bytes_max: int = field(
        default=0, metadata=_bytes(MIB, 1024 * GIB, or_zero="an eighth of the disk, at least 1GiB")
    )
    """The bytes that all sinks may have staged and not committed; at most an eighth of a limited log."""

    session_seconds: float = field(default=7 * 24 * 3600.0, metadata=_seconds(1, 1e9))
    """A session that was unused for this long is forgotten, with the outcomes of its appends. The leader's value
    counts."""

    scrub_bytes_per_second: int = field(default=8 * MIB, metadata=_bytes(0, GIB))
    """The speed at which the node reads its old segments and snapshots to find damage, at most once an hour; 0 =
    never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutsSection:
    """``[timeouts]``: the pace of the cluster. Equal on all nodes, because a faster node would disturb the others."""

    tick_ms: int = field(default=10, metadata=_milliseconds(1, 1000))
    """One step of logical time."""

    heartbeat_ms: int = field(default=50, metadata=_milliseconds(1, 60_000))
    """The pause between the leader's heartbeats."""

    election_ms: int = field(default=300, metadata=_milliseconds(10, 600_000))
    """A follower without a leader campaigns after a random time between this and twice this."""

    leases: bool = field(default=False, metadata=_boolean())
    """Whether the leader answers linearizable reads without asking the others. Correct only while no machine's clock
    runs more than a tenth too fast or too slow, or stands still; and a new leader is elected ``election_ms`` later."""

    clock_bound_s: float = field(default=10.0, metadata=_seconds(1, 86_400))
    """The largest difference between the time of records and the clocks of a majority of the voters."""

    request_s: float = field(default=30.0, metadata=_seconds(0.1, 3600))
    """Seconds for which a node works on a request before it answers with an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggingSection:
    """``[logging]``: the log messages of a node process. An embedded node uses the logging of its program."""

    level: str = field(default="info", metadata=_one_of("info", "warning", "error"))
    """Messages below this level are not written."""

    bytes_max: int = field(default=64 * MIB, metadata=_bytes(64 * KIB, 64 * GIB, or_zero="no bound"))
    """When ``log.jsonl`` in ``data_dir`` reaches this size, it becomes ``log.jsonl.1`` and replaces the earlier one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSection:
    """``[tls]``: encryption, and the proof of who is connected. Without it, a node listens at loopback addresses only.

    All nodes of a cluster have it, or none. The files may be replaced while the node runs.
    """

    authority: str = field(default="", metadata=_path_or_nothing())
    """The certificates of the authorities that sign those of the members and clients, a PEM file."""

    certificate: str = field(default="", metadata=_path_or_nothing())
    """This node's certificate, a PEM file. It names the cluster and the node: viewstamp://CLUSTER/member/NODE."""

    key: str = field(default="", metadata=_path_or_nothing())
    """The private key of the certificate, a PEM file without a password."""

    @property
    def files(self) -> TlsFiles | None:
        """The files; None = connections have no TLS."""
        if not self.authority:
            return None
        return TlsFiles(authority=self.authority, certificate=self.certificate, key=self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSection:
    """``[archive]``: the files of archived records."""

    directory: str = field(
        default="", metadata=_text('a directory, relative to this file, or "" (no archive)', lambda _: True)
    )
    """The directory into which ``viewstamp archive`` writes records. All nodes need to reach the same one."""

    url: str = field(default="", metadata=_text(f'{OBJECT_URL_ALLOWED}, or "" (none)', lambda _: True))
    """The bucket into which it writes them instead; credentials come from where the AWS tools have them."""

    cache_bytes: int = field(default=128 * MIB, metadata=_bytes(MIB, 1024 * 1024 * MIB))
    """Memory of the node for archived records that clients read. At least one row group, about 16 MiB, is held."""

    @property
    def where(self) -> str:
        """The directory or the URL; "" = no archive."""
        return self.url or self.directory


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """All settings of ``node run`` and ``open_node``.

    Invariants, once :meth:`check` has passed:
      * the node is a member or a learner of its cluster, and the leader hint is a member
      * no two nodes have the same id or address
      * the largest record fits into a batch; a batch fits into a frame, into the bytes in flight and the WAL's queue
      * a limited log holds at least eight segments, two of the largest batches, and four times ``snapshots.log_bytes``
      * ``tick_ms <= heartbeat_ms`` and ``2 * heartbeat_ms <= election_ms``
      * all keys of ``[tls]`` are set, or none
      * of the directory and the URL of ``[archive]``, at most one is set
      * listen is a loopback address, or ``[tls]`` is set, or else ``insecure_network``; never both of these
    """

    node: NodeSection
    cluster: ClusterSection
    wal: WalSection = field(default_factory=WalSection)
    limits: LimitsSection = field(default_factory=LimitsSection)
    timeouts: TimeoutsSection = field(default_factory=TimeoutsSection)
    snapshots: SnapshotsSection = field(default_factory=SnapshotsSection)
    logging: LoggingSection = field(default_factory=LoggingSection)
    tls: TlsSection = field(default_factory=TlsSection)
    archive: ArchiveSection = field(default_factory=ArchiveSection)
    actors: Mapping[str, str] = field(default_factory=dict)
    """``[actors]``: the name of each replicated actor, and the class that runs it, as ``module:Class``."""

    def __post_init__(self) -> None:
        """Replace zeros by the sizes that follow from others."""
        total = self.wal.bytes_max
        if not self.wal.segment_bytes:
            share = max(1, total // 16) if total else 16 * MIB
            segment = min(16 * MIB, max(64 * KIB, 1 << share.bit_length() - 1))
            object.__setattr__(self, "wal", replace(self.wal, segment_bytes=segment))
        if not self.snapshots.log_bytes:
            log_bytes = min(64 * MIB, total // 4) if total else 64 * MIB
            object.__setattr__(self, "snapshots", replace(self.snapshots, log_bytes=log_bytes))

    def check(self, name: Callable[[str, str], str] = "[{}] {}".format) -> None:
        """Check every value alone and all of them together. A program that builds settings itself must call it.

        ``name(section, key)`` returns the place of a value, for messages.

        Raises:
          ConfigError: a value is not allowed; the message gives the key, the value and the allowed values.
        """
        for key in keys_of(NodeSettings):
            value = getattr(getattr(self, key.section), key.name)
            if not key.check(value):
                _refuse(name(key.section, key.name), value, key.allowed, key.unit)
        for actor, target in self.actors.items():
            key = actor_key(actor)
            if not _is_name(actor) or not key.check(target):
                _refuse(name("actors", actor), target, key.allowed)
        self._check_network(name)
        self._check_archive(name)
        self._check_cluster(name)
        self._check_sizes(name)

    def _check_network(self, name: Callable[[str, str], str]) -> None:
        node = self.node
        missing = [key for key in ("authority", "certificate", "key") if not getattr(self.tls, key)]
        if 0 < len(missing) < 3:
            _refuse(name("tls", missing[0]), "", "a path, because the section [tls] is used")
        if not missing and node.insecure_network:
            _refuse(name("node", "insecure_network"), True, "false, because [tls] protects the connections")
        if missing and not is_loopback(node.listen) and not node.insecure_network:
            raise ConfigError(
                f"{name('node', 'listen')} = {node.listen!r} can be reached from other machines, but without [tls] "
                "connections are neither encrypted nor authenticated; allowed: a loopback address, or any with [tls]",
                remedy="make certificates and a section [tls] with `viewstamp tls new --dir DIR`, or listen on "
                '"127.0.0.1:PORT". Last resort: insecure_network = true in [node], where each process that reaches the '
                "port may read and write",
            )
        if _is_wildcard(node.advertise or node.listen):
            _refuse(
                name("node", "advertise"), node.advertise, f"an address that others can connect to, not {node.listen}"
            )

    def _check_archive(self, name: Callable[[str, str], str]) -> None:
        archive = self.archive
        if is_object_url(archive.directory):
            _refuse(name("archive", "directory"), "a URL", "a directory; the URL of a bucket belongs into `url`")
        if archive.directory and archive.url:
            _refuse(name("archive", "url"), archive.url, '"", because [archive] directory is set too')
        try:
            if archive.url:
                parse_object_url(archive.url)
        except ConfigError as error:
            raise ConfigError(f"{name('archive', 'url')}: {error.message}", remedy=error.remedy) from None

    def _check_cluster(self, name: Callable[[str, str], str]) -> None:
        cluster = self.cluster
        both = sorted(set(cluster.members) & set(cluster.learners))
        if both:
            _refuse(name("cluster", "learners"), both[0], "a node that is not also in members")
        if self.node.id not in cluster.members and self.node.id not in cluster.learners:
            known = ", ".join(sorted([*cluster.members, *cluster.learners])) or "both are empty"
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
            ("limits", "batch_bytes_max", limits.batch_bytes_max, batch_bytes_min, "record_bytes_max + 4KiB"),
            ("limits", "frame_bytes_max", limits.frame_bytes_max, frame_bytes_min, "batch_bytes_max + 64KiB"),
            ("limits", "buffered_bytes_max", limits.buffered_bytes_max, limits.frame_bytes_max, "frame_bytes_max"),
            ("limits", "frame_bytes_max", limits.frame_bytes_max, result_frame_min, "result_bytes_max + 64KiB"),
            ("limits", "in_flight_bytes_max", limits.in_flight_bytes_max, limits.batch_bytes_max, "batch_bytes_max"),
            ("wal", "queue_bytes_max", wal.queue_bytes_max, limits.batch_bytes_max, "[limits] batch_bytes_max"),
            ("wal", "bytes_max", limited, _SEGMENTS_MIN * wal.segment_bytes, f"{_SEGMENTS_MIN} * segment_bytes"),
            ("wal", "bytes_max", limited, 2 * limits.batch_bytes_max, "2 * [limits] batch_bytes_max"),
            ("wal", "bytes_max", limited, 4 * self.snapshots.log_bytes, "4 * [snapshots] log_bytes"),
            ("timeouts", "heartbeat_ms", timeouts.heartbeat_ms, timeouts.tick_ms, "tick_ms"),
            ("timeouts", "election_ms", timeouts.election_ms, 2 * timeouts.heartbeat_ms, "2 * heartbeat_ms"),
        ):
            if value < minimum:
                unit = "ms" if section == "timeouts" else "bytes"
                _refuse(name(section, key), value, f"at least {_shown(minimum, unit)}, which is {why}", unit)


def keys_of(settings: type[NodeSettings]) -> list[Key]:
    """Return every setting of the sections with fixed keys, in the order of the dataclasses."""
    return [
        Key(
            section=section.name,
            name=item.name,
            kind=item.metadata["kind"],
            required=item.default is MISSING and item.default_factory is MISSING,
            default={} if item.metadata["kind"] is dict else None if item.default is MISSING else item.default,
            allowed=item.metadata["allowed"],
            check=item.metadata["check"],
            unit=item.metadata.get("unit", ""),
        )
        for section in fields(settings)
        if section.name in _SECTIONS
        for item in fields(_SECTIONS[section.name])
    ]


def actor_key(name: str) -> Key:
    """Return the setting for an actor called ``name``."""
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
    "tls": TlsSection,
    "archive": ArchiveSection,
}


def _is_wildcard(address: str) -> bool:
    try:
        return ipaddress.ip_address(parse_address(address)[0]).is_unspecified
    except ValueError:
        return False


def _refuse(where: str, value: object, allowed: str, unit: str = "") -> None:
    is_number = unit and isinstance(value, int | float) and 0 <= value < 2**63
    shown = _shown(value, unit) if is_number else repr(value)  # type: ignore[arg-type]
    raise ConfigError(f"{where} = {shown} is not allowed; allowed: {allowed}", remedy=f"set it to {allowed}")
