"""What a node may send of a stream to a reader by global position. Pure.

A reader must never skip a record. So an answer says up to which global position it has all records of its stream
(``known_to``), and this module is the only one that decides it:

| the states of this node | ``known_to`` |
| --- | --- |
| the map of the stream ends below what group 0 has forgotten: the state of its group lags | no answer |
| the runs of the map and of group 0 do not join | no answer |
| all runs up to the ordered end are known, and all their records are applied here | the next position of the topic |
| more runs are known than one answer takes | the end of the last one that it takes |
| the state of the group lacks records that are ordered | the position of the first one that it lacks |
| the map has runs that the state of group 0 lacks here | the end of the last run, if that is higher |
| the answer is cut because of its size | the position of the first record that was cut off |

Both states may lag, each by itself. The next position of the topic and the ordered end are read from one state of group
0, so no other record of the stream has a position below it.
"""

from __future__ import annotations

from viewstamp.ids import GlobalPosition, Position
from viewstamp.node.order_queries import Cover, OrderTail
from viewstamp.streams.stream_map import StreamMap
from viewstamp.streams.topic import Topic
from viewstamp.wire.ordering import GlobalRun

__all__ = ["cover"]


def cover(
    topic: Topic, found: StreamMap | None, tail: OrderTail, position: GlobalPosition, runs_max: int
) -> Cover | None:
    """Return what can be sent of a stream from a global position on; None = the state of its group lags.

    Args:
      topic: the stream, in the state of its group.
      found: its map there; None = it has no run yet.
      tail: the order of the stream from ``position`` on, in the state of group 0.
      position: the global position.
      runs_max: the most runs.
    """
    mapped = found.end if found is not None else Position(1)
    if mapped < tail.forgotten:
        return None
    runs = found.runs_from(position, runs_max) if found is not None else []
    if not runs or runs[-1].end == mapped:
        further = [run for run in tail.runs if run.end > mapped][: runs_max - len(runs)]
        if further and (further[0].local < mapped or (runs and further[0].local > mapped)):
            return None
        runs += further
    ordered_end = max(tail.end, mapped)
    runs_end = runs[-1].end if runs else ordered_end
    runs_to = GlobalPosition(runs[-1].position + runs[-1].length) if runs else position
    known_to = max(tail.next_position, runs_to) if runs_end == ordered_end else runs_to
    first = Position(runs[0].local + max(0, position - runs[0].position)) if runs else runs_end
    end = min(runs_end, topic.next_position)
    kept_from = position
    trimmed = Position(topic.first_position - 1)
    if trimmed >= first:
        kept_from = min((_at(run, trimmed + 1) for run in runs if trimmed < run.end), default=runs_to)
    elif found is not None and 0 < trimmed < found.end and found.find_global(trimmed) is None:
        # A map of an earlier release, which kept no run of the last trimmed record.
        kept_from = max(position, found.run(0).position)
    whole = Cover(topic.id, first, runs_end, tuple(runs), known_to, kept_from)
    if end < runs_end:
        end = max(first, end)
    start = min(max(first, topic.first_position), end)
    return Cover(topic.id, start, end, whole.runs, whole.known_at(end), kept_from)


def _at(run: GlobalRun, local: int) -> GlobalPosition:
    """Return the global position that follows from a run for a local one in it, or directly behind it."""
    return GlobalPosition(run.position + local - run.local)
