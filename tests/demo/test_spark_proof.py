"""The proof of the Spark demo finds every kind of difference, and sets the exit code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from viewstamp.cli import main
from viewstamp.demo import spark_run
from viewstamp.demo.proof import Proof, Tally
from viewstamp.demo.spark_delays import Delays
from viewstamp.demo.spark_result import SparkDemoResult

LINES = [b"a", b"b", b"a", b"", b"c\xff"]


def compared(values: list[bytes]) -> Proof:
    return Proof.compare(Tally(LINES), Tally(values))


def test_same_values_in_another_order_are_equal_and_have_the_same_digest() -> None:
    proof = compared(LINES[::-1])
    assert proof.holds
    assert (proof.rows, proof.distinct, proof.digest) == (5, 4, Tally(LINES).digest)


@pytest.mark.parametrize(
    ("values", "lost", "duplicated", "invented"),
    [
        ([b"a", b"b", b"a", b""], 1, 0, 0),
        ([b"a", b"b", b"", b"c\xff"], 1, 0, 0),
        ([], 5, 0, 0),
        ([*LINES, b"a"], 0, 1, 0),
        ([*LINES, b"x"], 0, 0, 1),
        ([b"b", b"b", b"a", b"", b"x"], 2, 1, 1),
    ],
)
def test_differences_are_counted_and_change_the_digest(
    values: list[bytes], lost: int, duplicated: int, invented: int
) -> None:
    proof = compared(values)
    assert (proof.lost, proof.duplicated, proof.invented) == (lost, duplicated, invented)
    assert not proof.holds
    assert proof.digest != Tally(LINES).digest


def result(values: list[bytes], *, counted: int = 5, picture: str = "x.png") -> SparkDemoResult:
    expected = Tally(LINES)
    return SparkDemoResult(
        nodes=3,
        rows=len(LINES),
        digest=expected.digest,
        proof=Proof.compare(expected, Tally(values)),
        driver_kills=["in micro-batch 2"],
        leader_kills=["n1"],
        seconds=2.0,
        delays=Delays([["UA", 2013, 1, counted, 4, 60]]),
        plot=picture,
    )


def test_the_json_has_these_fields_and_no_others() -> None:
    whole = result(LINES)
    assert whole.holds
    assert whole.as_json() == {
        "rows": 5,
        "lost": 0,
        "duplicated": 0,
        "partial_batches_seen": 0,
        "driver_kills": 1,
        "leader_kills": 1,
        "rows_per_second": 2.5,
        "seconds": 2.0,
        "plot": "x.png",
    }


@pytest.mark.parametrize(
    "wrong",
    [
        replace(result(LINES), partial=1),
        replace(result(LINES), driver_kills=[]),
        replace(result(LINES), leader_kills=[]),
        replace(result(LINES), delays=None),
        replace(result(LINES), proof=None),
        result(LINES, counted=4),
        result(LINES[1:]),
        result([*LINES, b"a"]),
    ],
    ids=["partial", "no driver killed", "no leader killed", "not read back", "not read", "counted", "lost", "doubled"],
)
def test_the_proof_holds_only_as_a_whole(wrong: SparkDemoResult) -> None:
    assert not wrong.holds


@pytest.mark.parametrize(("values", "code"), [(LINES, 0), (LINES[1:], 1)])
def test_planted_loss_exits_with_1_and_keeps_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], values: list[bytes], code: int
) -> None:
    async def run(_: object) -> SparkDemoResult:
        return result(values, picture=str(tmp_path / "x.png"))

    monkeypatch.setattr(spark_run.SparkDemo, "run", run)
    monkeypatch.setattr(spark_run, "check_demo", lambda *_, **__: None)
    monkeypatch.setattr("viewstamp.spark.ensure_java", lambda: None)
    assert main.run(["demo-spark", "--dir", str(tmp_path / "it")]) == code
    captured = capsys.readouterr()
    assert ("every flight once" in captured.out) == (code == 0)
    assert ("THE PROOF FAILED" in captured.out) == (code == 1)
    assert (tmp_path / "it" / "n1.toml").exists() == (code == 1)
    assert max(len(line) for line in captured.out.splitlines() if "│" in line) <= 100


def test_missing_packages_are_reported_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = spark_run.importlib.util.find_spec
    monkeypatch.setattr(
        spark_run.importlib.util, "find_spec", lambda name: None if name in ("pyspark", "matplotlib") else found(name)
    )
    assert main.run(["demo-spark", "--dir", str(tmp_path / "it")]) == 2
    said = capsys.readouterr().err
    assert "pyspark, " in said
    assert "matplotlib" in said
    assert "make demo-spark" in said
    assert "pip install 'viewstamp[spark,plot]'" in said
    assert not (tmp_path / "it").exists()
