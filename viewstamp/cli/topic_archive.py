"""The archive and the view by key of a topic, as the commands about topics and about the archive show them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from viewstamp.quantities import rounded_size, show_duration, show_size

if TYPE_CHECKING:
    from viewstamp.client.aio import Client
    from viewstamp.client.results import ArchiveInfo, SpreadTopicInfo, TopicInfo

__all__ = [
    "ARCHIVED_HEADS",
    "archived_row",
    "archived_table",
    "archivist_lines",
    "archivist_of",
    "described_archive",
    "described_settings",
    "keyed_table",
    "settings_table",
    "why_no_archive",
]


ARCHIVED_HEADS = ("archived from", "to", "runs", "bytes", "oldest", "waiting for")


async def archivist_of(client: Client, timeout: float) -> dict[str, Any]:
    """Return the status of the archivist of the leader, with the name of its node; {} = no node leads, or tells it."""
    for node in await client.status(timeout=timeout):
        if node.get("role") == "leader" and isinstance(node.get("archiving"), dict):
            return {"node": str(node.get("id", "")), **node["archiving"]}
    return {}


async def why_no_archive(client: Client, timeout: float) -> str:
    """Return why the leader cannot archive, and the remedy; "" = it can, or no node leads."""
    for node in await client.status(timeout=timeout):
        if node.get("role") == "leader" and (problem := node.get("archive_problem")):
            return (
                f"{node.get('id', 'the node')} leads, and cannot archive yet: {problem}\n  set [archive] directory"
                " or url on every node, install 'viewstamp[archive]' there, and restart the nodes"
            )
    return ""


def described_archive(info: TopicInfo) -> dict[str, object]:
    """Return the archive of a topic for programs; {} = it has neither settings nor archived records."""
    described = described_settings(info.archive)
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


def described_settings(settings: ArchiveInfo | None) -> dict[str, object]:
    """Return the archive settings of a topic for programs; {} = it has none."""
    if settings is None:
        return {}
    return {
        "archive": {
            "after_seconds": settings.after_seconds,
            "delay_seconds": settings.delay_seconds,
            "delete_after_seconds": settings.delete_seconds,
        }
    }


def archived_row(info: TopicInfo, now_us: int | None = None) -> list[object]:
    """Return the row of a topic with archived records, below ``ARCHIVED_HEADS``; None = its ages are as of now."""
    now_us = round(time.time() * 1e6) if now_us is None else now_us
    part = info.archived
    assert part is not None, "the caller looks"
    return [
        part.first_position if part.runs else "-",
        part.last_position if part.runs else "-",
        part.runs,
        part.bytes,
        _age(part.first_time, now_us),
        _age(part.waiting_since, now_us),
    ]


def archived_table(info: TopicInfo, now_us: int) -> tuple[list[str], list[Sequence[object]]]:
    """Return the heads and the row of a topic with archived records: positions, bytes and ages."""
    return [*ARCHIVED_HEADS], [archived_row(info, now_us)]


def archivist_lines(infos: Sequence[TopicInfo], archivist: dict[str, Any], now_us: int) -> list[str]:
    """Return when the next run and the next dump of each topic are due, and the state of the archivist.

    They are sentences, because a reason does not fit into a column of a terminal.
    """
    lines, states = [], {}
    for info in infos:
        if due := _next_run(info, archivist, now_us):
            lines.append(f"the next run of {info.name} is due {due}")
        if info.keyed is not None and (waiting := info.keyed["undumped_bytes"]):
            lines.append(f"the next dump of {info.name} is due {_from_bytes(waiting, archivist.get('dump_bytes'))}")
        is_by_itself = info.archive is not None or info.keyed is not None
        states[info.name] = _activity(info.name, archivist) if is_by_itself else "works on request"
    for state in dict.fromkeys(states.values()):
        names = [name for name, each in states.items() if each == state]
        of = f" for {', '.join(names)}" if len(set(states.values())) > 1 else ""
        does, colon, reason = state.partition(": ")
        lines.append(f"the archivist {does}{of}{colon}{reason}")
    return lines


def keyed_table(infos: Sequence[TopicInfo]) -> tuple[list[str], list[Sequence[object]]]:
    """Return the heads and the rows of the views by key of keyed topics."""
    rows: list[Sequence[object]] = []
    for info in infos:
        if (view := info.keyed) is not None:
            rows.append(
                (
                    info.name,
                    view["dumped_end"] - 1,
                    view["ranges"],
                    view["runs"],
                    view["records"],
                    rounded_size(view["bytes"]),
                )
            )
    return ["keyed topic", "dumped to", "ranges", "runs", "rows", "size"], rows


def settings_table(infos: Sequence[TopicInfo | SpreadTopicInfo]) -> tuple[list[str], list[Sequence[object]]]:
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


def _activity(name: str, archivist: dict[str, Any]) -> str:
    """Return the activity of the archivist for the topic of a name."""
    state, topic = str(archivist.get("state") or "unknown"), archivist.get("topic")
    failed = archivist.get("failed_topic", topic)
    if topic not in ("", None, name):
        state = "failing" if failed == name else "idle"
    if not archivist.get("reason") or failed not in ("", None, name):
        return f"is {state}"
    again = "" if state in ("failing", "unable") else " after a failure"
    return f"is {state}{again}: {archivist['reason']}"


def _next_run(info: TopicInfo, archivist: dict[str, Any], now_us: int) -> str:
    """Return when the next run is due; "" = no record waits for one, or only a request makes one."""
    part, settings = info.archived, info.archive
    if part is None or settings is None or not part.waiting_since:
        return ""
    size = _from_bytes(part.waiting_bytes, archivist.get("run_bytes"))
    wait = archivist.get("wait_seconds")
    if wait is None:
        return size
    seconds = settings.after_seconds + wait * part.wait_factor
    left = _age(part.waiting_since + round(seconds * 1e6), now_us, sign=-1)
    return f"in {left}, or {size}" if left != "0s" else "now"


def _from_bytes(waiting: int, due: int | None) -> str:
    """Return from which bytes of log on a run is due, and those that wait; "unknown" = no leader has said it."""
    return f"when {show_size(due)} of log wait (now {rounded_size(waiting)})" if due else "at an unknown time"


def _span(seconds: float) -> str:
    return show_duration(seconds * 1000) if seconds else ""


def _age(time_us: int, now_us: int, sign: int = 1) -> str:
    """Return the age of a log time, rounded down; "-" = there is none. With ``sign`` -1 the time until then."""
    if not time_us:
        return "-"
    seconds = max(sign * (now_us - time_us), 0) // 1_000_000
    unit = next((unit for unit in (86_400, 3600, 60) if seconds >= 2 * unit), 1)
    return show_duration(seconds // unit * unit * 1000) if seconds else "0s"
