"""Divides the records of a stream in a range of positions between the files of its runs and the nodes. Pure.

The range comes from ``stream_ranges.py`` and the runs from the catalogue of the stream's group. A run names its records
by their positions in the stream and by those in the topic. A record is in a piece by its position in the stream, so it
is in one piece, also if two runs, or a run and the log, meet in the middle of the range.

| event | effect |
| --- | --- |
| records of the log are archived after the catalogue was read | they are in no run of the plan: nodes are asked |
| a run is committed between the plan of the range and the catalogue | its records are taken from the file |
| a run is dropped after the catalogue was read | its file is gone; the reader looks whether its records were deleted |
| a node sends another order in the catalogue than in the places | PeerError; nothing is skipped |
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from viewstamp.client.stream_archives import StreamRunInfo
from viewstamp.client.stream_ranges import StreamRange, cut_at

__all__ = ["divide_by_runs"]


def divide_by_runs(
    topic: str, part: StreamRange, runs: Sequence[StreamRunInfo]
) -> tuple[list[tuple[StreamRange, StreamRunInfo]], list[StreamRange]]:
    """Return the pieces of a part that are in runs, each with its run, and the rest. Each record is in one of them.

    Args:
      topic: the name of the topic, for errors.
      part: records of one stream.
      runs: committed runs of this stream, by position.

    Raises:
      PeerError: the order of a run contradicts the part.
    """
    places = []
    for run in runs:
        places.append((run.first_global, run.first_position))
        places.append((run.last_global + 1, run.last_position + 1))
    inside = [(position, local) for position, local in places if part.first < local < part.last_end]
    archived, rest = [], []
    for piece in cut_at(topic, part, inside):
        at = bisect_right(runs, piece.first, key=lambda run: run.first_position) - 1
        if at >= 0 and piece.last_end <= runs[at].last_position + 1:
            archived.append((piece, runs[at]))
        else:
            rest.append(piece)
    return archived, rest
