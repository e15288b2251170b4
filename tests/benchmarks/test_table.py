"""The rules by which the table follows from the figures; no server runs here."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from benchmarks import results
from benchmarks.__main__ import main
from benchmarks.chart import draw, series
from benchmarks.peers.peer import Peer
from benchmarks.rows import NAMES, Goal, Options, Row, RowResult, Subject
from benchmarks.rows.row import as_json
from benchmarks.rows.turns import Contender, Side, Turn, alternate, running, take_turns
from benchmarks.table import details_markdown, goal_lines, goals_markdown, print_details, print_goals, subject_lines
from viewstamp.bench.load import keep_going


async def never(options: Options, directory: Path) -> RowResult:
    raise AssertionError("nothing is measured here")


def a_row(*goals: Goal, unit: str = "/s") -> Row:
    return Row(name="append-64", title="64 callers", unit=unit, goals=goals, measure=never, compares="records")


def a_record(*goals: Goal, subjects: list[Subject], **more: object) -> results.Record:
    return {"date": "2026-01-02", "commit": "abc1234", **as_json(a_row(*goals), RowResult(subjects=subjects)), **more}


FASTER = Goal(subject="viewstamp", peer="NATS", at_least=4.0)


def test_a_ratio_is_the_median_of_the_turns_ratios_and_not_the_ratio_of_medians() -> None:
    """15 slow seconds of the machine affect both sides of one turn, so the ratio of that turn stays the same."""
    ours = Subject(name="viewstamp", turns=[500.0, 50.0, 420.0])
    peer = Subject(name="NATS", turns=[100.0, 10.0, 100.0])
    (ratio,) = a_row(FASTER).compare(RowResult(subjects=[ours, peer]))
    assert ratio.turns == (5.0, 5.0, 4.2)
    assert ratio.found == 5.0
    assert ratio.is_reached is True


def test_turns_without_a_partner_and_turns_of_nothing_are_left_out() -> None:
    ours = Subject(name="viewstamp", turns=[300.0, 500.0, 1.0])
    peer = Subject(name="NATS", turns=[0.0, 100.0])
    (ratio,) = a_row(FASTER).compare(RowResult(subjects=[ours, peer]))
    assert ratio.turns == (5.0,)


@pytest.mark.parametrize(
    ("goal", "found", "reached"),
    [
        (Goal(subject="a", at_least=4.0), 4.0, True),
        (Goal(subject="a", at_least=4.0), 3.99, False),
        (Goal(subject="a", at_most=300.0), 300.0, True),
        (Goal(subject="a", at_most=300.0), 301.0, False),
        (Goal(subject="a", at_most=0.0), 0.0, True),
        (Goal(subject="a", at_most=0.0), 1.0, False),
    ],
)
def test_a_bound_is_reached_by_what_equals_it(goal: Goal, found: float, reached: bool) -> None:
    (ratio,) = a_row(goal).compare(RowResult(subjects=[Subject(name="a", turns=[found])]))
    assert ratio.found == found
    assert ratio.is_reached is reached


def test_a_goal_bounds_one_side() -> None:
    with pytest.raises(AssertionError, match="one side"):
        Goal(subject="a")
    with pytest.raises(AssertionError, match="one side"):
        Goal(subject="a", at_least=1.0, at_most=2.0)


def test_a_peer_that_was_left_out_is_neither_reached_nor_missed() -> None:
    record = a_record(FASTER, subjects=[Subject(name="viewstamp", turns=[500.0])])
    assert record["ratios"][0]["reached"] is None
    assert goal_lines([record]) == [
        ("64 callers", "500/s", "NATS: -", "-", ">= 4 x", "-", "", ""),
    ]


def test_a_line_says_who_was_compared_and_whose_client_had_no_more_to_give() -> None:
    record = a_record(
        FASTER,
        Goal(subject="viewstamp, 8 sessions", at_most=20000.0),
        subjects=[
            Subject(name="viewstamp", turns=[45000.0], client_cores=0.97, cpu_us=30.0),
            Subject(name="viewstamp, 8 sessions", turns=[20001.0]),
            Subject(name="NATS", turns=[9000.0], client_cores=0.9, cpu_us=60.0),
        ],
    )
    assert goal_lines([record]) == [
        ("64 callers", "45,000/s", "NATS: 9,000/s", "5 x", ">= 4 x", "yes", "0.50 x", "both"),
        ("  8 sessions", "20,001/s", "", "", "<= 20,000/s", "NO", "", ""),
    ]


def test_a_row_of_several_kinds_has_its_work_on_a_line_of_its_own() -> None:
    goals = [Goal(subject=f"viewstamp, {count} sessions", at_least=1.0) for count in (8, 64)]
    record = a_record(*goals, subjects=[Subject(name=goal.subject, turns=[9.0]) for goal in goals])
    assert [line[:2] for line in goal_lines([record])] == [
        ("64 callers", ""),
        ("  8 sessions", "9/s"),
        ("  64 sessions", "9/s"),
    ]


def test_details_show_each_subject_with_its_client_and_its_durability() -> None:
    ours = Subject(name="viewstamp", turns=[9.0, 11.0, 10.0], p50_ms=1.25, durability="majority, synced", client="own")
    peer = Subject(name="NATS", turns=[4.0], client_cores=0.95, durability="always", client="by hand", note="busy")
    other = Subject(name="memory", turns=[3.5], unit="MB")
    assert subject_lines(a_record(subjects=[ours, peer, other])) == [
        ("viewstamp", "10/s", "", "", "1.25", "", "", "own", "majority, synced"),
        ("NATS", "4/s", "2.50 x", "", "", "", "0.95, the limit", "by hand; busy", "always"),
        ("memory", "3.50 MB", "", "", "", "", "", "", ""),
    ]


def test_a_peer_is_set_beside_ours_of_the_same_kind() -> None:
    names = {"viewstamp, idle": 70.0, "viewstamp, busy": 140.0, "etcd, idle": 50.0, "etcd, busy": 280.0, "other": 35.0}
    record = a_record(subjects=[Subject(name=name, turns=[value]) for name, value in names.items()])
    assert [line[2] for line in subject_lines(record)] == ["", "", "1.40 x", "0.50 x", "2 x"]


def test_tables_fit_a_terminal_of_120_columns() -> None:
    subjects = [Subject(name="viewstamp, 64 sessions", turns=[123456.0], client_cores=0.99, client="word " * 20)]
    subjects += [Subject(name="NATS JetStream", turns=[12345.0], durability="R3, file, sync_interval: always " * 3)]
    goal = Goal(subject="viewstamp, 64 sessions", peer="NATS JetStream", at_least=3.5)
    record = a_record(goal, subjects=subjects, machine="a processor of a long name, 2 cores, Linux " * 3)
    console = Console(width=120, file=io.StringIO())
    print_details(record, console)
    print_goals([record], console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= 120
    assert "123,456/s" in text
    assert "3.50 x" in text


def test_results_are_kept_a_line_a_run_and_read_oldest_first(tmp_path: Path) -> None:
    for date in ("2026-03-01", "2026-02-01"):
        results.keep(a_record(FASTER, subjects=[Subject(name="viewstamp", turns=[1.0])], date=date), tmp_path)
    assert [record["date"] for record in results.read("append-64", tmp_path)] == ["2026-02-01", "2026-03-01"]
    assert results.read("memory", tmp_path) == []
    assert [record["date"] for record in results.newest(tmp_path)] == ["2026-03-01"]


def test_a_line_of_before_and_a_line_cut_short_spoil_nothing(tmp_path: Path) -> None:
    """The files of results may contain lines of older versions of the program, or end in a line that was cut short."""
    old = {"row": "append-64", "date": "2025-01-01", "ratios": [{"name": "a / b", "found": 2.0}], "subjects": []}
    (tmp_path / "append-64.jsonl").write_text(f'{json.dumps(old)}\n{{"row": "append-64", "da\n[]\n{{}}\n')
    found = results.read("append-64", tmp_path)
    assert found == [{"row": "append-64"}, old]
    assert goal_lines([old])[0][:2] == ("append-64", "-")
    assert "append-64" in goals_markdown(found)
    assert "append-64" in details_markdown(found)
    assert series(found) == (["", ""], {})


def test_the_page_keeps_what_stands_around_the_table() -> None:
    page = f"# Title\n\n{results.BEGINS}\nold\n{results.ENDS}\n\n## Below\n"
    once = results.between_marks(page, "| new |\n")
    assert once == f"# Title\n\n{results.BEGINS}\n\n| new |\n\n{results.ENDS}\n\n## Below\n"
    assert results.between_marks(once, "| new |") == once
    with pytest.raises(ValueError, match="begins"):
        results.between_marks("# Title", "text")


def test_the_pages_have_their_marks_and_the_newest_results() -> None:
    for page, write in results.PAGES.items():
        text = page.read_text(encoding="utf-8")
        assert results.between_marks(text, write(results.newest())) == text


def test_markdown_has_as_many_cells_in_each_line_as_in_its_head() -> None:
    subjects = [Subject(name="viewstamp", turns=[5.0], client="this | that"), Subject(name="NATS", turns=[1.0])]
    records = [a_record(FASTER, subjects=subjects)]
    blocks = f"{goals_markdown(records)}\n\n{details_markdown(records)}".split("\n\n")
    tables = [block.splitlines() for block in blocks if block.startswith("|")]
    assert len(tables) == 2
    for table in tables:
        assert {line.count("|") for line in table} == {table[0].count("|")}


def test_the_chart_draws_shares_of_goals_so_that_higher_is_always_better() -> None:
    goals = [FASTER, Goal(subject="viewstamp", at_most=300.0), Goal(subject="elections", at_most=0.0)]
    subjects = [Subject(name="viewstamp", turns=[600.0]), Subject(name="NATS", turns=[100.0])]
    first = a_record(*goals, subjects=[*subjects, Subject(name="elections", turns=[0.0])])
    second = a_record(*goals, subjects=subjects[:1], commit="def5678 and changes")
    assert series([first, second]) == (
        ["abc1234", "def5678"],
        {"viewstamp / NATS": [1.5, None], "viewstamp": [0.5, 0.5]},
    )


def test_the_chart_is_a_small_picture_with_a_panel_for_each_row() -> None:
    subjects = [Subject(name="viewstamp", turns=[600.0]), Subject(name="NATS", turns=[100.0])]
    goals = [Goal(subject="viewstamp", peer="NATS", at_least=bound) for bound in (2.0, 4.0, 8.0)]
    picture = draw({name: [a_record(*goals, subjects=subjects)] * 40 for name in NAMES})
    assert len(picture) < 60_000
    tags = [each.tag.rpartition("}")[2] for each in ElementTree.fromstring(picture).iter()]
    assert tags.count("g") == len(NAMES)
    assert tags.count("polyline") == len(NAMES)  # The three goals have the same name, so they are one line.


def options(**more: object) -> Options:
    said: list[str] = []
    return Options(**{"seconds": 1.0, "rounds": 2, "say": said.append, **more})  # type: ignore[arg-type]


class Nobody(Peer):
    """A peer without servers, for the decisions before a server starts."""

    name = "nobody"

    def __init__(self, why_not: str = "", error: Exception | None = None) -> None:
        self.why_not, self.error, self.stopped = why_not, error, 0

    def absent(self) -> str:
        return self.why_not

    async def start(self, directory: Path) -> None:
        if self.error is not None:
            raise self.error

    async def connect_to(self, server: str):  # type: ignore[no-untyped-def]
        raise AssertionError("nobody connects")

    def pids(self) -> dict[str, int]:
        return {}

    async def leader(self) -> str:
        return ""

    async def kill(self, server: str) -> None:
        raise AssertionError("there is nobody")

    async def start_again(self) -> None:
        raise AssertionError("there is nobody")

    async def stop(self) -> None:
        self.stopped += 1


async def test_what_is_not_installed_is_left_out_with_its_reason(tmp_path: Path) -> None:
    result = RowResult(subjects=[])
    async with running(Nobody("not on the PATH"), tmp_path, options(), result) as runs:
        assert not runs
    assert (result.left_out, result.failed) == (["nobody: not on the PATH"], [])


async def test_what_does_not_start_has_failed_and_is_stopped(tmp_path: Path) -> None:
    result, peer = RowResult(subjects=[]), Nobody(error=OSError("no port"))
    async with running(peer, tmp_path, options(), result) as runs:
        assert not runs
    assert (result.left_out, result.failed, peer.stopped) == ([], ["nobody: no port"], 1)


async def test_contenders_take_turns_and_one_that_fails_costs_no_other_its_figures() -> None:
    order: list[str] = []

    def contender(name: str, values: list[float]) -> Contender:
        async def work(seconds: float) -> Turn:
            order.append(name)
            if not values:
                raise ConnectionResetError("gone")
            return Turn(value=values.pop(0), client_cores=0.5)

        return Contender(name=name, peer=Nobody(), work=work)

    result = RowResult(subjects=[])
    contenders = [contender("a", [1.0, 3.0, 8.0]), contender("b", [7.0]), contender("c", [5.0, 6.0, 7.0])]
    await take_turns(contenders, options(rounds=3), result, "/s")
    assert order == ["a", "b", "c", "a", "b", "c", "a", "c"]
    assert [(each.name, each.value, each.client_cores) for each in result.subjects] == [
        ("a", 3.0, 0.5),
        ("c", 6.0, 0.5),
    ]
    assert result.failed == ["b: gone"]


async def test_sides_run_one_at_a_time_and_one_that_is_not_there_is_not_asked_again() -> None:
    """Two systems must not run at once, because they would share the processors and slow each other down."""
    log: list[str] = []

    def side(name: str, values: list[float], rounds: int = 0) -> Side:
        async def work(seconds: float) -> Turn:
            log.append(f"work {name}")
            return Turn(value=values.pop(0), cpu_us=2.0)

        @asynccontextmanager
        async def start() -> AsyncIterator[list[Contender]]:
            log.append(f"start {name}")
            yield [Contender(name=name, peer=Nobody(), work=work)] if values else []
            log.append(f"stop {name}")

        return Side(start=start, rounds=rounds)

    result = RowResult(subjects=[])
    sides = [side("a", [1.0, 3.0]), side("absent", []), side("b", [7.0], rounds=1)]
    await alternate(sides, options(rounds=2), result, "/s")
    first = ["start a", "work a", "stop a", "start absent", "stop absent", "start b", "work b", "stop b"]
    assert log == [*first, "start a", "work a", "stop a"]
    assert [(each.name, each.turns, each.cpu_us) for each in result.subjects] == [
        ("a", [1.0, 3.0], 2.0),
        ("b", [7.0], 2.0),
    ]


async def test_a_pipeline_keeps_so_many_outstanding_and_ends_after_so_many() -> None:
    outstanding = most = done = 0

    async def put() -> None:
        nonlocal outstanding, most, done
        outstanding += 1
        most = max(most, outstanding)
        await asyncio.sleep(0)
        outstanding -= 1
        done += 1

    figures = await keep_going(put, 8, count=50)
    assert (most, done, outstanding, figures.count) == (8, 50, 0, 50)


async def test_a_pipeline_raises_what_a_put_raised() -> None:
    async def put() -> None:
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError, match="gone"):
        await keep_going(put, 2, count=5)


def test_a_row_that_does_not_exist_is_refused_with_those_that_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["--rows", "append-63"])
    assert error.value.code == 2
    assert "append-64" in capsys.readouterr().err


def test_a_goal_has_beside_its_ratio_what_the_run_before_had_found() -> None:
    before = a_record(FASTER, subjects=[Subject(name="viewstamp", turns=[5.0]), Subject(name="NATS", turns=[2.0])])
    now = a_record(FASTER, subjects=[Subject(name="viewstamp", turns=[5.0]), Subject(name="NATS", turns=[1.0])])
    (line,) = goal_lines([{**now, "before": before}], shows_before=True)
    assert line[3:5] == ("5 x", "2.50 x")
    (line,) = goal_lines([{**now, "before": None}], shows_before=True)
    assert line[3:5] == ("5 x", "")
