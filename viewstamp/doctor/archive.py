"""The doctor's findings about archived records and their store. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from viewstamp.doctor.report import Finding, Report, node_name
from viewstamp.quantities import rounded_size, show_size

__all__ = ["archive_trouble", "is_examining"]


_TROUBLED = ("failing", "unable")
"""States of ``ArchivingState``."""
_FULL_PART = 3 / 4
"""Part of the memory for the tables of keyed topics from which on it is nearly used up."""


def archive_trouble(report: Report) -> Iterator[Finding]:
    """Yield the trouble that each node has with the store of archived records, and with its runs."""
    for node in report.up:
        name, archive = node_name(node), node.get("archive") or {}
        if archive.get("trouble"):
            yield Finding(
                code="archive",
                node=name,
                sentence=f"{name} cannot use the store of archived records: {archive['trouble']}",
                remedy=str(archive.get("remedy") or "look at the log of this node"),
            )
        yield from _not_archiving(name, node, archive)
        for hosted in node.get("hosted") or ():
            yield from _not_archiving(f"{name} (group {hosted.get('group')})", hosted, archive, node=name)
        problem = node.get("archive_problem")
        if problem and any(each.get("archived_runs") or each.get("archived_topics") for each in _states(node)):
            yield Finding(
                code="no_archive",
                node=name,
                sentence=f"{name} cannot read archived records, because {problem}: reads of them go to the other nodes,"
                " and its log keeps those that it has",
                remedy="set [archive] directory or url on every node, to the store that all of them reach, install"
                " 'viewstamp[archive]' there, and restart the node",
            )
        elif unreadable := node.get("unreadable_runs"):  # Files that a node without an archive has not tried.
            run, reason = next(iter(unreadable.items()))
            more = f" (and {len(unreadable) - 1} more)" if len(unreadable) > 1 else ""
            yield Finding(
                code="unreadable_runs",
                node=name,
                sentence=f"{name} cannot read archived run {run}{more}, so its log keeps these records: {reason}",
                remedy="put an intact copy of the file in its place; the log has the records until then. `viewstamp"
                " archive check` reads all files",
            )
        yield from _keyed_trouble(node)


def _states(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the parts of a node's status that have the state of a group, that of group 0 first."""
    return [node, *((each.get("state") or {}) for each in node.get("hosted") or ())]


def _not_archiving(
    name: str, status: Mapping[str, Any], store: Mapping[str, Any], *, node: str = ""
) -> Iterator[Finding]:
    """Yield the trouble of the rounds of one group; ``name`` is that of its leader, ``node`` = "" that of the node.

    The trouble with the ``store`` of the node is reported once, and not for each group that it keeps from archiving.
    """
    archiving = status.get("archiving") or {}
    if store.get("trouble") and str(archiving.get("reason")).endswith(str(store["trouble"])):
        return
    if archiving.get("state") in _TROUBLED or archiving.get("failures"):  # Also while it tries again.
        failed = archiving.get("failed_topic", archiving.get("topic"))
        topic = f" topic {failed}" if failed else ""
        yield Finding(
            code="not_archiving",
            node=node or name,
            sentence=f"{name} leads, and cannot archive{topic}, so the logs keep the records:"
            f" {archiving.get('reason')}",
            remedy=f"{archiving.get('remedy') or 'look at the log of this node'}; it tries again by itself",
        )


def _keyed_trouble(node: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the trouble that a node has with the views of keyed topics."""
    name, problem = node_name(node), node.get("archive_problem")
    if problem and node.get("keyed_topics"):
        yield Finding(
            code="no_archive",
            node=name,
            sentence=f"{name} cannot read the files of keyed topics, because {problem}: while it leads, records cannot"
            " be found by key",
            remedy="set [archive] directory or url on this node too, to the store of the others, install"
            " 'viewstamp[archive]' there, and restart the node",
        )
    table, limit = node.get("key_table_bytes") or 0, node.get("key_table_bytes_max") or 0
    if table > _FULL_PART * limit:
        yield Finding(
            code="undumped_keys",
            node=name,
            sentence=f"{name} holds {rounded_size(table)} of records of keyed topics that are in no file; from"
            f" {show_size(limit)} on, records cannot be found by key",
            remedy="let the leader dump them: `viewstamp archive log` says when the next dump is due, and whether the"
            " store fails",
        )


def is_examining(report: Report) -> bool:
    """Return whether a node is looking at its store now, so that a question a moment later has a newer answer."""
    return any((node.get("archive") or {}).get("is_current") is False for node in report.up)
