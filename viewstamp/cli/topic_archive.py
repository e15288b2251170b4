"""The archive and the view by key of a topic, as the commands about topics and about the archive show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from viewstamp.quantities import show_duration, show_size

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.client.results import TopicInfo

__all__ = ["archived_table", "archivist_of", "described_archive", "keyed_table", "settings_table"]


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
            "waiting_bytes": part.waiting_bytes,
        }
    return described


def archived_table(info: TopicInfo, archivist: dict[str, Any], now_us: int) -> tuple[list[str], list[Sequence[object]]]:
    """Return the heads and the row of a topic with archived records: positions, bytes, ages, state of the archivist.

    "next run": when it is due by the time, or from which bytes of log on, with those that wait now.
    """
    part = info.archived
    assert part is not None, "the caller looks"
    row = [
        part.first_position if part.runs else "-",
        part.last_position if part.runs else "-",
        part.runs,
        part.bytes,
        _age(part.first_time, now_us),
        _age(part.waiting_since, now_us),
        _next_run(info, archivist, now_us),
        _state(info, archivist),
    ]
    return ["archived from", "to", "runs", "bytes", "oldest", "waiting for", "next run", "archivist"], [row]


def keyed_table(infos: Sequence[TopicInfo], archivist: dict[str, Any]) -> tuple[list[str], list[Sequence[object]]]:
    """Return the heads and the rows of the views by key of keyed topics, with the state of the archivist.

    "next dump": from which bytes of log on it is due, with those that wait now.
    """
    rows: list[Sequence[object]] = []
    for info in infos:
        if (view := info.keyed) is not None:
            waiting = view["undumped_bytes"]
            due = _from_bytes(waiting, archivist.get("dump_bytes"))
            state = _activity(info.name, archivist)
            rows.append(
                (
                    info.name,
                    view["dumped_end"] - 1,
                    view["ranges"],
                    view["runs"],
                    view["records"],
                    show_size(view["bytes"]),
                    due if waiting else "-",
                    state,
                )
            )
    return ["keyed topic", "dumped to", "ranges", "runs", "rows", "bytes", "next dump", "archivist"], rows


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
    return _activity(info.name, archivist)


def _activity(name: str, archivist: dict[str, Any]) -> str:
    """Return the activity of the archivist for the topic of a name."""
    state, topic = str(archivist.get("state") or "unknown"), archivist.get("topic")
    reason = archivist.get("reason") if topic in ("", None, name) else ""
    if topic not in ("", None, name):
        state = "idle"
    return f"{state}: {reason}" if reason else state


def _next_run(info: TopicInfo, archivist: dict[str, Any], now_us: int) -> str:
    """Return when the next run is due; "-" = no record waits for one, or only a request makes one."""
    part, settings = info.archived, info.archive
    if part is None or settings is None or not part.waiting_since:
        return "-"
    size = _from_bytes(part.waiting_bytes, archivist.get("run_bytes"))
    wait = archivist.get("wait_seconds")
    if wait is None:
        return size
    seconds = settings.after_seconds + wait * part.wait_factor
    left = _age(part.waiting_since + round(seconds * 1e6), now_us, sign=-1)
    return f"in {left}, or {size}" if left != "0s" else "now"


def _from_bytes(waiting: int, due: int | None) -> str:
    """Return from which bytes of log on a run is due, and those that wait; "unknown" = no leader has said it."""
    return f"at {show_size(due)}, has {show_size(waiting)}" if due else "unknown"


def _span(seconds: float) -> str:
    return show_duration(seconds * 1000) if seconds else ""


def _age(time_us: int, now_us: int, sign: int = 1) -> str:
    """Return the age of a log time, rounded down; "-" = there is none. With ``sign`` -1 the time until then."""
    if not time_us:
        return "-"
    seconds = max(sign * (now_us - time_us), 0) // 1_000_000
    unit = next((unit for unit in (86_400, 3600, 60) if seconds >= 2 * unit), 1)
    return show_duration(seconds // unit * unit * 1000) if seconds else "0s"
