"""The question of ``stream seal --lost``."""

from __future__ import annotations

from typing import Any

import pytest

from viewstamp.cli.confirmation import confirm
from viewstamp.cli.stream import _report
from viewstamp.client.lost_streams import StreamLoss
from viewstamp.client.results import spread_topic_info
from viewstamp.errors import ConfigError
from viewstamp.ids import NodeId
from viewstamp.terminal.number_words import number_words

ANY_INDEX = (
    "nine quintillion two hundred twenty-three quadrillion three hundred seventy-two trillion thirty-six billion"
    " eight hundred fifty-four million seven hundred seventy-five thousand eight hundred seven"
)


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
            (1000, "one thousand"),
            (1207, "one thousand two hundred seven"),
            (48_000_013, "forty-eight million thirteen"),
            (2**63 - 1, ANY_INDEX),
        ),
    ],
)
def test_numbers_have_words(number: int, words: str) -> None:
    assert number_words(number) == words


def test_the_loss_is_accepted_by_the_number_in_words_only() -> None:
    words = number_words(21)
    named = {"what": "the number of the stream in words", "option": f'--yes-lose-stream "{words}"'}
    confirm("twenty-one", words, **named)
    for yes in ("", "21", "one", "Twenty-one"):
        with pytest.raises(ConfigError, match="nothing was changed") as refused:
            confirm(yes, words, **named)
        assert refused.value.remedy == 'add --yes-lose-stream "twenty-one" to accept it'
    for number in (-1, 10**21):
        with pytest.raises(ValueError, match=r"is not from 0 to 9+"):
            number_words(number)


def test_the_loss_of_a_sealed_stream_is_another_one_than_that_of_an_open_stream(
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic: dict[str, Any] = {"id": 5, "name": "orders", "groups": [2, 3], "slots": 8, "ranges": [[0, 2]]}
    topic |= {"retain_bytes": 0, "retain_seconds": 0.0, "configured": 0, "first_position": 1, "closed": [[1, 2, 11]]}
    found = spread_topic_info(topic, order={"next_position": 20, "ordered_ends": [11, 5]})
    _report(StreamLoss(found, 1, False, {NodeId("n1"): 10}, (NodeId("n2"),)))
    told = capsys.readouterr().err
    assert "Stream 1 of orders, in group 2, is sealed: its records up to position 10 have a position" in told
    assert "No record loses its position" in told
    assert "ACKNOWLEDGED RECORDS" not in told
    _report(StreamLoss(found, 2, False, {NodeId("n1"): 6}, (NodeId("n2"),)))
    told = capsys.readouterr().err
    assert "ACKNOWLEDGED RECORDS NEVER GET A POSITION IN THE TOPIC: at least 2" in told
