"""The settings that a seed decides before the run: the size of the cluster, the pace, and the mix of faults.

Each seed leaves most kinds of faults out altogether (swarm testing), because a bug that needs two rare events together
is found sooner when other faults do not disturb them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from viewstamp.sim.network import LinkOptions

__all__ = [
    "DAMAGES",
    "FAULTS",
    "KEYED_TOPIC",
    "STORE_FAULTS",
    "Swarm",
    "draw_swarm",
    "losing_majorities",
    "with_archives",
    "with_groups",
    "with_keyed",
    "with_moves",
    "without_faults",
]

DAMAGES = ("flip", "tear", "drop-segment", "lose-tail", "foreign-segment", "lost-control", "lost-disk")
"""The faults that lose or change durable data on a disk: ``damage.py``."""

FAULTS = (
    "kill",
    "power",
    "power-all",
    "crash-in-call",
    "isolate",
    "one-way",
    "slow",
    "break",
    "pause",
    "stall",
    "failed-sync",
    "clock",
    "drift",
    "busy",
    "full-disk",
    "full-log",
    "transfer",
    "members",
    "stranger",
    *DAMAGES,
)
"""The kinds of faults, by their names in the trace; each is described at its function in ``faults.py``."""


STORE_FAULTS = (
    *("away", "slow", "full", "read-only", "flaky", "late", "cut", "die"),
    *("truncate", "flip", "miss", "replace", "foreign"),
)
"""The kinds of faults of the store of archived records: ``store.py``. The last five damage an object."""
_GONE_CHANCE = 0.25
"""The share of stores that are gone for a time, of those of seeds."""

KEYED_TOPIC = "keyed"
"""The name of the topic of ``Swarm.keyed``."""
_CHANCES = dict.fromkeys(("full-disk", "full-log", "transfer", "members", "stranger", *DAMAGES), 0.15)
"""The share of seeds that have these; others are more common."""
_SLOW_LINKS_CHANCE = 0.1
"""The share of seeds with links that hold messages up for longer than an election timeout."""


@dataclass(frozen=True, kw_only=True)
class Swarm:
    """The settings of one run. Times are simulated seconds."""

    nodes: int = 3
    groups: int = 1
    """Number of groups that each of the first nodes hosts (``groups.py``)."""
    placed: int = 0
    """Number of groups that a client places while the run goes on, beside ``groups`` ..."""
    cancels: bool = False
    """... and whether it cancels each once, as soon as it is placed ..."""
    founders: int = 0
    """... and the number of members that found each, at random; 0 = all."""
    moves: bool = False
    """Whether an operator adds members to these groups and removes others (``group_moves.py``)."""
    archives: bool = False
    """Whether an operator archives the topics ..."""
    archive_bucket: bool = False
    """... in a bucket, and not in a directory ..."""
    archive_settings: bool = False
    """... and gives them archive settings too, with ages, and changes these ..."""
    archive_faults: tuple[str, ...] = ()
    """... that has these faults (``store.py``)."""
    keyed: bool = False
    """Whether clients use a keyed topic, whose runs are in this store instead (``keyed.py``)."""
    clients: int = 2
    callers: int = 3
    """Concurrent callers in each client; their appends coalesce."""
    topics: int = 1
    seconds: float = 8.0
    """Duration of faults and work; then everything is healed."""
    fault_seconds: float = 0.7
    """The mean time between two faults."""
    down_seconds: float = 0.5
    """The mean time for which a dead node stays down and a partition lasts."""
    pause_seconds: float = 0.05
    """The mean pause of a caller between two appends."""
    read_seconds: float = 0.3
    """The mean time between two reads of a client."""
    visit_seconds: float = 0.0
    """The mean time after which a client is killed and followed by a new one; 0 = it stays to the end."""
    faults: dict[str, float] = field(default_factory=lambda: dict.fromkeys(FAULTS, 1.0))
    """The weight of each kind of fault: its frequency relative to the others; 0 or missing = never."""
    off_clocks_max: int = 100
    """Highest number of machines with wall clocks that jump."""
    links: LinkOptions = field(default_factory=LinkOptions)
    disk_stall: float = 0.0
    disk_mean: float = 0.0003
    """The mean duration of a turn of the disk, beyond its minimum."""
    sync_only: int = 0
    """Number of members that propose nothing when they lead, until everything is healed."""
    sync_only_chance: float = 0.0
    """The chance, at each start of any other member, that it proposes nothing until its next start."""
    strike_seconds: float = 0.0
    """The mean time after which a leader is struck, in addition to the faults of random members.

    0 = leaders are not targeted.
    """
    segment_bytes: int = 64 * 1024
    bytes_max: int = 0
    """The bound of each member's log; 0 = none."""
    snapshot_bytes: int = 1 << 40
    """Bytes of log after which a member takes a snapshot."""
    retain_bytes: int = 0
    """Bytes that each topic keeps; 0 = everything, so that no log is ever dropped."""
    actors: int = 0
    """Concurrent callers of replicated actors in each client."""
    sinks: int = 0
    """Number of sinks; to each, one driver after another writes."""
    sink_tasks: int = 3
    """Highest number of tasks that write a batch of a sink together ..."""
    sink_records: int = 12
    """... and highest number of its records."""
    step_seconds: float = 0.02
    """The mean time between two steps of a driver or a task."""
    driver_seconds: float = 1.0
    """The mean time after which a driver is killed, or another one begins beside it."""
    keep_seconds: float = 3600.0
    """Time without activity after which staged batches are dropped."""
    staged_bytes_max: int = 1 << 30
    """Bytes that all sinks together may stage."""
    handshakes_max: int = 128
    """Highest number of a member's connections that have not sent a HELLO."""
    buffered_bytes_max: int = 1 << 29
    """Highest number of bytes of unfinished frames and unread answers, for all clients of a member together."""
    trim_chance: float = 0.0
    """The chance that the reader beside the sinks, after it has read a part of a topic, trims that part."""
    value_bytes_max: int = 200
    timeout: float = 4.0
    sync_seconds: float = 0.0
    """Interval of the syncs in interval mode, in which a power cut takes acknowledged records; 0 = sync mode.

    In interval mode a power cut counts as damage until its member has regained its records, so that it hits at most a
    minority (``damage.py``); beyond that it acts as a kill.
    """
    wait_all_seconds: float = 600.0
    """Time for which an election waits for voters that do not answer, before it counts those that lost power."""
    tokens: bool = False
    """Whether access control is on: all clients have an administrator's token, and others have tokens that end."""
    leases: bool = False
    """Whether leaders answer reads by leases. The clocks are wrong by at most a tenth (the fault ``drift``)."""
    notices: bool = False
    """Whether leaders tell members all the time how far they are durable; see ``notices.py``."""
    majority_loses_power: bool = False
    """In interval mode: power cuts hit any number of members, so acknowledged records may be lost.

    The run then checks that terms, votes and logs stay consistent, that no member is stopped for good, and that all are
    equal at the end.
    """


