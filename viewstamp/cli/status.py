"""``viewstamp status``: shows the leader, and the progress of each node."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from viewstamp.cli.options import ClusterOption, DirOption, OutputOption, TimeoutOption, listed_ids
from viewstamp.doctor.clocks import offset
from viewstamp.doctor.groups import groups_line
from viewstamp.doctor.status import is_stranger, log_size, nobody_leads, summary
from viewstamp.local.find import find_cluster
from viewstamp.local.target import ClusterTarget
from viewstamp.terminal.output import Output, fitted, print_json, print_table, say

__all__ = [
    "STATUS_SECONDS",
    "print_summary",
    "show",
    "status",
]

STATUS_SECONDS: Final = 3.0
"""Default seconds to wait for a node's status: a client's default times for a connection and for its first answer."""


def status(
    directory: DirOption = None,
    cluster: ClusterOption = None,
    timeout: TimeoutOption = STATUS_SECONDS,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the leader, the progress of each node, and the size of its log. Exits with 3 if no node answers."""
    show(find_cluster(directory, cluster), output, timeout=timeout)


def show(
    target: ClusterTarget,
    output: Output,
    *,
    processes: Mapping[str, int | None] | None = None,
    timeout: float = STATUS_SECONDS,
) -> None:
    """Ask every node for its status and print the answers; ``processes`` adds the process of each local node.

    Raises:
      UnavailableError: no node answers; the table has been printed all the same.
    """
    from viewstamp.terminal.loop import run_async

    async def ask() -> Sequence[Mapping[str, Any]]:
        async with target.connect() as client:
            return await client.status(timeout=timeout)

    result = summary(run_async(ask()), target.names)
    for node in result["nodes"]:
        if processes is not None:
            node["pid"] = processes.get(node["id"])
    if output is Output.JSON:
        print_json(result)
    else:
        print_summary(result, with_processes=processes is not None)
    if any(is_stranger(node) for node in result["nodes"]):
        say("the nodes show the rest to callers with a token: --token-file FILE, or VIEWSTAMP_TOKEN")
    if not any(node["reachable"] for node in result["nodes"]):
        raise nobody_leads(result["nodes"], target.where, is_read=True)


def print_summary(result: Mapping[str, Any], *, with_processes: bool = False) -> None:
    """Print the result of :func:`summary` as tables; with ``with_processes`` each node has its ``pid``."""
    leader = f"leader {result['leader']}" if result["leader"] else "no leader"
    print(f"cluster {result['cluster_id'] or 'unknown'}   {leader}   term {result['term']}")
    columns = ["node", "address", "role", "lifecycle", "term", "committed", "durable", "last", "term history"]
    rows = []
    for node in result["nodes"]:
        if node["reachable"]:
            cells = [node[key] for key in ("role", "lifecycle", "term", "commit_index", "durable_index", "last_index")]
            if node.get("repair") or node.get("silent_until"):
                cells[1] = "repairing" if node.get("repair") else "silent"
            history = " ".join(f"{term}@{first}" for term, first in (node["history"] or [])[-4:])
        else:
            cells, history = ["unreachable", *[None] * 5], ""
        process = [str(node["pid"] or "-")] if with_processes else []
        rows.append([node["id"], node["address"], *process, *cells, history])
    if with_processes:
        columns.insert(2, "process")
    print_table(columns, rows)
    reporting = [node for node in result["nodes"] if node["log_bytes"] is not None]
    _print_logs(reporting)
    _print_actors(reporting)
    if line := groups_line(result["nodes"]):
        print("\n" + fitted(line, sys.stdout))
    for warning in result["warnings"]:
        print("\n" + fitted(f"WARNING: {warning}", sys.stdout, indent="  "))


def _print_logs(nodes: Sequence[Mapping[str, Any]]) -> None:
    if not nodes:
        return
    print()
    rows = [
        (node["id"], log_size(node), _seconds(node), node["last_snapshot_index"], offset(node), node["durability"])
        for node in nodes
    ]
    print_table(["node", "log", "restart", "snapshot", "clock", "durability"], rows)


def _seconds(node: Mapping[str, Any]) -> str | None:
    estimate = node["restart_seconds_estimate"]
    return None if estimate is None else f"{estimate:.1f} s"


def _instances(state: Mapping[str, Any]) -> object:
    """Return the number of instances in group 0, or the groups that have them."""
    groups = state.get("groups")
    return f"in groups {listed_ids(groups)}" if groups else state.get("instances")


def _digest(state: Mapping[str, Any]) -> str | None:
    """Return the digest of the instances in group 0; None = it has none, because other groups have them."""
    return None if state.get("groups") else str(state.get("digest"))


def _print_actors(nodes: Sequence[Mapping[str, Any]]) -> None:
    names = sorted({actor for node in nodes for actor in node["actors"] or {}})
    rows = [
        (actor, node["id"], _instances(state), _digest(state), node["applied_index"])
        for actor in names
        for node in nodes
        if (state := (node["actors"] or {}).get(actor)) is not None
    ]
    if rows:
        print()
        print_table(["actor", "node", "instances", "digest", "applied"], rows)
