"""The rule that a group is empty, by which a REMOVE_GROUP is refused or applied. Pure.

A REMOVE_GROUP is refused, by the state of group 0 alone, as long as

| what | because |
| --- | --- |
| a stream of a spread topic is in the group and not removed | its records are there |
| a stream of the group was removed after the index ``seen`` of the record | the client had asked the group before, so \
nobody has seen that the group has deleted this stream: its archived files, or records of a group that was found \
again, may be left |
| a spread actor has the group | its instances are there |

The client asks the group itself whether it keeps any topic (``client/group_removal.py``). The answer stays true if no
stream of the group is created or removed afterwards: an open stream makes the record refused by the first row, and a
removed one by the second. So no phase between the answer and the record is needed. Of a group whose nodes are lost
(``is_lost``) nobody can answer, so the second row does not apply.

A batch of a sink has parts only with records of streams. A stream of a group that answers is sealed when the parts of
all commits in it have their positions, and a later commit is refused, so a group without streams has no part that
counts.

Behind the record the group is not placed, so SPREAD_TOPIC, ADD_STREAM and SPREAD_ACTOR that name it are refused when
they are applied. Its id is an index, so it is never used again.
"""

from __future__ import annotations

from collections.abc import Iterable

from viewstamp.errors import RequestError
from viewstamp.ids import GroupId
from viewstamp.node.placement_queries import SpreadTopic
from viewstamp.streams.spread import SpreadTopics
from viewstamp.streams.spread_actors import SpreadActors
from viewstamp.wire.batch import Batch
from viewstamp.wire.staged import decode_fields

__all__ = ["check_empty"]

_NAMED_MAX = 5


def check_empty(batch: Batch, spread: SpreadTopics, actors: SpreadActors) -> None:
    """Check that the group of a REMOVE_GROUP, which is established, is empty. Raises RequestError."""
    number, seen, is_lost = decode_fields(batch, group=int, seen=int, is_lost=bool)
    group = GroupId(number)
    topics = list(spread.topics.values())
    if kept := [name for topic in topics for name in _kept_streams(topic, group)]:
        raise RequestError(
            f"group {group} has {_listed('stream', kept)}; it was not removed",
            remedy="move or seal each of them, trim its records, and remove it: `viewstamp stream move`,"
            " `viewstamp topic trim`, `viewstamp stream remove`",
        )
    if owners := [actor.name for actor in actors.actors.values() if group in actor.groups]:
        raise RequestError(
            f"group {group} has instances of {_listed('actor', owners)}; it was not removed",
            remedy="stop all nodes, and put the instances into other groups: `viewstamp reshard`",
        )
    late = [topic for topic in topics if any(gone > seen for gone in _removals(topic, group))]
    if late and not is_lost:
        raise RequestError(
            f"a stream of topic {late[0].name!r} in group {group} was removed after this command had looked at the"
            " group; the group was not removed",
            remedy="give the command again",
        )


def _kept_streams(topic: SpreadTopic, group: GroupId) -> Iterable[str]:
    gone = {each.stream for each in topic.gone_streams}
    return (name for name in topic.streams_of(group) if topic.number_of(name) not in gone)


def _removals(topic: SpreadTopic, group: GroupId) -> Iterable[int]:
    """Return the indices of the records that removed streams of a topic in a group."""
    return (each.gone for each in topic.gone_streams if topic.groups[each.stream - 1] == group)


def _listed(what: str, names: list[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return f"the {what}{'s' if len(names) > 1 else ''} {', '.join(map(repr, names[:_NAMED_MAX]))}{more}"
