"""The doctor's finding about the store of archived records. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from viewstamp.doctor.report import Finding, Report, node_name

__all__ = ["archive_trouble", "is_examining"]


def archive_trouble(report: Report) -> Iterator[Finding]:
    """Yield the trouble that each node has with the store of archived records."""
    for node in report.up:
        archive = node.get("archive") or {}
        if archive.get("trouble"):
            name = node_name(node)
            yield Finding(
                code="archive",
                node=name,
                sentence=f"{name} cannot use the store of archived records: {archive['trouble']}",
                remedy=str(archive.get("remedy") or "look at the log of this node"),
            )


def is_examining(report: Report) -> bool:
    """Return whether a node is looking at its store now, so that a question a moment later has a newer answer."""
    return any((node.get("archive") or {}).get("is_current") is False for node in report.up)
