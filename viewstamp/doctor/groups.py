"""The doctor's findings about the groups beside group 0. Pure.

Each founder has its groups in ``placed``, and its part in those that are open in ``hosted``. A group whose founders all
do not answer is not known here; each of them has a finding of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from viewstamp.client.balance import leading_node
from viewstamp.consensus.membership import Membership
from viewstamp.consensus.standing import lacking
from viewstamp.doctor.report import Finding, Report, and_list, node_name
from viewstamp.ids import NodeId, name_of
from viewstamp.terminal.flags import program

__all__ = ["group_state", "group_trouble", "groups_line"]

_SHOWN: Final = 8
"""The most ids of groups in a line."""


def group_trouble(report: Report) -> Iterator[Finding]:
    """Yield the groups that do not serve, and those in which a node takes no part."""
    placed = {each["id"]: each for node in report.up for each in node.get("placed") or ()}
    for group, each in sorted(placed.items()):
        name = f"group {group} ({', '.join(each['streams'])})"
        if not each["is_established"]:
            missing = [founder for founder in sorted(each["members"]) if founder not in each["hosted"]]
            yield Finding(
                code="group_waiting",
                node="",
                sentence=f"{name} is placed, and not established: {and_list(missing)} did not create a directory",
                remedy=f"start {and_list(missing)}; or give the group up: {report.command(f'group cancel {group}')}",
            )
        elif not (_leads(report.up, group) or _leads(report.earlier, group)):
            why, remedy = _why_nobody_leads(report, group)
            yield Finding(
                code="group_no_leader",
                node="",
                sentence=f"{name} has no leader, so its streams take no appends: {why}",
                remedy=remedy,
            )
    for node in report.up:
        yield from _troubles_of(node)


def _troubles_of(node: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the groups in which a node takes no part, and the directories that it keeps."""
    name = node_name(node)
    failures = {each["id"]: each["failure"] for each in node.get("placed") or () if each.get("failure")}
    failures |= {each["group"]: each["failure"] for each in node.get("hosted") or () if each.get("failure")}
    if failures:
        group, reason = min(failures.items())
        yield Finding(
            code="group_failed",
            node=name,
            sentence=f"{name} takes no part in group {group}{_more(failures)}: {reason}",
            remedy=f"remove the cause, then restart {name}, which opens the group again; the other members go on",
        )
    if kept := node.get("kept_directories"):
        yield Finding(
            code="kept_directory",
            node=name,
            sentence=f"{name} keeps the directory of group {kept[0]['group']}{_more(kept)}, which it does not use:"
            f" {kept[0]['reason']}",
            remedy="put it where it belongs, or remove it if nobody needs what it holds",
        )


def _more(found: Mapping[int, str] | list[Any]) -> str:
    return f" (and {len(found) - 1} more)" if len(found) > 1 else ""


def group_state(nodes: Iterable[Mapping[str, Any]], group: int, founders: Iterable[str]) -> dict[str, Any]:
    """Return the leader of a group, its term and committed end, its members, and those of them that answer.

    Args:
      nodes: the statuses of the nodes.
      group: the id of the group.
      founders: its founders, which are its members as long as no node that answers has the group open.
    """
    parts = _parts_of(nodes, group)
    leader = leading_node(parts)
    membership = parts[leader].get("membership") if leader is not None else _newest_membership(parts)
    kinds = [(membership or {}).get(kind) or {} for kind in ("voters", "outgoing", "learners")]
    members = sorted({str(name_of(NodeId(member))) for kind in kinds for member in kind} or set(founders))
    return {
        "leader": leader,
        "term": parts[leader].get("term") if leader is not None else _highest(parts, "term"),
        "commit_index": _highest(parts, "commit_index"),
        "members": members,
        "answering": [member for member in members if member in parts],
    }


def groups_line(nodes: Iterable[Mapping[str, Any]]) -> str:
    """Return how many groups are placed, and which have no leader, in one line; "" = no group is placed."""
    up = [node for node in nodes if node["reachable"]]
    placed = sorted({each["id"] for node in up for each in node.get("placed") or ()})
    if not placed:
        return ""
    without = [group for group in placed if not _leads(up, group)]
    shown = ", ".join(str(group) for group in without[:_SHOWN]) + (", ..." if len(without) > _SHOWN else "")
    what = f"{len(without)} without a leader ({shown})" if without else "each with a leader"
    return f"{len(placed)} group{'s' if len(placed) > 1 else ''}, {what}: `{program()} group list`"


def _parts_of(nodes: Iterable[Mapping[str, Any]], group: int) -> dict[str, Mapping[str, Any]]:
    """Return the statuses of a group at the nodes that answer and serve it, by the nodes' names."""
    up = [node for node in nodes if node["reachable"]]
    hosted = [(str(node["id"]), each) for node in up for each in node.get("hosted") or ()]
    return {node: each for node, each in hosted if each["group"] == group and not each["failure"]}


def _highest(parts: Mapping[str, Mapping[str, Any]], key: str) -> int | None:
    return max((each[key] for each in parts.values() if each.get(key) is not None), default=None)


def _leads(nodes: Iterable[Mapping[str, Any]], group: int) -> bool:
    return leading_node(_parts_of(nodes, group)) is not None


def _newest_membership(parts: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the membership of the highest generation that a node has; None = no node has one."""
    found = [each["membership"] for each in parts.values() if each.get("membership")]
    return max(found, key=lambda each: int(each["generation"]), default=None)


def _why_nobody_leads(report: Report, group: int) -> tuple[str, str]:
    """Return why a group has no leader, and what to do."""
    parts = _parts_of(report.up, group)
    newest = _newest_membership(parts)
    if newest is None:
        return (
            "no node that answers serves it",
            "start the nodes that are down, and solve what keeps the others from the group: see the other findings",
        )
    membership = Membership(newest["voters"], outgoing=newest.get("outgoing") or {})
    running = {NodeId(each["member_id"]) for each in parts.values() if each.get("member_id")}
    short = lacking(membership, running)
    if not short:
        return (
            "a majority of its voters runs it",
            "wait: an election takes less than a second; if it does not end, repair the network between them",
        )
    missing = sorted({voter for voters in short for voter in voters} - running)
    verb = "does" if len(missing) == 1 else "do"
    return (
        f"of its voters {and_list(sorted(short[0]))}, {and_list(missing)} {verb} not run",
        "start the nodes of these members; if their disks are lost for good, give each of its streams up:"
        f" {report.command('stream seal TOPIC STREAM --lost')}",
    )
