"""``docs/errors.md`` lists each exception class, each message and each finding of the doctor, as the code has them."""

from __future__ import annotations

import ast

import pytest

from tests.errors_page import COMMAND, PAGE, classes, findings, main, messages, page, section, templates
from viewstamp.doctor.report import CODES
from viewstamp.errors import ViewstampError


def test_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), f"write it: {COMMAND}"
    assert main([]) == 0


@pytest.mark.parametrize("error", classes(), ids=lambda error: error.__name__)
def test_every_class_states_whether_it_happened_and_the_next_step(error: type[ViewstampError]) -> None:
    assert section(error, "Happened")
    assert section(error, "Do")


def test_every_finding_has_a_sentence() -> None:
    assert [code for code in CODES if not findings()[code]] == []


def test_messages_are_found_by_their_words() -> None:
    assert any("{actual}, not {expected}" in text for text, _ in messages()["PositionMismatchError"])
    assert any(text.startswith("no topic is named") for text, _ in messages()["UnknownTopicError"])


def test_values_become_names_in_braces() -> None:
    source = """f"{self._name!r} is {size} bytes, {'a' if big else 'b'} limit {limits[0]}" """
    assert templates(ast.parse(source.strip(), mode="eval").body) == ["{name} is {size} bytes, {...} limit {...}"]
