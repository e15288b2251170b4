"""Work and files of a keyed topic as it grows: ``python -m benchmarks.keyed [--plot docs/pictures/keyed.svg]``.

Records of 100 bytes with random keys, each of its own, are dumped by 10,000, and merged by the policy of
``streams/key_plan.py``, without a node. The figures after each doubling: how often each record was written again by
merges; the most runs until then; the median time of a get of a random key with a warm cache of descriptions and none of
groups, and the groups that it reads; the median time in which pyarrow reads the same groups of rows of an open file,
with its checksums and without one of ours, and does not make Python objects of them.

Expected: rewrites and runs grow by a constant when the records grow by a factor, because a merge raises four runs by
one level; and a get reads about one group, because the filters keep it from the other runs.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from statistics import median

from pyarrow import parquet

from benchmarks.report import print_json, print_table
from viewstamp.archive.key_store import KeyObjects
from viewstamp.archive.run_file import run_name
from viewstamp.archive.store import DirectoryObjects
from viewstamp.host.disk import RealDisk
from viewstamp.ids import ClusterId, Index, Position, RunId, Term, TopicId
from viewstamp.node.archive_queries import ArchivedRun
from viewstamp.node.keyed_archivist import WrittenKeys
from viewstamp.streams.key_plan import due_slices
from viewstamp.wire.batch import build_batch

_DUMP = 10_000
_GETS = 300
_TOPIC = TopicId(1)
_Run = tuple[ArchivedRun, int]


def run_of(number: int, first: int, end: int, written: WrittenKeys) -> _Run:
    """Return a committed run and the number of its rows."""
    run = ArchivedRun(
        RunId(number), _TOPIC, Position(first), Position(end), "committed", "", written.size, written.digest
    )
    return run, written.records


def dump(keys: KeyObjects, number: int, first: int, entropy: random.Random) -> _Run:
    """Dump records with random keys from a position on."""
    end = first + _DUMP
    batch = build_batch(
        [entropy.randbytes(84) for _ in range(_DUMP)],
        topic=_TOPIC,
        keys=[entropy.randbytes(16) for _ in range(_DUMP)],
    )
    batch.stamp(
        term=Term(1),
        first_index=Index(first),
        previous_term=Term(1),
        log_time=first,
        first_position=Position(first),
    )
    written = keys.begin_dump(RunId(number), _TOPIC, Position(first), Position(end))
    written.add(Position(end), [batch.buffer])
    return run_of(number, first, end, written.finish())


def merge(keys: KeyObjects, number: int, slices: list[_Run]) -> _Run:
    """Merge neighbouring runs, of which the first is the oldest one that there is, or not."""
    first, end = slices[0][0].first, slices[-1][0].end
    target = ArchivedRun(RunId(number), _TOPIC, first, end, "prepared", "", 0, b"")
    written = keys.begin_merge(
        target, [run for run, _ in slices], start=b"", end=None, is_oldest=first == 1, range_bytes=1 << 60
    )
    while written.step():
        pass
    return run_of(number, first, end, written.finish())


def measure(path: Path, doublings: int) -> list[dict[str, float]]:
    """Return the figures after 1, 2, 4, ... dumps."""
    entropy = random.Random(1)
    store = DirectoryObjects(RealDisk(), str(path))
    store.prepare("c1/")
    keys = KeyObjects(store, ClusterId("c1"))
    runs: list[_Run] = []
    rows: list[dict[str, float]] = []
    rewritten = ids = runs_max = 0
    seconds = 0.0
    base = 0
    for dumps in range(1, 2**doublings + 1):
        ids += 1
        began = time.process_time()
        runs.append(dump(keys, ids, (dumps - 1) * _DUMP + 1, entropy))
        base = base or runs[0][0].size
        while (due := due_slices([run.size for run, _ in runs], base + base // 10)) is not None:
            _, low, high = due
            ids += 1
            rewritten += sum(count for _, count in runs[low:high])
            runs[low:high] = [merge(keys, ids, runs[low:high])]
        seconds += time.process_time() - began
        runs_max = max(runs_max, len(runs))
        if dumps & (dumps - 1) == 0:
            some = [run for run, _ in runs]
            wanted = [keys._reader(entropy.choice(some))._starts[0] for _ in range(_GETS)]
            for key in wanted:
                keys.lookup(some, key)
            found, gets, bare = [], [], []
            files = {run.id: parquet.ParquetFile(path / run_name(ClusterId("c1"), run.id)) for run in some}
            for key in wanted:
                keys._groups.clear()
                keys._groups_bytes = 0
                began = time.perf_counter()
                found.append(keys.lookup(some, key))
                gets.append(time.perf_counter() - began)
                [(number, _, at)] = keys._groups
                began = time.perf_counter()
                files[RunId(number)].read_row_group(at)
                bare.append(time.perf_counter() - began)
            rows.append(
                {
                    "records": dumps * _DUMP,
                    "rewrites": round(rewritten / (dumps * _DUMP), 2),
                    "runs": runs_max,
                    "us_a_record": round(seconds * 1e6 / (dumps * _DUMP), 1),
                    "us_a_get": round(median(gets) * 1e6),
                    "us_arrow_group": round(median(bare) * 1e6),
                    "groups_a_get": round(sum(each.groups for each in found) / _GETS, 2),
                }
            )
    return rows


def plot(rows: list[dict[str, float]]) -> str:
    """Return an SVG: rewrites and runs over the records, whose axis is logarithmic."""
    width, height, left, top = 560, 240, 40, 24
    most = max(max(row["runs"], row["rewrites"]) for row in rows)

    def line(name: str, colour: str) -> str:
        step = (width - left - 130) / max(len(rows) - 1, 1)
        points = " ".join(
            f"{left + number * step:.1f},{top + (height - 2 * top) * (1 - row[name] / most):.1f}"
            for number, row in enumerate(rows)
        )
        last = points.split()[-1].split(",")
        return (
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
            f'<text x="{float(last[0]) + 6}" y="{float(last[1]) + 4}" fill="{colour}">{name}: {rows[-1][name]:g}</text>'
        )

    step = (width - left - 130) / max(len(rows) - 1, 1)
    ticks = "".join(
        f'<text x="{left + number * step:.1f}" y="{height - 6}" text-anchor="middle">{row["records"] / 1000:g}k</text>'
        for number, row in enumerate(rows)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"'
        ' font-size="10"><rect width="100%" height="100%" fill="white"/>'
        f'<path d="M{left} {top}V{height - top}H{width - 130}" fill="none" stroke="#999"/>'
        f'<text x="4" y="{top}">{most:g}</text><text x="4" y="{height - top}">0</text>{ticks}'
        f"{line('rewrites', '#1f6fb4')}{line('runs', '#d9730d')}</svg>\n"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--doublings", type=int, default=7, help="up to 10,000 times two to this power records")
    parser.add_argument("--plot", type=Path, help="an SVG to write")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as path:
        rows = measure(Path(path), given.doublings)
    if given.plot is not None:
        given.plot.write_text(plot(rows), encoding="utf-8")
    if given.output == "json":
        print_json(rows)
    else:
        print_table("a keyed topic as it grows", list(rows[0]), [list(row.values()) for row in rows])


if __name__ == "__main__":
    main()