def draw_swarm(entropy: random.Random) -> Swarm:
    """Draw the settings of a run."""
    swarm = _draw(entropy)
    sync_seconds = entropy.choice((0.0, 0.0, 0.0, 0.02, 0.2))
    if sync_seconds == 0:
        return swarm
    swarm = replace(swarm, sync_seconds=sync_seconds)
    return losing_majorities(swarm, entropy) if entropy.random() < 0.3 else swarm


def losing_majorities(swarm: Swarm, entropy: random.Random) -> Swarm:
    """Return the swarm with power cuts of any number of members, without the faults that could not be judged then."""
    faults = {kind: weight for kind, weight in swarm.faults.items() if kind not in (*DAMAGES, "members")}
    return replace(
        swarm,
        majority_loses_power=True,
        wait_all_seconds=entropy.choice((0.5, 2.0, 600.0)),
        faults={**faults, "power": 1.0, "power-all": 0.5},
        sinks=0,
    )


def without_faults(swarm: Swarm) -> Swarm:
    """Return the swarm with links, disks and members that neither delay, lose nor refuse anything by chance."""
    calm = Swarm()
    return replace(
        swarm,
        faults={},
        strike_seconds=0.0,
        links=calm.links,
        disk_stall=calm.disk_stall,
        disk_mean=calm.disk_mean,
        sync_only=0,
        sync_only_chance=0.0,
        handshakes_max=calm.handshakes_max,
        buffered_bytes_max=calm.buffered_bytes_max,
    )


