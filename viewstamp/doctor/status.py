"""Combines the statuses of the nodes of a cluster: the leader, and warnings. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from viewstamp.doctor.clocks import in_words, seconds_ahead
from viewstamp.errors import AccessDeniedError, TlsError, ViewstampError, WrongNodeError, unanswered
from viewstamp.ids import name_of
from viewstamp.quantities import rounded_size
from viewstamp.terminal.flags import program

__all__ = [
    "FULL",
    "divergences",
    "is_rejected",
    "is_stranger",
    "log_size",
    "member_id",
    "nobody_leads",
    "summary",
    "warnings_of",
]

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
    "applied_index",
    "log_bytes",
    "log_bytes_max",
    "restart_seconds_estimate",
    "last_snapshot_index",
    "durability",
    "actors",
    "reachable",
)


MIB: Final = 1024 * 1024
FULL: Final = 0.8
"""Share of its limit above which a log is reported, because it can reach the limit before a person looks again."""


def is_rejected(node: Mapping[str, Any]) -> bool:
    """Return whether a node rejects this command, because its certificate or its token is missing or wrong."""
    return node.get("error_class") in (TlsError.__name__, AccessDeniedError.__name__)


def is_stranger(node: Mapping[str, Any]) -> bool:
    """Return whether a node shows this command only what everybody may see, because its token gives no right."""
    is_running = bool(node["reachable"]) and str(node["lifecycle"]).lower() == "running"
    return is_running and node["commit_index"] is None


def nobody_leads(nodes: Sequence[Mapping[str, Any]], where: str, *, is_read: bool) -> ViewstampError:
    """Return the error if none of the statuses, as ``summary`` has them, is a leader's; see ``unanswered``."""
    membership: Mapping[str, Any] = next((node["membership"] for node in nodes if node.get("membership")), {})
    voters = [*(membership.get("voters") or ()), *(membership.get("outgoing") or ())]
    members = {str(name_of(voter)) for voter in voters} or {str(node["id"] or node["address"]) for node in nodes}
    here = {str(node["id"]) for node in nodes if node["reachable"]}
    other = next((node for node in nodes if node.get("error_class") == WrongNodeError.__name__), None)
    if other is not None and not here:
        return WrongNodeError(
            str(other["error"]), remedy=f"run `{program()} doctor{where}`: it has a remedy for each node"
        )
    refused = next(filter(is_rejected, nodes), None)
    if refused is not None and not here:
        kind = TlsError if refused["error_class"] == TlsError.__name__ else AccessDeniedError
        return kind(str(refused["error"]), remedy=str(refused.get("remedy") or ""))
    reasons = dict.fromkeys(str(node["error"]) for node in nodes if node.get("error"))
    return unanswered(
        members,
        members - here,
        "no node leads" if here else "; ".join(reasons),
        doctor=f"{program()} doctor{where}",
        detail="" if any(node["id"] for node in nodes) else "; ".join(reasons),
        is_read=is_read,
    )


def summary(statuses: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> dict[str, Any]:
    """Combine the nodes' statuses. The leader is the node that reports to lead in the highest term.

    ``names`` has the name of each address, for nodes that do not answer.
    """
    # Unknown keys are passed on, because a newer node may report more.
    nodes = [{**dict.fromkeys(KEYS), **one, "reachable": bool(one.get("reachable"))} for one in statuses]
    for node in nodes:
        node["id"] = node["id"] or names.get(node["address"])
        node.update(node.pop("state", {}))
    nodes.sort(key=lambda node: (len(str(node["id"])), str(node["id"]), str(node["address"])))
    answering = [node for node in nodes if node["reachable"]]
    term = max((node["term"] or 0 for node in answering), default=0)
    leaders = [node["id"] for node in answering if str(node["role"]).lower() == "leader" and node["term"] == term]
    clusters = [node.pop("cluster_id", None) for node in nodes]
    return {
        "cluster_id": next((cluster for cluster in clusters if cluster), None),
        "leader": leaders[0] if leaders else None,
        "term": term,
        "nodes": nodes,
        "warnings": warnings_of(answering),
    }


def warnings_of(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return warnings about nodes that answered."""
    from viewstamp.config.model import INTERVAL

    warnings = [
        f"{node['id']} acknowledges before it syncs ({node['durability']}): a power cut of several nodes can lose "
        "acknowledged records"
        for node in nodes
        if node["durability"] == INTERVAL
    ]
    for node in nodes:
        used, total = node["log_bytes"], node["log_bytes_max"]
        if used and total and used > FULL * total:
            warnings.append(
                f"the log of {node['id']} is {used / total:.0%} full ({log_size(node)}): "
                "`viewstamp snapshot create` frees the space of commands, `viewstamp topic trim` that of records"
            )
        for path in node.get("damaged_snapshots") or ():
            warnings.append(f"a snapshot of {node['id']} is damaged, and an older one was used instead: {path}")
        if trouble := (node.get("archive") or {}).get("trouble"):
            warnings.append(
                f"{node['id']} cannot use the store of archived records: {trouble}. `viewstamp doctor` has the remedy"
            )
    for node in nodes:
        for fault in node.get("chaos") or ():
            peers = f" from {', '.join(fault['peers'])}" if fault["peers"] else ""
            warnings.append(
                f"CHAOS: {fault['fault']}{peers} is injected into {node['id']}; to end it: `viewstamp chaos heal`"
            )
    for node in nodes:
        if node["role"] == "leader" and (ahead := seconds_ahead(node)):
            warnings.append(
                f"log time is {in_words(ahead)} ahead of the clocks, and runs at half the rate of real time until the "
                "clocks catch up: `viewstamp doctor` explains the effects"
            )
    warnings += [f"DIVERGED: {sentence}" for sentence in divergences(nodes)]
    return warnings


def member_id(node: Mapping[str, Any]) -> str:
    """Return a node's member id; if it does not report one, its name or its address."""
    return str(node.get("member_id") or node["id"] or node["address"])


def divergences(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each actor that has different states on nodes that have applied the same records."""
    digests: dict[tuple[str, int], dict[str, list[str]]] = {}
    for node in nodes:
        for actor, state in (node["actors"] or {}).items():
            of_actor = digests.setdefault((actor, node["applied_index"]), {})
            of_actor.setdefault(str(state.get("digest")), []).append(str(node["id"]))
    sentences = []
    for (actor, index), found in digests.items():
        if len(found) > 1:
            sides = "; ".join(f"{digest} on {', '.join(ids)}" for digest, ids in found.items())
            sentences.append(f"the state of actor {actor} differs at index {index}: {sides}")
    return sentences


def log_size(node: Mapping[str, Any]) -> str:
    """Return the size of a node's log, and its limit if it has one, as text."""
    used, total = node["log_bytes"], node["log_bytes_max"]
    if total:
        return f"{used / MIB:.1f} of {total / MIB:.1f} MiB"
    return rounded_size(used)
