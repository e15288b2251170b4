"""The options of one node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from viewstamp.consensus.state import RaftOptions
from viewstamp.ids import GROUP_0, RELEASE, ClusterId, GroupId, NodeId
from viewstamp.node.archived import CACHE_BYTES
from viewstamp.node.data_dir import GROUPS_NAME
from viewstamp.node.log_clock import BOUND_SECONDS
from viewstamp.node.repair.scrubber import ScrubOptions
from viewstamp.node.running_mark import INTERVAL, SYNCED
from viewstamp.node.service import Limits
from viewstamp.node.snapshots.policy import SnapshotOptions
from viewstamp.wal.budget import WalOptions

__all__ = ["ArchiveRoundOptions", "NodeOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRoundOptions:
    """How often the leader archives topics by their settings; ``archive_rounds.py`` has the rounds."""

    seconds: float = 10.0
    """Pause between two rounds, and the first pause after a failure."""
    wait_seconds: float = 3600.0
    """Longest log time for which records that are old enough wait for others until their run is due."""
    pause_seconds_max: float = 600.0
    """Longest pause after failures of a topic."""
    dump_bytes: int = 16 * 1024 * 1024
    """Bytes of log of a keyed topic for which a dump is due; also those of its smallest level of runs."""
    range_bytes: int = 64 * 1024 * 1024
    """About the bytes of the keys and last values of one range of a keyed topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """The options of one node. ``members`` and ``learners`` count only while the log has no membership."""

    node: NodeId
    cluster: ClusterId
    group: GroupId = GROUP_0
    """The group to which these options belong; ``members``, ``learners`` and ``data_dir`` are those of this group."""
    data_dir: str
    listen: str
    advertise: str = ""
    health: str = ""
    """The address of the health port; "" = there is none."""
    members: Mapping[NodeId, str]
    learners: Mapping[NodeId, str] = field(default_factory=dict)
    leader_hint: str = ""
    incarnations: Mapping[NodeId, str] = field(default_factory=dict)
    """The disks of the founders that group 0 has on record; {} for group 0 itself. A node with another disk than the
    recorded one is not that founder."""
    core: RaftOptions = field(default_factory=RaftOptions)
    wal: WalOptions = field(default_factory=WalOptions)
    snapshots: SnapshotOptions = field(default_factory=SnapshotOptions)
    limits: Limits = field(default_factory=Limits)
    archive_cache_bytes: int = CACHE_BYTES
    """Bytes of archived records that the node holds in memory for readers."""
    archive_rounds: ArchiveRoundOptions = field(default_factory=ArchiveRoundOptions)
    scrub: ScrubOptions = field(default_factory=ScrubOptions)
    tick_seconds: float = 0.01
    clock_bound_seconds: float = BOUND_SECONDS
    """Largest difference between log time and the clocks of a majority."""
    request_seconds: float = 30.0
    peer_unsent_bytes_max: int = 32 * 1024 * 1024
    insecure_network: bool = False
    """Whether the node listens without TLS where other machines may reach it; for status."""
    stores_members: bool = False
    """Whether a start compares ``members`` and ``learners`` with those of the last start, which the data directory has:
    see ``address_check.py``."""
    process: int = 0
    """The number of the process, for status; 0 = not shown."""

    def as_status(self) -> dict[str, object]:
        """Return the options that the status shows."""
        return {
            "id": self.node,
            "cluster_id": self.cluster,
            "process": self.process,
            "release": RELEASE,
            "insecure_network": self.insecure_network,
        }

    def of_group(
        self,
        group: GroupId,
        members: Mapping[NodeId, str],
        *,
        learners: Mapping[NodeId, str],
        leader_hint: str = "",
        incarnations: Mapping[NodeId, str] | None = None,
    ) -> NodeOptions:
        """Return the options of another group on this node, whose directory is within that of the node.

        Args:
          group: its id, from 1 on.
          members: its voters, with the addresses of their nodes.
          learners: its learners.
          leader_hint: the node that campaigns first if the group is new; "" = none.
          incarnations: the disks of its founders on record; None = none are.
        """
        assert group > 0, "group 0 has the options of the node"
        data_dir = f"{self.data_dir}/{GROUPS_NAME}/{group}"
        return replace(
            self,
            group=group,
            data_dir=data_dir,
            members=members,
            learners=learners,
            leader_hint=leader_hint,
            incarnations=incarnations or {},
            stores_members=False,
        )

    @property
    def is_interval(self) -> bool:
        """Return whether this node acknowledges before it syncs (interval mode)."""
        return self.wal.sync_seconds > 0

    @property
    def durability(self) -> str:
        """Return the durability that an acknowledgement of this node stands for."""
        return INTERVAL if self.is_interval else SYNCED
