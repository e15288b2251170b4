"""The question of ``stream seal --lost``."""

from __future__ import annotations

import pytest

from viewstamp.cli.stream import _confirm
from viewstamp.errors import ConfigError
from viewstamp.terminal.number_words import number_words


@pytest.mark.parametrize(
    ("number", "words"),
    [
        *(
            (0, "zero"),
            (1, "one"),
            (12, "twelve"),
            (19, "nineteen"),
            (20, "twenty"),
            (21, "twenty-one"),
            (99, "ninety-nine"),
        ),
        *(
            (100, "one hundred"),
            (110, "one hundred ten"),
            (256, "two hundred fifty-six"),
            (999, "nine hundred ninety-nine"),
        ),
    ],
)
def test_numbers_have_words(number: int, words: str) -> None:
    assert number_words(number) == words


def test_the_loss_is_accepted_by_the_number_in_words_only() -> None:
    _confirm(21, "twenty-one")
    for yes in ("", "21", "one", "Twenty-one"):
        with pytest.raises(ConfigError, match="nothing was changed") as refused:
            _confirm(21, yes)
        assert refused.value.remedy == 'add --yes-lose-stream "twenty-one" to accept it'
    for number in (-1, 1000):
        with pytest.raises(ValueError, match="is not from 0 to 999"):
            number_words(number)
