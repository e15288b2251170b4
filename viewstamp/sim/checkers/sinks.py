"""Sinks: each batch appears once, whole and in order, or not at all, for every reader at every time.

| invariant | sentence |
| --- | --- |
| BatchVisible | a batch that was acknowledged as committed is in its topics, as far as these are kept |
| BatchWhole | the visible records of a batch are those that one COMMIT named which was not refused: all of them, in \
order and contiguous |
| BatchInRealTime | ... and after every record that was acknowledged before that COMMIT; checked with BatchWhole |
| BatchOnce | a batch was committed by one COMMIT only, and occurs once |
| BatchesRise | the batches of one owner are in the order of their numbers |
| NothingUncommitted | every record in a topic was appended, or staged for it by an attempt that a COMMIT named |
| AnswersAgree | all answers about a batch agree on its positions, its index and its time |
| NeverInPart | no reader found the end of a topic inside a batch, or a batch in one topic and not yet in the other |
| PositionsStay | every reader sees the same record at a position, for ever |
| TopicsAreReadable | once all faults are over, every reader gets all that a topic keeps |
| TimesNeverFall | the log time never falls along the positions of a topic |
| NothingLeftStaged | once a later run has committed, nothing is staged any more |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from viewstamp.sim.history import Fate
from viewstamp.sim.sinks import Commit, SinkBatch, SinkWorkload, TaskAttempt
from viewstamp.sim.topics import Observed
from viewstamp.sim.violation import Violation

if TYPE_CHECKING:
    from viewstamp.client.sinks import SinkCommit

__all__ = ["check_sinks"]

Places = dict[str, dict[int, bytes]]
"""The values of one batch, by topic and position."""


def check_sinks(sinks: SinkWorkload, first_positions: Mapping[str, int]) -> dict[SinkBatch, Commit]:
    """Judge the drivers' answers by all records that any reader saw in the topics. Raises Violation.

    Args:
      sinks: the requests and the observations, to the end of every topic.
      first_positions: the first kept position of each topic at the end; records below may have gone before they were
        seen.

    Returns:
      for each batch that is known to be committed, a COMMIT that can have done it.
    """
    for topic, seen in sinks.topics.observed.topics.items():
        _check_times(topic, seen)
    places = _visible(sinks)
    answers = _answers(sinks)
    committed: dict[SinkBatch, Commit] = {}
    for batch, commits in _by_batch(sinks.commits).items():
        possible = [commit for commit in commits if commit.fate is not Fate.NEVER]
        stands = places.get(batch, {})
        if stands or batch in answers:
            committed[batch] = _committed(batch, stands, possible, sinks.topics.observed, first_positions)
    for batch in places:
        if batch not in committed:
            raise Violation("NothingUncommitted", f"{batch} is in {list(places[batch])} without a COMMIT")
    for batch, told in answers.items():
        if batch not in committed:
            raise Violation("BatchVisible", f"{batch} was said to be committed: {told[0]}; no COMMIT of it was")
        _check_answers(batch, told, places.get(batch, {}), sinks.topics.observed)
    _check_order(places)
    for ends in sinks.topics.observed.ends:
        _check_ends(ends, places)
    for sink, info in sinks.left.items():
        if info.attempts or info.bytes:
            raise Violation("NothingLeftStaged", f"{sink}: {info}")
    return committed


def _check_times(topic: str, seen: Mapping[int, tuple[bytes, int]]) -> None:
    latest = 0
    for position in sorted(seen):
        if seen[position][1] < latest:
            raise Violation("TimesNeverFall", f"{topic} {position} is of {seen[position][1]}, after one of {latest}")
        latest = seen[position][1]


def _visible(sinks: SinkWorkload) -> dict[SinkBatch, Places]:
    """Return the visible records, by the batches to which they belong."""
    staged: dict[bytes, tuple[str, TaskAttempt]] = {
        value: (topic, attempt) for attempt in sinks.attempts for topic, value in attempt.records
    }
    stands: dict[bytes, tuple[str, int]] = {}
    places: dict[SinkBatch, Places] = {}
    for topic, seen in sinks.topics.observed.topics.items():
        for position, (value, _) in seen.items():
            if value not in staged:
                continue  # An append; ``exactly_once.py`` judges those.
            if value in stands:
                raise Violation("BatchOnce", f"{value[:60]!r} stands at {stands[value]} and {(topic, position)}")
            stands[value] = topic, position
            into, attempt = staged[value]
            if into != topic:
                raise Violation("NothingUncommitted", f"{value[:60]!r} stands in {topic}, it was staged for {into}")
            places.setdefault(attempt.batch, {}).setdefault(topic, {})[position] = value
    return places


def _by_batch(commits: Iterable[Commit]) -> dict[SinkBatch, list[Commit]]:
    by_batch: dict[SinkBatch, list[Commit]] = {}
    for commit in commits:
        by_batch.setdefault(commit.batch, []).append(commit)
    return by_batch


def _answers(sinks: SinkWorkload) -> dict[SinkBatch, list[SinkCommit]]:
    answers = {batch: list(known) for batch, known in sinks.known.items()}
    for commit in sinks.commits:
        if commit.answer is not None:
            answers.setdefault(commit.batch, []).append(commit.answer)
    return answers


def _committed(
    batch: SinkBatch,
    places: Places,
    commits: list[Commit],
    observed: Observed,
    first_positions: Mapping[str, int],
) -> Commit:
    """Return one of the commits, none of which was refused, that can have caused the visible records of the batch."""
    reasons = []
    for commit in commits:
        reason = _why_not(commit, places, observed, first_positions)
        if not reason:
            return commit
        reasons.append(reason)
    raise Violation(
        "BatchWhole" if places else "BatchVisible",
        f"{batch} stands at {_shown(places)}; none of its COMMITs: {reasons}",
    )


def _why_not(commit: Commit, places: Places, observed: Observed, first_positions: Mapping[str, int]) -> str:
    """Return why ``commit`` cannot have caused the visible records of its batch; "" = it can."""
    named = sum(len(attempt.records) for attempt in commit.attempts)
    if named != commit.size:
        return f"it names {named} of {commit.size} records"
    ranges = {}
    if commit.answer is not None and commit.answer.ranges is not None:
        ranges = {each.topic: each.first_position for each in commit.answer.ranges}
    for topic in {*places, *(topic for attempt in commit.attempts for topic, _ in attempt.records)}:
        values = commit.records_of(topic)
        stands = places.get(topic, {})
        if not values:
            return f"it names nothing for {topic}"
        if stands:
            position, value = next(iter(stands.items()))
            if value not in values:
                return f"it does not name {value[:60]!r}"
            first = position - values.index(value)
        elif topic in ranges:
            first = ranges[topic]
        elif first_positions.get(topic, 1) == 1:
            return f"nothing of it stands in {topic}"
        else:
            continue  # It was probably trimmed before any reader saw it.
        if ranges.get(topic, first) != first:
            return f"its answer says {topic} {ranges[topic]}, not {first}"
        seen = observed.topics.get(topic, {})
        for at, value in enumerate(values, first):
            if at in seen and seen[at][0] != value:
                return f"{topic} {at} is {seen[at][0][:60]!r}, not {value[:60]!r}"
            if at not in seen and at >= first_positions.get(topic, 1):
                return f"{topic} {at} is beyond the end, {value[:60]!r} should be there"
        if len(stands) > len(values):
            return f"{topic} has {len(stands)} records of the batch, it names {len(values)}"
        if first <= commit.after.get(topic, 0):
            return f"it begins at {topic} {first}, {commit.after[topic]} was acknowledged before it was asked for"
    return ""


def _check_answers(batch: SinkBatch, answers: list[SinkCommit], places: Places, observed: Observed) -> None:
    told = [answer for answer in answers if answer.ranges is not None]
    if sum(not answer.duplicate for answer in answers) > 1:
        raise Violation("BatchOnce", f"{batch} was committed for the first time twice: {answers}")
    for answer in told:
        if (answer.ranges, answer.index, answer.timestamp) != (told[0].ranges, told[0].index, told[0].timestamp):
            raise Violation("AnswersAgree", f"{batch}: {told[0]} and {answer}")
    for answer in told[:1]:
        ranges = {each.topic: (each.first_position, each.count) for each in answer.ranges or []}
        for topic, stands in places.items():
            first, count = ranges.get(topic, (0, 0))
            for position in stands:
                if not first <= position < first + count:
                    raise Violation("AnswersAgree", f"{batch} stands at {topic} {position}: {answer}")
                if observed.topics[topic][position][1] != answer.timestamp:
                    raise Violation("AnswersAgree", f"{topic} {position} is not of the time of {answer}")


def _check_order(places: Mapping[SinkBatch, Places]) -> None:
    latest: dict[tuple[str, str, str], tuple[int, SinkBatch]] = {}
    for batch in sorted(places, key=lambda each: each.number):
        for topic, stands in places[batch].items():
            before, earlier = latest.get((batch.sink, batch.owner, topic), (0, batch))
            if min(stands) < before:
                raise Violation("BatchesRise", f"{batch} stands at {topic} {min(stands)}, {earlier} at {before}")
            latest[batch.sink, batch.owner, topic] = max(stands), batch


def _check_ends(ends: list[tuple[str, int]], places: Mapping[SinkBatch, Places]) -> None:
    """Check the ends that one reader saw, in order: each is after the whole of a batch, or before all of it."""
    spans = {batch: {topic: (min(at), max(at)) for topic, at in topics.items()} for batch, topics in places.items()}
    latest: dict[str, int] = {}
    for topic, end in ends:
        latest[topic] = end
        for batch, span in spans.items():
            if topic not in span:
                continue
            first, last = span[topic]
            if first <= end < last:
                raise Violation("NeverInPart", f"{topic} ended at {end}, {batch} stands from {first} to {last}")
            for other, seen in latest.items():
                if other in span and other != topic and seen >= span[other][1] and end < first:
                    raise Violation(
                        "NeverInPart",
                        f"{batch} was in {other}, which ended at {seen}, and not yet in {topic}, which ended at {end}",
                    )


def _shown(places: Places) -> dict[str, tuple[int, int]]:
    return {topic: (min(stands), max(stands)) for topic, stands in places.items()}
