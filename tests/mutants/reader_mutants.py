"""Planted mistakes in reads of a topic with streams by position."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.archive import ordered_run
from viewstamp.cli import unordered
from viewstamp.client import archived_ranges, stream_ranges
from viewstamp.client.merge import Merge, Piece
from viewstamp.client.spread_reader import StreamPart
from viewstamp.client.stream_ranges import Place, StreamRange, StreamRanges
from viewstamp.errors import PeerError, RequestError, TrimmedError
from viewstamp.ids import GlobalPosition, Position
from viewstamp.node import ordered_reads
from viewstamp.node.order_queries import Cover, OrderTail
from viewstamp.node.placement_queries import SpreadTopicQuery
from viewstamp.node.reading import Reading
from viewstamp.node.service import Caller
from viewstamp.streams import state
from viewstamp.streams.cover import cover
from viewstamp.streams.stream_map import StreamMap
from viewstamp.streams.topic import Topic
from viewstamp.wire.batch import Buffer
from viewstamp.wire.spread_requests import ReadOrdered

__all__ = ["READER_MUTANTS"]


def reader_skips() -> AbstractContextManager[None]:
    """A reader goes on with the next position that it has."""
    original = Merge.take

    def take(self: Merge[object]) -> list[tuple[int, Piece[object]]]:
        if self._heads and not self.is_over:
            self.position = max(self.position, self._heads[0][0])
        return original(self)

    return patched(Merge, take=take)


def read_trimmed_as_pending() -> AbstractContextManager[None]:
    return patched(Merge, check=lambda self, lost=(0, 0): None)


def read_pending_as_trimmed() -> AbstractContextManager[None]:
    """A stream of which nothing is known yet counts as one without the position."""
    return patched(Merge, missing=property(lambda self: []))


def hold_without_a_share() -> AbstractContextManager[None]:
    """A reader asks for more of a stream while another one stands still."""
    return patched(
        Merge, wants=lambda self, stream, share: self.end is None or self.lanes[stream].covered_to < self.end
    )


def take_late_answers() -> AbstractContextManager[None]:
    """An answer that was asked before a skip counts from the position of the skip on."""
    original = Merge.put

    def put(
        self: Merge[object], stream: int, begin: GlobalPosition, pieces: list[Piece[object]], **more: object
    ) -> None:
        original(self, stream, self.lanes[stream].covered_to, pieces, **more)  # type: ignore[arg-type]

    return patched(Merge, put=put)


def skip_what_is_kept() -> AbstractContextManager[None]:
    """A lane that was asked from a position on takes the records below it for trimmed."""
    original = Merge.put

    def put(self: Merge[object], stream: int, *answer: Any, kept_from: GlobalPosition, **more: Any) -> None:
        original(self, stream, *answer, kept_from=kept_from, **more)
        self.lanes[stream].kept_from = max(self.lanes[stream].kept_from, kept_from)

    return patched(Merge, put=put)


def _covering(change_tail: bool, change_topic: bool) -> AbstractContextManager[None]:
    def covered(
        topic: Topic, found: StreamMap | None, tail: OrderTail, position: GlobalPosition, runs_max: int
    ) -> Cover | None:
        if change_tail:
            tail = replace(tail, forgotten=Position(1))
        answer = cover(topic, found, tail, position, runs_max)
        if change_topic and answer is not None:
            return replace(answer, known_to=max(answer.known_to, tail.next_position))
        return answer

    return patched(state, cover=covered)


def cover_without_forgotten_runs() -> AbstractContextManager[None]:
    """A node answers whose state of the group lacks runs that group 0 has forgotten."""
    return _covering(change_tail=True, change_topic=False)


def cover_to_the_end_of_the_order() -> AbstractContextManager[None]:
    """A node says that it has all records that have a position, although it lacks some of them."""
    return _covering(change_tail=False, change_topic=True)


def cover_what_is_cut() -> AbstractContextManager[None]:
    """An answer that is cut because of its size covers what was cut off."""
    return patched(Cover, known_at=lambda self, end: self.known_to)


def trim_the_last_run() -> AbstractContextManager[None]:
    """A trim drops the run of the last trimmed record, so nobody knows where the trimmed records end."""
    original = StreamMap.trim
    return patched(StreamMap, trim=lambda self, position: original(self, Position(position + 1)))


def send_large_batches_ahead() -> AbstractContextManager[None]:
    """A node sends the first batch at any size, although its records are not the next ones of the reader."""
    original = ordered_reads._read

    async def read(
        own: Reading, cover: Cover, asked: ReadOrdered, batch_bytes_max: int
    ) -> tuple[list[Buffer], Position]:
        return await original(own, cover, replace(asked, needed=cover.known_at(cover.start)), batch_bytes_max)

    return patched(ordered_reads, _read=read)


def refuse_added_streams() -> AbstractContextManager[None]:
    """A node refuses a stream that the state of group 0 does not have here, although that may lag."""
    original = ordered_reads._cover

    def cover_of(caller: Caller, asked: ReadOrdered, home: Reading, own: Reading) -> Cover | None:
        if asked.stream > len(home.query_now(SpreadTopicQuery(asked.name)).groups):
            raise RequestError(f"there is no stream {asked.stream}", remedy="name another one")
        return original(caller, asked, home, own)

    return patched(ordered_reads, _cover=cover_of)


def range_without_count() -> AbstractContextManager[None]:
    """A range is read although its streams have fewer records than it has positions."""
    original = stream_ranges.divide

    def divide(topic: str, start: int, end: int, at_start: Any, at_end: Any) -> list[StreamRange]:
        try:
            return original(topic, start, end, at_start, at_end)
        except (TrimmedError, PeerError):
            return []

    return patched(stream_ranges, divide=divide)


def read_whole_runs_of_streams() -> AbstractContextManager[None]:
    """A piece of the run of a stream is the whole run, so records are read twice, or although nobody asked for them."""
    original = archived_ranges.divide_by_runs

    def divide(topic: str, part: StreamRange, runs: Any) -> Any:
        pieces, rest = original(topic, part, runs)
        whole = [
            (replace(piece, first=run.first_position, last_end=run.last_position + 1), run) for piece, run in pieces
        ]
        return whole, rest

    return everywhere(original, divide)


def end_with_the_runs_of_streams() -> AbstractContextManager[None]:
    """Of a part with runs, the records that are in the log only are left out."""
    original = archived_ranges.divide_by_runs

    def divide(topic: str, part: StreamRange, runs: Any) -> Any:
        pieces, rest = original(topic, part, runs)
        return pieces, [] if pieces else rest

    return everywhere(original, divide)


def take_positions_of_the_stream() -> AbstractContextManager[None]:
    """The records of the run of a stream have their positions in the stream."""

    def read(reader: Any, part: StreamRange, name: str) -> Any:
        ordered_run.order_of(reader, part, name)
        yield from reader.read(part.first, part.last_end)

    return everywhere(ordered_run.read_ordered, read)


def believe_the_order_of_a_run() -> AbstractContextManager[None]:
    """A file whose records are at other positions than those of the plan is read."""
    return everywhere(ordered_run.order_of, lambda reader, part, name: reader.footer.read_order(name))


def skip_trimmed_places() -> AbstractContextManager[None]:
    """The first record behind the trimmed ones counts as the first one of the range."""
    original = StreamRanges._find

    async def find(self: StreamRanges, found: Any, stream: int, position: int) -> Place:
        place = await original(self, found, stream, position)
        return place if place.local is not None else await find(self, found, stream, place.kept_from)

    return patched(StreamRanges, _find=find)


def part_ends_early() -> AbstractContextManager[None]:
    """A task passes over the records that a node did not send."""
    original = StreamRanges.read

    async def read(self: StreamRanges, topic: str, part: StreamRange) -> AsyncGenerator[Sequence[StreamPart], None]:
        with suppress(PeerError):
            async for chunk in original(self, topic, part):
                yield chunk

    return patched(StreamRanges, read=read)


def read_without_waiting() -> AbstractContextManager[None]:
    """A command that reads does not wait for the positions of the records that were appended before."""

    async def wait(client: Any, topic: str, seconds: float = 2.0) -> int:
        return 0

    return everywhere(unordered.wait_for_positions, wait)


READER_MUTANTS = {
    name: Mutant(name, mistake, plant, rule="§7")
    for name, mistake, plant in (
        ("reader-skips", "a reader goes on with the next position that it has", reader_skips),
        ("read-trimmed-as-pending", "a reader waits for ever for a trimmed position", read_trimmed_as_pending),
        (
            "read-pending-as-trimmed",
            "a reader takes a record that is still to come for trimmed",
            read_pending_as_trimmed,
        ),
        ("hold-without-a-share", "a slow stream makes a reader hold all records of the others", hold_without_a_share),
        ("skip-what-is-kept", "a reader goes on behind records that are kept", skip_what_is_kept),
        ("take-late-answers", "an answer from before a skip hides records behind it", take_late_answers),
        (
            "cover-without-forgotten-runs",
            "a node that lags answers although it lacks runs that group 0 has forgotten",
            cover_without_forgotten_runs,
        ),
        (
            "cover-to-the-end-of-the-order",
            "a node that lacks records says that it has sent them all",
            cover_to_the_end_of_the_order,
        ),
        ("cover-what-is-cut", "an answer covers the records that were cut off", cover_what_is_cut),
        (
            "send-large-batches-ahead",
            "a node sends a large batch of each stream, also if the reader needs another one first",
            send_large_batches_ahead,
        ),
        (
            "refuse-added-streams",
            "a node refuses to read a stream that its state of group 0 does not have yet",
            refuse_added_streams,
        ),
        ("range-without-count", "a range is read although positions of it are missing", range_without_count),
        ("skip-trimmed-places", "a range begins behind its trimmed records", skip_trimmed_places),
        ("part-ends-early", "a task passes over records that a node did not send", part_ends_early),
        ("read-whole-runs-of-streams", "records of the run of a stream are read twice", read_whole_runs_of_streams),
        ("end-with-the-runs-of-streams", "records that are not archived are left out", end_with_the_runs_of_streams),
        ("take-positions-of-the-stream", "a record has its position in the stream", take_positions_of_the_stream),
        ("believe-the-order-of-a-run", "a record is read at a position of another one", believe_the_order_of_a_run),
        ("read-without-waiting", "a command does not read what was appended before it", read_without_waiting),
        ("trim-the-last-run", "nobody knows where the trimmed records of a stream end", trim_the_last_run),
    )
}
"""The mutants by name."""
