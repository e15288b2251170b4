"""The effect of the archive settings of a topic: which run is due, and what the log and the store keep. Pure.

| | counts for | a topic without the archive | a topic with the archive |
| --- | --- | --- | --- |
| retention | the log | deletes records | the log keeps its copy of archived records too; deletes nothing |
| archive age | new runs | | younger records are not archived, unless the log is nearly full |
| archive delay | the log | as the request of each run says | the log keeps its copy of a run, from its commit on |
| delete age | log and store | | deletes whole runs |

So a record of a topic with the archive is deleted only after its run was committed, however long the store fails.

A run is due when the records that are old enough have 256 MiB, or the first of them has been old enough for an hour (a
day, if half of all possible runs exist). If the log is nearly full, a part of the log is enough, of any age. Only the
leader decides that, by its clock and its log, because a run at another time is as right.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from viewstamp.ids import Position
from viewstamp.node.archive_queries import DueRun, DueRunsQuery
from viewstamp.streams.runs import RUNS_MAX, RunCatalogue, RunState, TopicRun
from viewstamp.streams.stream_map import StreamMaps
from viewstamp.streams.topic import Topic

__all__ = ["describe_archive", "due_run", "expired_end", "has_ended", "needed_position", "unneeded"]

_LONG_WAIT = 24
_MANY_RUNS = RUNS_MAX // 2


def due_run(topic: Topic, runs: RunCatalogue, maps: StreamMaps, query: DueRunsQuery) -> DueRun | None:
    """Return the run that is due; None = none is, or the topic has no archive. ``maps``: those of the streams here."""
    settings = topic.archive
    if not settings.is_on:
        return None
    first, end = runs.next_first(topic), runs.archivable_end(topic, maps)
    if settings.after_seconds and not query.is_pressed:
        end = min(end, Position(topic.find_time(query.now - settings.after_us)))
    if first >= end:
        return None
    wait = query.wait * _wait_factor(runs)
    has_waited = topic.time_before(first) + settings.after_us + wait <= query.now
    is_due = has_waited or topic.bytes_between(first, end) >= query.run_bytes
    return DueRun(topic.name, end, settings.delay_us, query.is_pressed) if is_due else None


def expired_end(topic: Topic, runs: RunCatalogue, log_time: int) -> Position:
    """Return the position below which the delete age deletes the records: the end of a run, or the first kept one."""
    if not (topic.archive.is_on and topic.archive.delete_seconds):
        return topic.first_position
    oldest = log_time - topic.archive.delete_us
    expired = takewhile(lambda run: _is_older(run, oldest), runs.kept(topic))
    return max((run.end for run in expired), default=topic.first_position)


def needed_position(topic: Topic, runs: RunCatalogue, log_time: int) -> Position:
    """Return the position from which the log must keep the records of a topic."""
    released = runs.released(topic, log_time)
    position = released[-1].end if released else topic.first_position
    return min(position, topic.retained_from(log_time)) if topic.archive.is_on and _has_retention(topic) else position


def has_ended(topics: Iterable[Topic], runs: RunCatalogue, log_time: int, now: int) -> bool:
    """Return whether an archive delay, or a delete age of ``topics``, ends between ``log_time`` and ``now``.

    Nothing else might be appended to a full or an idle log, so that its log time would not reach the end of them.
    """
    return runs.next_over(log_time) <= now or any(_is_expiring(topic, runs, now) for topic in topics)


def unneeded(topic: Topic, runs: RunCatalogue) -> bool:
    """Return whether a run of a topic with the archive is dropped, or holds deleted records only."""
    return any(
        run.state is RunState.DROPPED or run.end <= topic.first_position
        for run in runs.of(topic.id)
        if run.state is not RunState.PREPARED
    )


def describe_archive(topic: Topic, runs: RunCatalogue) -> dict[str, object]:
    """Return the archived part of a topic as plain values; {} = it has neither the archive nor a kept run.

    ``first`` and ``end`` are positions, half-open; ``bytes`` are those of the files; ``first_time`` and ``last_time``
    are log times of archived records, 0 = there is none; ``waiting_since`` is a log time at or before that of the first
    record that is in no run, 0 = there is none; ``waiting_bytes`` are those of the log from there on; they wait
    ``wait_factor`` times as long as the leader's setting.
    """
    kept = list(runs.kept(topic))
    if not (kept or topic.archive.is_on):
        return {}
    contents = [run.content for run in kept if run.content is not None]
    next_first = runs.next_first(topic)
    return {
        "archived": {
            "first": kept[0].first if kept else topic.first_position,
            "end": kept[-1].end if kept else topic.first_position,
            "runs": len(kept),
            "bytes": sum(content.size for content in contents),
            "first_time": min((content.first_time for content in contents), default=0),
            "last_time": max((content.last_time for content in contents), default=0),
            "waiting_since": topic.time_before(next_first) if next_first < topic.next_position else 0,
            "waiting_bytes": topic.bytes_between(next_first, topic.next_position),
            "wait_factor": _wait_factor(runs),
        }
    }


def _wait_factor(runs: RunCatalogue) -> int:
    """Return by how much records wait longer for others, because there are many runs."""
    return _LONG_WAIT if len(runs.runs) >= _MANY_RUNS else 1


def _is_expiring(topic: Topic, runs: RunCatalogue, now: int) -> bool:
    """Return whether the delete age deletes the first run of a topic at the log time ``now``."""
    first = next(runs.kept(topic), None) if topic.archive.is_on and topic.archive.delete_seconds else None
    return first is not None and _is_older(first, now - topic.archive.delete_us)


def _has_retention(topic: Topic) -> bool:
    return bool(topic.retain_bytes or topic.retain_seconds)


def _is_older(run: TopicRun, time: int) -> bool:
    return run.content is not None and run.content.last_time <= time
