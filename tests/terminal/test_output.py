"""Tables on terminals of any width, and in pipes."""

from __future__ import annotations

import io
import os

import pytest

from viewstamp.terminal.output import print_table

COLUMNS = ["node", "address", "role", "term"]
ROWS = [["n1", "127.0.0.1:16838", "leader", 1], ["n2", "127.0.0.1:13135", "follower", 12_000]]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, width: int) -> list[str]:
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(COLUMNS, ROWS)
    return stream.getvalue().splitlines()


def test_a_table_that_fits_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed(monkeypatch, Terminal(), 80) == [
        "node  address          role        term",
        "n1    127.0.0.1:16838  leader         1",
        "n2    127.0.0.1:13135  follower  12,000",
    ]


@pytest.mark.parametrize("width", [22, 32, 38])
def test_columns_that_do_not_fit_follow_with_the_first_column_again(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    lines = printed(monkeypatch, Terminal(), width)
    assert max(map(len, lines)) <= width
    tables = "\n".join(lines).split("\n\n")
    assert len(tables) > 1
    assert [table.split()[0] for table in tables] == ["node"] * len(tables)
    shown = [name for table in tables for name in table.splitlines()[0].split()[1:]]
    assert shown == COLUMNS[1:]


def test_in_a_pipe_there_is_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(printed(monkeypatch, io.StringIO(), 20)) == 1 + len(ROWS)


def test_a_column_wider_than_the_terminal_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(monkeypatch, Terminal(), 5)
    assert lines.count("") == len(COLUMNS) - 2
    assert os.environ["COLUMNS"] == "5"
