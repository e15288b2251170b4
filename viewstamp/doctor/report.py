"""The state of a cluster, and the form of a finding about it: the values that ``findings.py`` works on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from viewstamp.doctor.status import member_id
from viewstamp.ids import name_of

__all__ = ["CODES", "ERROR", "WARNING", "Finding", "ProcessReport", "Report", "and_list", "leader_of", "node_name"]

ERROR: Final = "error"
"""The cluster does not serve, can bear fewer failures than before, or needs a person."""
WARNING: Final = "warning"
"""It serves, and the problem passes by itself or can wait."""

CODES: Final = (
    "no_answer",
    "no_leader",
    "change_stuck",
    "group_no_leader",
    "moved",
    "down",
    "paused",
    "hung",
    "wrong_cluster",
    "rejected",
    "no_token",
    "refused",
    "group_failed",
    "repairing",
    "silent",
    "starting",
    "unheard",
    "catching_up",
    "behind",
    "applying",
    "no_member",
    "group_waiting",
    "kept_directory",
    "full",
    "nearly_full",
    "slow_disk",
    "slow_loop",
    "archive",
    "not_archiving",
    "log_stream",
    "damaged_snapshot",
    "stuck_files",
    "damaged_file",
    "unreadable_runs",
    "no_archive",
    "undumped_keys",
    "diverged",
    "clock",
    "log_time",
    "releases",
    "certificate",
    "certificate_ends",
    "certificate_files",
    "insecure_network",
    "chaos",
)
"""Every code, in the order in which findings are reported."""

_WARNINGS: Final = frozenset(
    {
        "no_token",
        "starting",
        "catching_up",
        "behind",
        "applying",
        "no_member",
        "group_waiting",
        "kept_directory",
        "nearly_full",
        "slow_disk",
        "slow_loop",
        "log_stream",
        "damaged_snapshot",
        "stuck_files",
        "no_archive",
        "undumped_keys",
        "releases",
        "certificate_ends",
        "certificate_files",
        "insecure_network",
        "chaos",
    }
)


_PASSING: Final = frozenset({"starting", "catching_up", "behind", "applying"})
"""Warnings about work that a member is doing, for example after a restart, and that ends by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem: ``sentence`` describes it, ``remedy`` solves it; ``node`` "" = the whole cluster."""

    code: str
    node: str
    sentence: str
    remedy: str

    @property
    def severity(self) -> str:
        """``ERROR`` or ``WARNING``; it follows from the code."""
        return WARNING if self.code in _WARNINGS else ERROR

    @property
    def is_passing(self) -> bool:
        """Whether the problem ends by itself when the member has done its work."""
        return self.code in _PASSING


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """The process of a local node. ``pid`` None = ended; then ``error`` and ``remedy`` give the reason, if logged.

    ``is_moved``: it did not start, because the membership has another address for it than its settings.
    ``address`` is the one in its settings; "" = unknown.
    """

    pid: int | None = None
    is_paused: bool = False
    error: str = ""
    remedy: str = ""
    is_moved: bool = False
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The state of a cluster.

    ``nodes`` are as in ``viewstamp status --output json``; ``earlier`` are the same a moment before, because only the
    comparison shows whether a node is slow or stuck. ``seconds`` is the longest time that asking took; ``where`` the
    option that names the cluster on a command line.
    """

    nodes: Sequence[Mapping[str, Any]]
    earlier: Sequence[Mapping[str, Any]] = ()
    processes: Mapping[str, ProcessReport] = field(default_factory=dict)
    seconds: float = 0.0
    program: str = "viewstamp"
    where: str = ""

    def command(self, words: str) -> str:
        """Return a command line in backticks."""
        return f"`{self.program} {words}{self.where}`"

    @property
    def up(self) -> list[Mapping[str, Any]]:
        """The nodes that answer."""
        return [node for node in self.nodes if node["reachable"]]

    @property
    def parts(self) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any], str]]:
        """Each node that answers, with its status in group 0 and in each other group, and its name there."""
        for node in self.up:
            yield node, node, node_name(node)
            for hosted in node.get("hosted") or ():
                yield node, hosted, f"{node_name(node)} in group {hosted['group']}"

    @property
    def leader(self) -> Mapping[str, Any] | None:
        """The node that leads in the highest term that any node reports; None = there is none."""
        return leader_of(self.up)

    @property
    def membership(self) -> Mapping[str, Any]:
        """The members, by the newest membership record that any node reports."""
        records = [node["membership"] for node in self.up if node.get("membership")]
        records += [{"voters": node["members"], "generation": -1} for node in self.up if node.get("members")]
        return max(records, key=lambda each: int(each["generation"]), default={})

    def node(self, name: str) -> Mapping[str, Any] | None:
        """Return the status of a member; None = the member is unknown."""
        return next((node for node in self.nodes if _is(node, name)), None)

    @property
    def is_local(self) -> bool:
        """Whether its processes run on this machine."""
        return bool(self.processes)


def leader_of(nodes: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the node that leads in the highest term that any of these reports; None = there is none."""
    up = [node for node in nodes if node["reachable"]]
    term = max((node.get("term") or 0 for node in up), default=0)
    return next((node for node in up if node.get("role") == "leader" and node.get("term") == term), None)


def node_name(node: Mapping[str, Any]) -> str:
    """Return a node's id, or its address if it has not answered with its id."""
    return str(node["id"] or node["address"])


def and_list(names: Iterable[str]) -> str:
    """Return names as a part of a sentence: ``n1, n2 and n3``."""
    *others, last = list(names) or [""]
    return f"{', '.join(others)} and {last}" if others else last


def _is(node: Mapping[str, Any], name: str) -> bool:
    return name in (member_id(node), node_name(node)) or (not node["reachable"] and node_name(node) == name_of(name))
