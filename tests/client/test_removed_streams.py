"""What a client knows of the removed streams of a topic."""

from __future__ import annotations

from typing import Any

import pytest

from viewstamp.client.results import SpreadTopicInfo, spread_topic_info
from viewstamp.errors import RequestError, StreamSealedError
from viewstamp.wire.answers import is_answer
from viewstamp.wire.frame import FrameKind

TOPIC: dict[str, Any] = {
    "id": 5,
    "name": "orders",
    "groups": [2, 3, 2, 3],
    "slots": 8,
    "ranges": [[0, 4], [4, 2]],
    "retain_bytes": 0,
    "retain_seconds": 0.0,
    "configured": 0,
    "first_position": 3,
    "closed": [[1, 4, 11], [3, 2, 1], [4, 2, 0]],
    "lost": [[3, 2]],
    "gone": [[1, 20], [3, 2]],
}


def topic(**changes: object) -> SpreadTopicInfo:
    return spread_topic_info({**TOPIC, **changes})


def test_a_removed_stream_has_a_phase_and_is_none_of_the_kept_ones() -> None:
    found = topic()
    assert [found.phase_of(stream) for stream in (1, 2, 3, 4)] == ["removed", "open", "removed", "closing"]
    assert (found.streams, found.kept_streams, found.open_streams) == (4, [2, 4], [2])
    assert found.removed_streams == {1, 3}
    for stream in (1, 3):
        with pytest.raises(StreamSealedError, match=f"stream {stream} of topic 'orders' was removed"):
            found.check_kept(stream)
    found.check_kept(2)
    with pytest.raises(RequestError, match="has no stream 5"):
        found.check_kept(5)


def test_a_reader_passes_a_removed_stream_and_knows_up_to_where_it_was_trimmed() -> None:
    """Its records may have been deleted by retention, so that the topic was never trimmed above them."""
    found = topic()
    assert [found.can_pass(1, position) for position in (1, 19, 20)] == [True] * 3
    assert found.kept_from(1) == 20
    assert not topic(gone=[]).can_pass(1, 20), "a sealed stream has its records"


def test_an_answer_in_which_a_stream_is_removed_that_was_never_sealed_is_none() -> None:
    for gone, is_one in (([[1, 20]], True), ([[4, 20]], False), ([[2, 20]], False), ([[1]], False), (7, False)):
        assert is_answer(FrameKind.GONE_STREAM, {"topic": {**TOPIC, "gone": gone}}) is is_one
