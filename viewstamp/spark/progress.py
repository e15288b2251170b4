"""Computes how far a streaming query is behind its topics, from the progress that Spark reports. Imports no Spark.

Spark has a hook for metrics of a source in Scala and Java, but none in Python. It does report, for each source, the end
of the micro-batch and the ends of the topics, so their difference can be computed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["lag"]


def lag(progress: Mapping[str, Any] | None) -> dict[str, int]:
    """Return how many records each topic had behind the end of a micro-batch.

    The ends of the topics are those that were committed when the micro-batch was planned.

    Args:
      progress: ``query.lastProgress``, or the parsed ``event.progress.json`` of a listener.

    Returns:
      Records by topic, for all sources of the query that read topics; if two sources read one topic, the larger
      number. Empty if there is no progress yet.
    """
    behind: dict[str, int] = {}
    for source in (progress or {}).get("sources", ()):
        end, latest = _positions(source.get("endOffset")), _positions(source.get("latestOffset"))
        for topic, position in latest.items():
            if topic in end:
                behind[topic] = max(behind.get(topic, 0), position - end[topic])
    return behind


def _positions(offset: object) -> dict[str, int]:
    """Return the positions of an offset by topic; {} if it is not an offset of this source."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    if not isinstance(offset, dict) or offset.get("v") != 1 or not all(type(each) is int for each in offset.values()):
        return {}
    return {str(key).removeprefix("/"): position for key, position in offset.items() if key != "v"}
