"""What one node is told when it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from viewstamp.consensus.state import RaftOptions
from viewstamp.ids import ClusterId, NodeId
from viewstamp.node.log_clock import BOUND_SECONDS
from viewstamp.node.repair.scrubber import ScrubOptions
from viewstamp.node.running_mark import INTERVAL, SYNCED
from viewstamp.node.service import Limits
from viewstamp.node.snapshots.policy import SnapshotOptions
from viewstamp.wal.budget import WalOptions

__all__ = ["NodeOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """What one node is told. ``members`` and ``learners`` count only where the log holds no membership yet."""

    node: NodeId
    cluster: ClusterId
    data_dir: str
    listen: str
    advertise: str = ""
    members: Mapping[NodeId, str]
    learners: Mapping[NodeId, str] = field(default_factory=dict)
    leader_hint: str = ""
    core: RaftOptions = field(default_factory=RaftOptions)
    wal: WalOptions = field(default_factory=WalOptions)
    snapshots: SnapshotOptions = field(default_factory=SnapshotOptions)
    limits: Limits = field(default_factory=Limits)
    scrub: ScrubOptions = field(default_factory=ScrubOptions)
    tick_seconds: float = 0.01
    clock_bound_seconds: float = BOUND_SECONDS
    """How far log time may be from the clocks of a majority."""
    request_seconds: float = 30.0
    peer_unsent_bytes_max: int = 32 * 1024 * 1024
    process: int = 0
    """The number of the process, for status; 0 = not shown."""

    def as_status(self) -> dict[str, object]:
        """Return what status shows of these."""
        return {"id": self.node, "cluster_id": self.cluster, "process": self.process, "release": _release()}

    @property
    def is_interval(self) -> bool:
        """Whether this node acknowledges before it syncs (interval mode)."""
        return self.wal.sync_seconds > 0

    @property
    def durability(self) -> str:
        """What an acknowledgement of this node means."""
        return INTERVAL if self.is_interval else SYNCED


@cache
def _release() -> str:
    """Return which release of viewstamp this is; "unknown" where it runs without having been installed."""
    try:
        return version("viewstamp")
    except PackageNotFoundError:
        return "unknown"
