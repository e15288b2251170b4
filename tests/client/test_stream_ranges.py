"""The plan of a range of a topic with streams: which records it has, and when it is not complete."""

from __future__ import annotations

import itertools
import random

import pytest

from viewstamp.client import stream_ranges
from viewstamp.client.stream_ranges import Place, StreamRange
from viewstamp.errors import PeerError, TrimmedError


class Streams:
    """A topic of three streams: the stream of each position, and what was trimmed of each stream."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.order = [self.dice.choice([1, 1, 2, 3]) for _ in range(self.dice.randint(1, 40))]
        self.places: list[tuple[int, int]] = []
        counts = {1: 0, 2: 0, 3: 0}
        for stream in self.order:
            counts[stream] += 1
            self.places.append((stream, counts[stream]))
        self.ends = {stream: count + 1 for stream, count in counts.items()}
        self.kept = dict.fromkeys(self.ends, 1)
        for stream, end in self.ends.items():
            if self.dice.random() < 0.4:
                self.kept[stream] = self.dice.randint(1, end)

    @property
    def end(self) -> int:
        return len(self.order) + 1

    def place(self, stream: int, position: int) -> Place:
        """Return what a node answers."""
        for own, local in self.places[position - 1 :]:
            if own == stream:
                if local >= self.kept[stream]:
                    return Place(local)
                behind = [at for at, place in enumerate(self.places, 1) if place == (stream, self.kept[stream] - 1)]
                return Place(None, behind[0] + 1)
        return Place(self.ends[stream])

    def all(self, position: int) -> list[Place]:
        return [self.place(stream, position) for stream in (1, 2, 3)]

    def records(self, part: StreamRange) -> list[int]:
        """Return the positions of the records of a part, as its places say."""
        wanted = range(part.first, part.last_end)
        found = [at for at, (own, local) in enumerate(self.places, 1) if own == part.stream and local in wanted]
        assert all(part.start <= position < part.end for position in found), f"{part} has {found}"
        return found


TOPICS = [Streams(seed) for seed in range(40)]


def test_a_range_is_complete_or_says_what_was_trimmed() -> None:
    bounds = [(topic, *ends) for topic in TOPICS for ends in itertools.combinations(range(1, topic.end + 1), 2)]
    for topic, start, end in bounds:
        lost = [at for at, (own, local) in enumerate(topic.places, 1) if local < topic.kept[own] and start <= at < end]
        given = ("orders", start, end, topic.all(start), topic.all(end))
        if lost:
            with pytest.raises(TrimmedError) as caught:
                stream_ranges.divide(*given)
            first = caught.value.first
            assert lost[-1] < first
            assert all(local >= topic.kept[own] for own, local in topic.places[first - 1 :])
        else:
            found = stream_ranges.divide(*given)
            assert sorted(at for part in found for at in topic.records(part)) == list(range(start, end))
            assert all(part.records for part in found)


def test_a_part_is_cut_into_pieces_with_all_of_its_records() -> None:
    parts = [
        (topic, StreamRange(stream, 1, topic.end, 1, last_end))
        for topic in TOPICS
        for stream, last_end in topic.ends.items()
        if last_end > 1
    ]
    for topic, part in parts:
        positions = sorted(topic.dice.sample(range(2, topic.end), min(topic.end - 2, 3)))
        answers = [(at, topic.place(part.stream, at).local) for at in positions]
        pieces = stream_ranges.cut_at("orders", part, answers)
        if any(local is None for _, local in answers):
            assert pieces == []
        else:
            assert [at for piece in pieces for at in topic.records(piece)] == topic.records(part)


@pytest.mark.parametrize(
    ("at_start", "at_end"),
    [
        ([Place(1), Place(1)], [Place(3), Place(2)]),  # A position of no stream.
        ([Place(1), Place(1)], [Place(4), Place(3)]),  # A position of two streams.
        ([Place(3), Place(1)], [Place(2), Place(6)]),  # A stream that goes back.
        ([Place(None, 9), Place(1)], [Place(None, 9), Place(7)]),  # A position of two streams, and one was trimmed.
    ],
)
def test_places_that_contradict_each_other_are_an_error(at_start: list[Place], at_end: list[Place]) -> None:
    with pytest.raises(PeerError, match="do not have one record at each of the positions 1 to 4"):
        stream_ranges.divide("orders", 1, 5, at_start, at_end)


@pytest.mark.parametrize("place", [(3, 9), (3, 4), (3, 11)])
def test_a_cut_that_contradicts_its_part_is_an_error(place: tuple[int, int]) -> None:
    with pytest.raises(PeerError, match="stream 2 of topic 'orders' is at record"):
        stream_ranges.cut_at("orders", StreamRange(2, 1, 5, 5, 8), [place])
