"""The topics whose names match the option ``topicPattern``: looked for each time a query is planned.

A stream begins a topic that it finds later with the first record that is kept, whatever the option ``startingPosition``
is, because the topic has records before the stream finds it. Topics with streams are found too.
"""

from __future__ import annotations

import re
from dataclasses import replace

from viewstamp.client.aio import Client
from viewstamp.errors import UnknownTopicError
from viewstamp.spark.options import SourceOptions

__all__ = ["found_later", "matching"]

_PLANNING_SECONDS = 60.0


async def matching(client: Client, options: SourceOptions) -> SourceOptions:
    """Return the options with the topics that exist now; unchanged without the option.

    Raises:
      UnknownTopicError: no topic matches, because a mistake in the pattern would look like a topic without records.
    """
    if not options.topic_pattern:
        return options
    names = [topic.name for topic in await client.list_topics(timeout=_PLANNING_SECONDS)]
    names += [topic.name for topic in await client.list_spread_topics(timeout=_PLANNING_SECONDS)]
    found = [name for name in sorted(names) if re.fullmatch(options.topic_pattern, name)]
    if not found:
        raise UnknownTopicError(
            f"no topic matches topicPattern {options.topic_pattern!r}",
            remedy="the pattern has to match a whole name; viewstamp topic list has the names",
        )
    return options.naming(found)


def found_later(options: SourceOptions) -> SourceOptions:
    """Return the options for topics that a running stream has found."""
    if not options.topic_pattern or options.starting_timestamp is not None:
        return options
    return replace(options, pattern_bounds=("earliest", "latest")).naming(options.topics)
