"""The newest changes are listed once each, in order, within a bound of bytes.

A request for older ones fails clearly.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.actors.replicated.calls import START, apply, call
from viewstamp.actors.replicated import ActorHost, ReplicatedActor, command
from viewstamp.errors import TrimmedError, UnknownActorError
from viewstamp.wire.commands import decode_arguments, decode_result


class Note(ReplicatedActor):
    @command
    def say(self, word: str, n: int = 0) -> str:
        return word

    @command
    def fail(self) -> None:
        raise ValueError("no")


def hosting(bytes_max: int = 1 << 20) -> ActorHost:
    return ActorHost({"note": Note, "other": Note}, changes_bytes_max=bytes_max)


def words(changes: list[Any]) -> list[Any]:
    return [decode_arguments(change[5])[0][0] for change in changes]


def test_a_change_contains_the_call_its_time_and_its_result() -> None:
    host = hosting()
    apply(host, 7, ("note", "k", "say", "hello", 3), ("note", "k", "fail"))
    (said, failed), following = host.changes("note", None, 7)
    assert said[:5] == [7, START + 7, "note", "k", "say"]
    assert decode_arguments(said[5]) == (["hello", 3], {})
    assert decode_result(said[6]) == "hello"
    assert (failed[0], failed[4]) == (8, "fail")
    with pytest.raises(Exception, match="ValueError: no"):
        decode_result(failed[6])
    assert following == 9


def test_from_now_on_is_index_0() -> None:
    host = hosting()
    assert host.changes("note", None, 0) == ([], 1)
    call(host, 4, "note", "", "say", "a")
    assert host.changes("note", None, 0) == ([], 5)
    assert host.changes("note", None, 99) == ([], 99), "a watcher that has seen more elsewhere waits"


def test_a_watcher_gets_the_changes_of_its_actor_and_of_its_key() -> None:
    host = hosting()
    apply(host, 1, ("note", "a", "say", "1"), ("other", "a", "say", "2"), ("note", "b", "say", "3"))
    call(host, 9, "note", "a", "say", "4")
    assert words(host.changes("note", None, 1)[0]) == ["1", "3", "4"]
    assert words(host.changes("note", "a", 1)[0]) == ["1", "4"]
    assert words(host.changes("note", "", 1)[0]) == []
    assert words(host.changes("note", None, 3)[0]) == ["3", "4"], "from inside a batch"
    assert words(host.changes("note", None, 5)[0]) == ["4"], "from an index that holds no command"
    assert words(host.changes("other", None, 1)[0]) == ["2"]
    with pytest.raises(UnknownActorError, match="no actor 'nobody'"):
        host.changes("nobody", None, 1)


def test_dropped_changes_are_an_error_and_not_skipped() -> None:
    host = hosting(bytes_max=2000)
    for index in range(1, 51):
        call(host, index, "note", "", "say", "x" * 100)
    with pytest.raises(TrimmedError, match="from index 1 on are no longer kept") as caught:
        host.changes("note", None, 1)
    first = caught.value.first
    assert 30 < first < 50
    changes, following = host.changes("note", None, first)
    assert ([change[0] for change in changes], following) == (list(range(first, 51)), 51)
    assert host.describe_index(first - 1) == ""
    assert host.describe_index(50).startswith("note.say('xxx")


def test_a_change_over_the_total_limit_is_not_listed() -> None:
    host = hosting(bytes_max=2000)
    call(host, 1, "note", "", "say", "small")
    call(host, 2, "note", "", "say", "x" * 3000)
    with pytest.raises(TrimmedError) as caught:
        host.changes("note", None, 2)
    assert caught.value.first == 3
    call(host, 3, "note", "", "say", "small")
    assert words(host.changes("note", None, 3)[0]) == ["small"]


def test_one_answer_scans_a_bounded_part_and_contains_the_next_index() -> None:
    host = hosting(bytes_max=10 << 20)
    apply(host, 1, *[("other", "", "say", "x")] * 2500, ("note", "", "say", "found"))
    index, found, asked = 1, [], 0
    while index < 2502:
        changes, index = host.changes("note", None, index)
        found += changes
        asked += 1
    assert (words(found), asked) == (["found"], 3)
    apply(host, 3000, *[("note", "", "say", "y" * 100_000)] * 10)
    changes, following = host.changes("note", None, 3000)
    assert (len(changes), following) == (2, 3002)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=30), st.integers(300, 3000), st.integers(1, 80))
@settings(max_examples=40)
def test_kept_changes_are_listed_whole_and_once(sizes: list[int], bytes_max: int, index: int) -> None:
    host = hosting(bytes_max)
    expected = {}
    following = 1
    for size in sizes:
        apply(host, following, *[("note", "", "say", f"w{following + n}") for n in range(size)])
        expected |= {following + n: f"w{following + n}" for n in range(size)}
        following += size + 1  # there is another record between two batches
    try:
        changes, after = host.changes("note", None, index)
    except TrimmedError as error:
        index = max(error.first, index + 1)
        changes, after = host.changes("note", None, index)
    assert {change[0]: words([change])[0] for change in changes} == {i: w for i, w in expected.items() if i >= index}
    assert after == max(index, max(expected) + 1)
    for each in expected:
        assert host.describe_index(each) in ("", f"note.say('{expected[each]}')")


def test_waiters_are_called_after_each_batch() -> None:
    host = hosting()
    told: list[int] = []
    host.on_change = told.append
    apply(host, 1, ("note", "", "say", "a"), ("note", "", "say", "b"))
    call(host, 9, "note", "", "say", "c")
    assert told == [3, 10]


def test_a_record_without_a_command_has_no_description() -> None:
    host = hosting()
    call(host, 1, "note", "", "say", "a")
    call(host, 5, "note", "", "say", "b")
    assert [host.describe_index(index) for index in range(7)] == ["", "note.say('a')", "", "", "", "note.say('b')", ""]
