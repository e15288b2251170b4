"""Options that are sizes and durations take units, and name them if a value is wrong."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
import typer

from viewstamp.cli import main
from viewstamp.cli.groups import group_ids
from viewstamp.cli.options import age, duration, parse_ids, parse_names, size
from viewstamp.client.aio import Client


@pytest.mark.parametrize(
    ("text", "seconds"), [("2m", 120), ("500ms", 0.5), ("5", 5), ("0.5", 0.5), (".5", 0.5), (30.0, 30)]
)
def test_duration_is_in_seconds_without_a_unit(text: str | float, seconds: float) -> None:
    assert duration(minimum=0.1)(text) == seconds


def test_duration_may_have_another_unit() -> None:
    in_milliseconds = duration(minimum=1, maximum=60_000, bare="ms")
    assert [in_milliseconds(text) for text in ("250", "250ms", "1s")] == [250, 250, 1000]
    with pytest.raises(typer.BadParameter, match="2m is not allowed; allowed: from 1ms to 60000ms"):
        in_milliseconds("2m")


@pytest.mark.parametrize("text", ["10ms", "0", "-1", "nan"])
def test_duration_below_its_minimum_is_rejected(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"is not allowed; allowed: at least 0\.1s"):
        duration(minimum=0.1)(text)


def test_age_needs_a_unit_because_a_number_could_be_days() -> None:
    assert (age("7d"), age("0")) == (604_800, 0)
    with pytest.raises(typer.BadParameter, match="'7' is not a duration; write a number and a unit: ms, s, m, h, d, w"):
        age("7")


def test_size_is_in_bytes_without_a_unit() -> None:
    assert [size()(text) for text in ("4kB", "4KiB", "17", 256)] == [4000, 4096, 17, 256]
    with pytest.raises(typer.BadParameter, match="0 is not allowed; allowed: at least 1B"):
        size(minimum=1)("0")
    with pytest.raises(typer.BadParameter, match="'4K' is not a size"):
        size()("4K")


@pytest.mark.parametrize("text", ["", " ", ",", ", ,"])
def test_names_that_are_given_and_empty_are_rejected_because_the_default_is_all(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (parse_names(None), parse_ids(None)) == ([], [])
    assert (parse_names("n1, n2,"), parse_ids("3,14")) == (["n1", "n2"], [3, 14])
    for parse in (parse_names, parse_ids):
        with pytest.raises(typer.BadParameter, match="names nothing; give names with commas between"):
            parse(text)
    with pytest.raises(typer.BadParameter, match="names nothing"):
        asyncio.run(group_ids(cast("Client", None), text, 1.0))
    there = ["--cluster", "127.0.0.1:1", "--timeout", "0.1"]
    for command in (
        ["group", "place", "west", "--founders", text],
        ["actor", "spread", "seats", "--groups", text],
        ["topic", "create", "orders", "--groups", text],
    ):
        assert main.run([*command, *there]) == 2
    assert capsys.readouterr().err.count("names nothing") == 2


def test_wrong_unit_of_an_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["status", "--cluster", "127.0.0.1:1", "--timeout", "2 fortnights"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "'2 fortnights' is not a duration; write a number and a unit: ms, s, m, h, d, w" in said


def test_members_of_a_cluster_on_this_machine_cannot_be_given(
    capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    for arguments in (["--nodes", "3", "--member", "n1=db1:1"], ["--tls"], ["--node", "n1"]):
        assert main.run(["config", "new", f"{tmp_path}/files", *arguments]) == 2
    assert main.run(["config", "new", f"{tmp_path}/files", "--member", "n1"]) == 2
    assert "--member n1 has no address" in capsys.readouterr().err


def test_name_of_a_file_in_the_variable_of_the_token_is_explained(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIEWSTAMP_TOKEN", "/etc/writer.token")
    assert main.run(["status", "--cluster", "127.0.0.1:1"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "vst_ID_SECRET, and not the name of a file that has it" in said
    assert "writer" not in said
