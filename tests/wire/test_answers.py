"""Errors and answers on the wire: a client raises the error that a node sent."""

from __future__ import annotations

import inspect

import msgpack
import pytest

from viewstamp import errors
from viewstamp.errors import (
    CommandError,
    DivergedError,
    NotLeaderError,
    PositionMismatchError,
    StreamSealedError,
    TrimmedError,
    UnknownActorError,
)
from viewstamp.ids import NodeId
from viewstamp.wire.answers import ERRORS, error_fields, error_from, is_answer
from viewstamp.wire.frame import FrameKind
from viewstamp.wire.peer_requests import AskToJoin, ReadLog, ReadSnapshot, ReportHosted, ReportLeft, ReportStreams
from viewstamp.wire.requests import REQUESTS, AppendBatch, AppendBatchAt, CallActors
from viewstamp.wire.sink_requests import StageBatch
from viewstamp.wire.token_requests import ProveDirectory

DETAILED: list[errors.ViewstampError] = [
    NotLeaderError("no", leader=NodeId("n2"), address="a:2", remedy="ask n2"),
    NotLeaderError("no", leader=None, address=None),
    TrimmedError("gone", first=7),
    PositionMismatchError("no", actual=9, remedy="again"),
    DivergedError("odd", index=11),
    UnknownActorError("elsewhere", is_spread=True),
    CommandError("no", kind="OutOfStockError"),
    StreamSealedError("over", remedy="take another stream"),
]
NEVER_SENT = {"BrokenRuleError", "ContradictionError", "LostDiskError", "MovedError", "WrongNodeError"}
NEVER_SENT |= {"ResultTooLargeError"}
"""Errors that no client receives as an answer; a client would raise them as a plain ViewstampError."""


def again(error: errors.ViewstampError) -> errors.ViewstampError:
    return error_from(msgpack.unpackb(msgpack.packb(error_fields(error))))


@pytest.mark.parametrize("error", DETAILED, ids=lambda error: type(error).__name__)
def test_an_error_arrives_with_all_fields_of_its_class(error: errors.ViewstampError) -> None:
    found = again(error)
    assert type(found) is type(error)
    assert vars(found) == vars(error)
    assert str(found) == str(error)


def test_every_class_of_error_is_sent_with_its_fields_or_known_not_to_be() -> None:
    """A field that the table does not name would be lost on the way."""
    named = set(ERRORS) | {type(error).__name__ for error in DETAILED} | {"OutcomeUnknownError"} | NEVER_SENT
    assert named == {each for each in errors.__all__ if each.endswith("Error")}
    for kind in ERRORS.values():
        if kind is not errors.CorruptionError:  # The message has the place; the path is the node's own.
            assert set(inspect.signature(kind).parameters) == {"message", "remedy"}, kind
        assert type(again(kind("no", remedy="r"))) is kind


@pytest.mark.parametrize("body", [{}, {"message": ""}, {"message": None, "error": "OverloadedError"}])
def test_an_error_without_a_message_gets_a_default_one(body: dict[str, object]) -> None:
    for name in ("NotLeaderError", "OutcomeUnknownError", "NoSuchError"):
        assert "refused with" in str(error_from({"error": name} | body))


def test_an_unknown_class_names_itself_and_promises_nothing() -> None:
    found = error_from({"error": "NewerError", "message": "no"})
    assert type(found) is errors.ViewstampError
    assert str(found).startswith("NewerError: no")
    found = error_from({"error": "OutcomeUnknownError", "message": "perhaps"})
    assert isinstance(found, errors.OutcomeUnknownError)
    assert found.token is None


def test_the_answer_to_every_request_that_a_client_waits_for_is_checked() -> None:
    """The requests in ``elsewhere`` are exempt, because sessions and peers check the answers to them by themselves."""
    elsewhere = {AppendBatch, AppendBatchAt, CallActors, StageBatch, AskToJoin, ProveDirectory, ReadLog, ReadSnapshot}
    elsewhere |= {ReportHosted, ReportLeft, ReportStreams}
    for row in set(REQUESTS.values()) - elsewhere:
        assert isinstance(is_answer(row.kind, {}), bool)
    assert not is_answer(FrameKind.DESCRIBE_TOPIC, {"topic": {}})
