"""``viewstamp status``: who leads, and how far each node has come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from viewstamp.cli.options import ClusterOption, DirOption, Output, OutputOption, print_json, print_table
from viewstamp.cli.target import Target

__all__ = ["show", "status", "summary"]

KEYS: Final = (
    "id",
    "address",
    "role",
    "lifecycle",
    "term",
    "history",
    "commit_index",
    "durable_index",
    "last_index",
    "reachable",
)


def status(directory: DirOption = None, cluster: ClusterOption = None, output: OutputOption = Output.TABLE) -> None:
    """Show who leads and how far each node has come. Exit 3 where no node answers."""
    show(Target.resolve(directory, cluster), output)


def show(target: Target, output: Output, *, processes: Mapping[str, int | None] | None = None) -> None:
    """Ask every node and print what they say; ``processes`` adds the process of each local node.

    Raises:
      UnavailableError: no node answers; the table has been printed all the same.
    """
    from viewstamp.cli.target import run_async
    from viewstamp.errors import UnavailableError

    async def ask() -> Sequence[Mapping[str, Any]]:
        async with target.connect() as client:
            return await client.status()

    result = summary(run_async(ask()), target.names)
    for node in result["nodes"]:
        if processes is not None:
            node["pid"] = processes.get(node["id"])
    if output is Output.JSON:
        print_json(result)
    else:
        _print(result, with_processes=processes is not None)
    if not any(node["reachable"] for node in result["nodes"]):
        reasons = dict.fromkeys(str(node["error"]) for node in result["nodes"] if node.get("error"))
        raise UnavailableError(
            f"no node answers at {', '.join(target.addresses)}: {'; '.join(reasons)}",
            remedy="start them: viewstamp cluster start, or viewstamp node run --config FILE",
        )


def summary(statuses: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> dict[str, Any]:
    """Put the nodes' own words together: the leader is the one that says so in the highest term.

    ``names`` gives a node that does not answer its name, by its address.
    """
    # Keys that this version does not know are passed on: a newer node may say more.
    nodes = [{**dict.fromkeys(KEYS), **one, "reachable": bool(one.get("reachable"))} for one in statuses]
    for node in nodes:
        node["id"] = node["id"] or names.get(node["address"])
    nodes.sort(key=lambda node: (len(str(node["id"])), str(node["id"]), str(node["address"])))
    answering = [node for node in nodes if node["reachable"]]
    term = max((node["term"] for node in answering), default=0)
    leaders = [node["id"] for node in answering if str(node["role"]).lower() == "leader" and node["term"] == term]
    clusters = [node.pop("cluster_id", None) for node in nodes]
    return {
        "cluster_id": next((cluster for cluster in clusters if cluster), None),
        "leader": leaders[0] if leaders else None,
        "term": term,
        "nodes": nodes,
    }


def _print(result: Mapping[str, Any], *, with_processes: bool) -> None:
    leader = f"leader {result['leader']}" if result["leader"] else "nobody leads"
    print(f"cluster {result['cluster_id'] or 'unknown'}   {leader}   term {result['term']}")
    columns = ["node", "address", "role", "lifecycle", "term", "committed", "durable", "last", "terms since"]
    rows = []
    for node in result["nodes"]:
        if node["reachable"]:
            told = [node[key] for key in ("role", "lifecycle", "term", "commit_index", "durable_index", "last_index")]
            history = " ".join(f"{term}@{first}" for term, first in (node["history"] or [])[-4:])
        else:
            told, history = ["unreachable", *[None] * 5], ""
        process = [str(node["pid"] or "-")] if with_processes else []
        rows.append([node["id"], node["address"], *process, *told, history])
    if with_processes:
        columns.insert(2, "process")
    print_table(columns, rows)
