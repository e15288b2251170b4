"""Allowed names for existing and for new topics and sinks."""

import pytest

from viewstamp.errors import RequestError
from viewstamp.wire.frame import FrameKind, encode_frame
from viewstamp.wire.names import check_encodable, check_new_sink, check_new_topic, check_topic


@pytest.mark.parametrize("name", ["orders", "_x", "7", "a.b-c_D", "x" * 128])
def test_an_ordinary_name_of_a_topic(name: str) -> None:
    assert check_topic(name) == name
    assert check_new_topic(name) == name


@pytest.mark.parametrize("name", [".", "..", "-rf", "--help", ".hidden", "-"])
def test_names_that_earlier_versions_accepted_stay_valid_but_not_for_new_topics(name: str) -> None:
    assert check_topic(name) == name
    with pytest.raises(RequestError, match="a new topic cannot be named") as caught:
        check_new_topic(name)
    assert repr(name) in caught.value.message
    assert "the first one a letter" in caught.value.remedy


@pytest.mark.parametrize("name", ["", "a b", "a\n", "a/b", "\ud800", "é", "x" * 129, "\x1b[31m", 5, None])
def test_no_topic_has_this_name(name: object) -> None:
    for check in (check_topic, check_new_topic):
        with pytest.raises(RequestError, match="cannot be named") as caught:
            check(name)
        assert caught.value.message.isprintable()


@pytest.mark.parametrize("name", ["s", "Bestellungen für heute", "query/7", "x" * 256])
def test_a_new_sink_may_have_any_printable_name(name: str) -> None:
    assert check_new_sink(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "-rf", "a\nb", "\x00", "\x1b[2J", "x" * 257, "é" * 129, "\ud800"])
def test_forbidden_names_for_a_new_sink(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        check_new_sink(name)
    assert caught.value.message.isprintable()


def test_text_without_an_encoding_is_refused_with_its_place() -> None:
    assert check_encodable("é", "a key") == "é"
    with pytest.raises(RequestError, match=r"a key cannot be 'ab.*': character 3 cannot be encoded as UTF-8"):
        check_encodable("ab\ud800", "a key")
    with pytest.raises(RequestError, match="cannot be encoded"):
        encode_frame(FrameKind.DESCRIBE_TOPIC, {"name": "\ud800"})
