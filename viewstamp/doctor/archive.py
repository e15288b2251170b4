"""The doctor's findings about archived records and their store. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from viewstamp.doctor.report import Finding, Report, node_name

__all__ = ["archive_trouble", "is_examining"]


_TROUBLED = ("failing", "unable")
"""States of ``ArchivingState``."""


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
        archiving = node.get("archiving") or {}
        if archiving.get("state") in _TROUBLED:
            topic = f" topic {archiving['topic']}" if archiving.get("topic") else ""
            yield Finding(
                code="not_archiving",
                node=name,
                sentence=f"{name} leads, and cannot archive{topic}, so the logs keep the records:"
                f" {archiving.get('reason')}",
                remedy=f"{archiving.get('remedy') or 'look at the log of this node'}; it tries again by itself",
            )
        problem = node.get("archive_problem")
        if problem and (node.get("archived_runs") or node.get("archived_topics")):
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


def is_examining(report: Report) -> bool:
    """Return whether a node is looking at its store now, so that a question a moment later has a newer answer."""
    return any((node.get("archive") or {}).get("is_current") is False for node in report.up)