def with_groups(swarm: Swarm, entropy: random.Random) -> Swarm:
    """Return the swarm with placed groups, unless its settings exclude them.

    In interval mode no group is placed. A member that is removed from group 0 stays a member of
    the other groups, and the operator would stop its machine.
    """
    number, cancels = entropy.choice((1, 2, 3)), entropy.random() < 0.5
    if swarm.sync_seconds or "members" in swarm.faults:
        return swarm
    return replace(swarm, placed=number, cancels=cancels)


def with_moves(swarm: Swarm, entropy: random.Random) -> Swarm:
    """Return the swarm with changes of the members of its placed groups, if it has any and more than one node."""
    founders = entropy.randint(1, swarm.nodes)
    return replace(swarm, moves=True, founders=founders) if swarm.placed and swarm.nodes > 1 else swarm


def with_archives(swarm: Swarm, entropy: random.Random) -> Swarm:
    """Return the swarm with an archive, unless its settings exclude it.

    In interval mode nothing is archived, and with access control only administrators may ask for it.
    """
    is_bucket, number = entropy.random() < 0.4, entropy.choice((0, 1, 2, 3, 5))
    faults = tuple(entropy.sample(STORE_FAULTS, number))
    snapshot_bytes, value_bytes_max = entropy.choice((4, 16, 48)) * 1024, entropy.choice((40, 1000, 4000))
    has_settings = entropy.random() < 0.5
    faults += _gone(entropy)
    if swarm.sync_seconds or swarm.tokens:
        return swarm
    return replace(
        swarm,
        archives=True,
        archive_bucket=is_bucket,
        archive_faults=faults,
        archive_settings=has_settings,
        callers=max(swarm.callers, 1),
        bytes_max=4096 * 1024 if swarm.bytes_max else 0,  # The records that are not archived must fit.
        segment_bytes=16 * 1024,
        snapshot_bytes=snapshot_bytes,
        value_bytes_max=value_bytes_max,
    )


def with_keyed(swarm: Swarm, entropy: random.Random) -> Swarm:
    """Return the swarm with a keyed topic, unless its settings exclude it, or it has an archive already."""
    faults = tuple(entropy.sample(STORE_FAULTS, entropy.choice((0, 1, 2, 3, 5))))
    is_bucket, snapshot_bytes = entropy.random() < 0.4, entropy.choice((4, 16, 48)) * 1024
    faults += _gone(entropy)
    if swarm.sync_seconds or swarm.tokens or swarm.archives or swarm.majority_loses_power:
        return swarm
    return replace(
        swarm,
        keyed=True,
        archive_bucket=is_bucket,
        archive_faults=faults,
        bytes_max=4096 * 1024 if swarm.bytes_max else 0,
        snapshot_bytes=snapshot_bytes,
    )


def _gone(entropy: random.Random) -> tuple[str, ...]:
    """Return the fault of a store that is gone for a time, in some seeds; drawn last, so that the others stay."""
    return ("gone",) if entropy.random() < _GONE_CHANCE else ()


