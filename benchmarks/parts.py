"""How long does each part of an append take by itself, with warm caches?

Each part runs repeatedly in one process, and the result is the fastest of many short runs, because other work on the
processor and its caches only adds time. ``benchmarks/rounds.py`` measures the same work in a running cluster. The
difference between the two is not in any one part.

Expected: a Python call takes 0.05 to 0.1 us, a checksum of 300 bytes 0.2, packing or unpacking a small map 0.5. So
each part should take 1 to 3 us.
"""

from __future__ import annotations

import argparse
import timeit
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgpack

from benchmarks.report import print_json, print_table
from benchmarks.rows.appends import VALUE
from viewstamp.bench.conditions import conditions
from viewstamp.host.clock import RealClock
from viewstamp.ids import Index, Position, Sequence, SessionId, Term, TopicId
from viewstamp.node.applier import Applier
from viewstamp.streams import Streams
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.frame import FrameDecoder, FrameKind, encode_frame

_RUNS, _LOOPS = 100, 100
_ANSWER = {"id": 12_345, "receipt": [123_456, 1, 3, 123_456, 1_700_000_000_000_000]}


def best_us(part: Callable[[], object]) -> float:
    """Return the microseconds of one call in the fastest run."""
    return min(timeit.repeat(part, number=_LOOPS, repeat=_RUNS)) / _LOOPS * 1e6


class Log:
    """Stamps batches one after the other, like a leader."""

    def __init__(self) -> None:
        self.end = 1

    def stamp(self, batch: Batch, position: int = 0) -> Batch:
        """Stamp a batch with the next index and return it."""
        batch.stamp(
            term=Term(1),
            first_index=Index(self.end),
            previous_term=Term(1),
            log_time=self.end,
            first_position=Position(position),
        )
        self.end = batch.end
        return batch


def measure() -> dict[str, float]:
    """Measure each part; return its microseconds by its name."""
    machine, log = Streams(), Log()
    applier = Applier(machine, RealClock())

    def decide(batch: Batch) -> dict[str, object]:
        return cast("dict[str, object]", machine.apply(log.stamp(batch)))

    session = SessionId(cast(int, decide(build_batch([b""], kind=Kind.OPEN_SESSION))["session"]))
    created = decide(build_batch([msgpack.packb({"name": "parts"})], kind=Kind.CREATE_TOPIC))
    topic = TopicId(cast("dict[str, int]", created["topic"])["id"])
    applier.applied_end = Index(log.end)

    def batch(sequence: int) -> Batch:
        return build_batch([VALUE], topic=topic, session=session, sequence=Sequence(sequence))

    count = _RUNS * _LOOPS
    applied = deque([log.stamp(batch(number), number) for number in range(1, count + 1)])
    raw = bytes(batch(1).buffer)
    request = b"".join(encode_frame(FrameKind.APPEND, {"id": 12_345}, [raw]))
    answer = b"".join(encode_frame(FrameKind.OK, _ANSWER))
    decoder = FrameDecoder()
    parts: dict[str, Callable[[], object]] = {
        "caller: build a batch of one record": lambda: batch(1),
        "caller: make the request's frame": lambda: encode_frame(FrameKind.APPEND, {"id": 12_345}, [raw]),
        "leader: read the request's frame": lambda: decoder.feed(request),
        "each node: read and check a batch": lambda: Batch.decode(raw),
        "each node: apply a batch": lambda: applier.apply_to(applied, applied[0].end),
        "leader: make the response's frame": lambda: encode_frame(FrameKind.OK, _ANSWER),
        "caller: read the response's frame": lambda: decoder.feed(answer),
    }
    figures = {name: round(best_us(part), 2) for name, part in parts.items()}
    machine.begin_leading()
    admitted = iter([batch(number) for number in range(count + 1, 2 * count + 1)])
    figures["leader: admit a batch"] = round(best_us(lambda: machine.admit(next(admitted))), 2)
    return figures


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", choices=["table", "json"], default="table")
    options = parser.parse_args()
    result = {**conditions(Path.cwd()), "us": measure()}
    if options.output == "json":
        print_json(result)
        return
    print(__doc__)
    figures = cast("dict[str, float]", result.pop("us"))
    print_table("the fastest of many runs", ["", "us"], [[name, value] for name, value in figures.items()])
    print_table("", ["", "conditions"], [[name.replace("_", " "), str(value)] for name, value in result.items()])


if __name__ == "__main__":
    main()
