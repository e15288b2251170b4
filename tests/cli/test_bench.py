"""`viewstamp bench` reports its own work correctly: real nodes, for fractions of a second. Speed is not asserted."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import none_left
from viewstamp.bench.histogram import Histogram
from viewstamp.bench.load import Figures
from viewstamp.bench.plot import curve
from viewstamp.bench.report import print_result
from viewstamp.cli import main
from viewstamp.cli.bench.failover import lost_and_duplicated
from viewstamp.terminal.output import Output

LATENCIES = ["p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms"]
Bench = Callable[..., Any]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Bench:
    """Run a benchmark in an empty directory, which must stay empty; return its JSON output, or its error."""
    monkeypatch.chdir(tmp_path)

    def bench(*arguments: str, code: int = 0) -> Any:
        before = sorted(tmp_path.iterdir())
        assert main.run(["bench", *arguments, "--output", "json"]) == code, capfd.readouterr().err
        printed = capfd.readouterr()
        left = sorted(path for path in tmp_path.iterdir() if path.suffix != ".png")
        assert left == before
        return json.loads(printed.err if code else printed.out)

    return bench


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = str(tmp_path_factory.mktemp("bench") / "cluster")
    with none_left(Path(directory)):
        assert main.run(["cluster", "start", "--dir", directory]) == 0
        yield directory


def rises(values: list[float]) -> bool:
    return values == sorted(values) and values[0] > 0


@pytest.mark.slow
def test_append_over_several_sessions_reports_its_conditions_and_draws_a_plot(
    bench: Bench, cluster: str, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    found = bench(
        *("append", "--dir", cluster, "--callers", "6", "--sessions", "3", "--bytes", "100", "--seconds", "0.2"),
        *("--plot", "latencies.png"),
    )
    assert (found["callers"], found["sessions"], found["in_flight"], found["bytes"]) == (6, 3, 6, 100)
    assert (found["durability"], found["embedded"]) == ("majority, synced", False)
    assert found["filesystem"] != "unknown"
    assert rises([found[name] for name in LATENCIES])
    assert found["megabytes_per_second"] == pytest.approx(found["appends_per_second"] * 100 / 1e6, abs=0.001)
    assert found["client_cores"] > 0
    assert (tmp_path / "latencies.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--stale"]])
def test_read_returns_as_many_records_as_were_appended(bench: Bench, cluster: str, more: list[str]) -> None:
    found = bench("read", "--dir", cluster, "--records", "500", "--bytes", "50", "--seconds", "0.5", *more)
    scan, last = found["scan"], found["last"]
    assert scan["records"] == 500 * scan["scans"] > 0
    assert scan["megabytes_per_second"] == pytest.approx(scan["records_per_second"] * 50 / 1e6, abs=0.001)
    assert last["reads_per_second"] > 0
    assert rises([last[name] for name in LATENCIES])
    assert (found["records"], found["bytes"], found["stale"]) == (500, 50, bool(more))
    assert found["durability"] == "majority, synced"


@pytest.mark.slow
def test_failover_kills_a_leader_and_loses_no_acknowledged_record(bench: Bench) -> None:
    found = bench("failover", "--times", "1", "--seconds", "0.1", "--load", "2")
    (one,) = found["failovers"]
    assert one["killed"] != one["leader"]
    assert found["median_ms"] == found["worst_ms"] == one["milliseconds"] > 0
    assert one["terms"] >= 1
    assert one["back_seconds"] > 0
    assert (found["lost"], found["duplicated"]) == (0, 0)
    assert found["acknowledged"] > 0
    assert (found["load"], found["load_appends"] > 0) == (2, True)
    assert found["needless_elections"] >= 0
    assert found["durability"] == "majority, synced"


@pytest.mark.slow
def test_restart_kills_all_nodes_and_recovers_all_records(bench: Bench) -> None:
    found = bench("restart", "--records", "700", "--bytes", "100")
    (restart,) = found["restarts"]
    assert rises(list(restart.values()))
    assert list(restart) == ["process_seconds", "recovered_seconds", "elected_seconds", "first_write_seconds"]
    assert found["median_seconds"] == found["worst_seconds"] == restart["first_write_seconds"]
    assert (found["records"], found["bytes"], found["lost"]) == (700, 100, 0)
    assert found["durability"] == "majority, synced"


@pytest.mark.slow
def test_wal_is_measured_with_large_commits_and_with_many_callers(bench: Bench) -> None:
    found = bench("wal", "--records", "10", "--callers", "5", "--bytes", "40", "--seconds", "0.1")
    assert found["durability"] == "this disk, synced"
    for name, callers, records in (("commits", 1, 10), ("callers", 5, 1)):
        part = found[name]
        assert (part["callers"], part["records_per_commit"]) == (callers, records)
        assert rises([part[each] for each in LATENCIES])
        assert part["megabytes_per_second"] == pytest.approx(part["records_per_second"] * 40 / 1e6, abs=0.001)
        assert part["syncs_per_second"] > 0
    # One caller that waits for each of its commits has a sync for each; a commit at the edge of the run may not count.
    commits = found["commits"]
    assert commits["syncs_per_second"] == pytest.approx(commits["records_per_second"] / 10, abs=3 / 0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["append", "--sessions", "65"], "fewer than one for each session"),
        (["append", "--sessions", "2", "--in-flight", "1"], "fewer than one for each session"),
        (["append", "--sessions", "2", "--embedded"], "an embedded node has one session"),
        (["append", "--plot", "no/such/folder.png"], "cannot be written"),
        (["read", "--plot", "."], "cannot be written"),
    ],
)
def test_impossible_options_are_rejected_before_a_process_starts(
    bench: Bench, arguments: list[str], message: str
) -> None:
    pytest.importorskip("matplotlib")
    error = bench(*arguments, code=2)
    assert message in error["message"]
    assert error["remedy"]


def test_plot_without_matplotlib_is_rejected(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    error = bench("wal", "--plot", "x.png", code=2)
    assert error["message"] == "--plot needs matplotlib, not installed here"
    assert "viewstamp[plot]" in error["remedy"]


def test_lost_and_duplicated_records_are_counted() -> None:
    assert lost_and_duplicated(4, [0, 1, 2, 3]) == (0, 0)
    assert lost_and_duplicated(4, [0, 2, 2, 2, 4]) == (2, 2)


def test_latency_curve_has_a_point_for_each_nine_and_ends_with_the_longest_call() -> None:
    nines, milliseconds = curve(Figures(Histogram(map(float, range(1, 1001))), 1.0, 0.0))
    at = dict(zip(nines, milliseconds, strict=True))
    assert [at[0.0], at[1.0], at[2.0], at[3.0]] == pytest.approx([1.0, 900.0, 990.0, 1000.0], rel=0.006)
    assert nines[-1] == 3.0
    assert curve(Figures(Histogram([7.0]), 1.0, 0.0)) == ([0.0], [7.0])
    assert curve(Figures(Histogram(), 1.0, 0.0)) == ([], [])


@pytest.mark.parametrize(
    ("cores", "is_apart", "warned"), [(0.95, True, True), (0.95, False, False), (0.5, True, False)]
)
def test_callers_that_use_a_whole_core_are_reported(
    capsys: pytest.CaptureFixture[str], cores: float, is_apart: bool, warned: bool
) -> None:
    print_result({"last": {"client_cores": cores}, "bytes": 1}, Output.TABLE, is_apart=is_apart)
    assert ("the callers of last used 0.95 cores" in capsys.readouterr().err) == warned


@pytest.mark.parametrize(("filesystem", "warned"), [("tmpfs", True), ("ext4", False)])
def test_memory_filesystem_is_warned_of(capsys: pytest.CaptureFixture[str], filesystem: str, warned: bool) -> None:
    print_result({"filesystem": filesystem}, Output.JSON)
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"filesystem": filesystem}
    assert ("MEMORY, NOT A DISK" in captured.err) == warned