def _draw(entropy: random.Random) -> Swarm:
    chosen = {fault: entropy.choice((0.5, 1.0, 3.0)) for fault in FAULTS if entropy.random() < _CHANCES.get(fault, 0.4)}
    lossy = entropy.random() < 0.6
    links = LinkOptions(
        delay_min=0.0002,
        delay_mean=entropy.choice((0.0003, 0.002, 0.01)),
        drop=entropy.choice((0.0, 0.02, 0.1)) if lossy else 0.0,
        double=entropy.choice((0.0, 0.05, 0.2)) if lossy else 0.0,
        reorder=entropy.choice((0.0, 0.05, 0.2)) if lossy else 0.0,
        reorder_seconds=entropy.choice((0.05, 0.5, 2.0)),
        break_connection=entropy.choice((0.0, 0.0, 0.005)),
        split=entropy.choice((0.0, 0.1)),
    )
    bounded = entropy.random() < 0.6
    commands_only = bounded and entropy.random() < 0.5
    swarm = Swarm(
        # The records that topics keep must fit, or a member fills up for good: see docs/guides/snapshots.md.
        bytes_max=entropy.choice((0, 512 if commands_only else 4096)) * 1024 if bounded else 0,
        segment_bytes=entropy.choice((16, 32)) * 1024 if bounded else 64 * 1024,
        snapshot_bytes=entropy.choice((4, 16, 64)) * 1024 if bounded else 1 << 40,
        retain_bytes=entropy.choice((8, 64)) * 1024 if bounded else 0,
        actors=entropy.choice((2, 5)) if commands_only else entropy.choice((0, 1, 3)),
        nodes=entropy.choice((1, 3, 3, 3, 3, 5)),
        clients=entropy.randint(1, 3),
        callers=0 if commands_only else entropy.choice((1, 2, 4)),
        topics=entropy.randint(1, 2),
        fault_seconds=entropy.choice((0.15, 0.4, 1.0)),
        down_seconds=entropy.choice((0.1, 0.5, 1.5, 3.0)) if commands_only else entropy.choice((0.1, 0.5, 1.5)),
        pause_seconds=entropy.choice((0.005, 0.05, 0.2)),
        read_seconds=entropy.choice((0.1, 0.5)),
        strike_seconds=entropy.choice((0.0, 0.0, 0.0, 0.6)),
        visit_seconds=entropy.choice((0.0, 0.0, 0.4, 2.0)),
        faults=chosen,
        links=links,
        disk_stall=entropy.choice((0.0, 0.0, 0.02)),
        disk_mean=entropy.choice((0.0003, 0.0003, 0.01)),
        sync_only=entropy.choice((0, 0, 0, 1)),
        value_bytes_max=entropy.choice((40, 300, 4000)),
        # A topic with few records keeps its oldest one for long, and with it all commands after it.
        sinks=0 if commands_only else entropy.choice((0, 1, 2)),
        sink_tasks=entropy.choice((1, 3)),
        sink_records=entropy.choice((4, 12, 30)),
        step_seconds=entropy.choice((0.002, 0.01, 0.05)),
        driver_seconds=entropy.choice((0.5, 1.0, 4.0)),
        keep_seconds=entropy.choice((1, 5, 3600)),
        staged_bytes_max=entropy.choice((64 * 1024, 1 << 30)),
        trim_chance=entropy.choice((0.0, 0.0, 0.3)),
        handshakes_max=entropy.choice((128, 128, 2)),
        buffered_bytes_max=entropy.choice((1 << 29, 1 << 29, 64 * 1024)),
        off_clocks_max=entropy.choice((1, 1, 100)),
    )
    if entropy.random() < _SLOW_LINKS_CHANCE:
        slow = replace(
            swarm.links,
            delay_min=entropy.choice((0.0002, 0.05, 0.1)),
            stall=entropy.choice((0.03, 0.1, 0.3)),
            stall_seconds=entropy.choice((0.4, 1.6)),
        )
        swarm = replace(swarm, links=slow)
    return swarm
