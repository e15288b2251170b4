"""Arguments from JSON, and results as JSON."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
import typer

from viewstamp.cli.actor import as_json, parse_arguments


def test_json_list_gives_positional_arguments_and_json_object_gives_named_ones() -> None:
    assert parse_arguments('["A-17", 2]') == (["A-17", 2], {})
    assert parse_arguments('{"sku": "A-17", "n": [2]}') == ([], {"sku": "A-17", "n": [2]})


@pytest.mark.parametrize("text", ["A-17", "2", '"A-17"', "null", "", "[1"])
def test_other_json_is_rejected_with_the_text_in_the_message(text: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        parse_arguments(text)
    assert text in str(caught.value)


def test_every_result_type_has_a_json_form() -> None:
    value = {
        "plain": [None, True, 1, 1.5, "x"],
        7: (1, (2,)),
        (1, 2): {3, 1},
        "bytes": b"\xff\x00",
        "when": datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
        "day": date(2026, 1, 2),
        "long": timedelta(minutes=1.5),
        "exact": Decimal("1.10"),
        "id": UUID(int=7),
    }
    assert json.loads(json.dumps(as_json(value))) == {
        "plain": [None, True, 1, 1.5, "x"],
        "7": [1, [2]],
        "[1, 2]": [1, 3],
        "bytes": "/wA=",
        "when": "2026-01-02T03:04:00+00:00",
        "day": "2026-01-02",
        "long": 90.0,
        "exact": "1.10",
        "id": "00000000-0000-0000-0000-000000000007",
    }
