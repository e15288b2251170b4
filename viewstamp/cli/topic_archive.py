"""The archive of a topic as the commands about topics and about the archive show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from viewstamp.quantities import show_duration

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.client.results import TopicInfo

__all__ = ["archived_table", "archivist_of", "described_archive", "settings_table"]


async def archivist_of(client: Client, timeout: float) -> dict[str, Any]:
    """Return the status of the archivist of the leader, with the name of its node; {} = no node leads, or tells it."""
    for node in await client.status(timeout=timeout):
        if node.get("role") == "leader" and isinstance(node.get("archiving"), dict):
            return {"node": str(node.get("id", "")), **node["archiving"]}
    return {}


def described_archive(info: TopicInfo) -> dict[str, object]:
    """Return the archive of a topic for programs; {} = it has neither settings nor archived records."""
    described: dict[str, object] = {}
    if (settings := info.archive) is not None:
        described["archive"] = {
            "after_seconds": settings.after_seconds,
            "delay_seconds": settings.delay_seconds,
            "delete_after_seconds": settings.delete_seconds,
        }
    if (part := info.archived) is not None:
        described["archived"] = {
            "first_position": part.first_position,
            "last_position": part.last_position,
            "runs": part.runs,
            "bytes": part.bytes,
            "first_time": part.first_time,
            "last_time": part.last_time,
            "waiting_since": part.waiting_since,
        }
    return described


def archived_table(info: TopicInfo, archivist: dict[str, Any], now_us: int) -> tuple[list[str], list[Sequence[object]]]:
    """Return the heads and the row of a topic with archived records: positions, bytes, ages, state of the archivist."""
    part = info.archived
    assert part is not None, "the caller looks"
    row = [
        part.first_position if part.runs else "-",
        part.last_position if part.runs else "-",
        part.runs,
        part.bytes,
        _age(part.first_time, now_us),
        _age(part.waiting_since, now_us),
        _state(info, archivist),
    ]
    return ["archived from", "to", "runs", "bytes", "oldest", "waiting for", "archivist"], [row]


def settings_table(infos: Sequence[TopicInfo]) -> tuple[list[str], list[Sequence[object]]]:
    """Return the heads and the rows of the archive settings of topics."""
    rows: list[Sequence[object]] = [
        (
            info.name,
            _span(info.archive.after_seconds) or "any age",
            _span(info.archive.delay_seconds) or "none",
            _span(info.archive.delete_seconds) or "never",
        )
        for info in infos
        if info.archive is not None
    ]
    return ["topic", "archive after", "archive delay", "delete after"], rows


def _state(info: TopicInfo, archivist: dict[str, Any]) -> str:
    if info.archive is None:
        return "on request"
    state, topic = str(archivist.get("state") or "unknown"), archivist.get("topic")
    reason = archivist.get("reason") if topic in ("", None, info.name) else ""
    if topic not in ("", None, info.name):
        state = "idle"
    return f"{state}: {reason}" if reason else state


def _span(seconds: float) -> str:
    return show_duration(seconds * 1000) if seconds else ""


def _age(time_us: int, now_us: int) -> str:
    """Return the age of a log time, rounded down; "-" = there is none."""
    if not time_us:
        return "-"
    seconds = max(now_us - time_us, 0) // 1_000_000
    unit = next((unit for unit in (86_400, 3600, 60) if seconds >= 2 * unit), 1)
    return show_duration(seconds // unit * unit * 1000) if seconds else "0s"
