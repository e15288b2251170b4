"""A host of replicated actors: effects of commands, queries and failures, and a command's view of the world."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.actors.replicated.calls import START, apply, ask, batch_of, call, pieces_of
from viewstamp.actors.replicated import ActorHost, ReplicatedActor, command, query
from viewstamp.errors import CommandError, OutdatedCodeError, RequestError, ResultTooLargeError, UnknownActorError
from viewstamp.ids import GroupId, Position
from viewstamp.wire.commands import NO_RESULT, decode_result, encode_arguments

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TooMuchError(CommandError):
    pass


class Account(ReplicatedActor):
    version = 2

    def __init__(self) -> None:
        self.balance = 0
        self.opened = self.now
        self.number = str(self.new_id())

    @command
    def deposit(self, amount: int) -> int:
        self.balance += amount
        return self.balance

    @command
    def withdraw(self, amount: int) -> int:
        self.balance -= amount
        if self.balance < 0:
            raise TooMuchError(f"{-self.balance} too much")
        return self.balance

    @command
    def look(self) -> dict[str, Any]:
        return {
            "now": self.now,
            "key": self.key,
            "version": self.command_version,
            "dice": [self.random.randrange(10**6) for _ in range(3)],
            "ids": [self.new_id(), self.new_id()],
        }

    @command
    def fail(self, error: str) -> None:
        raise {
            "os": OSError("disk"),
            "memory": MemoryError(),
            "import": ModuleNotFoundError("x"),
            "exit": SystemExit(1),
            "interrupt": KeyboardInterrupt(),
            "value": ValueError("bad"),
            "key": KeyError("k"),
        }[error]

    @command
    def recurse(self) -> None:
        self.recurse()

    @command
    def odd(self) -> Any:
        self.balance += 1
        return [1, object()]

    @query
    def total(self) -> int:
        return self.balance

    @query
    def clock(self) -> tuple[datetime, int]:
        return self.now, self.command_version

    @query
    def roll(self) -> float:
        return self.random.random()

    @query
    def broken(self, how: str) -> Any:
        if how == "os":
            raise OSError("disk")
        if how == "result":
            return object()
        raise TooMuchError("ask less")


class Tally(ReplicatedActor):
    """An actor that is false in a condition. Its constructor raises if the test sets ``broken``."""

    broken = True

    def __init__(self) -> None:
        self.count = 0
        if Tally.broken:
            raise ValueError("not yet")

    def __len__(self) -> int:
        return self.count

    @command
    def count_up(self) -> int:
        self.count += 1
        return self.count


@pytest.fixture
def host() -> ActorHost:
    return ActorHost({"account": Account, "tally": Tally})


def test_commands_change_the_instance_that_they_name(host: ActorHost) -> None:
    assert [
        decode_result(each) for each in apply(host, 5, ("account", "a", "deposit", 3), ("account", "b", "deposit", 4))
    ] == [3, 4]
    assert call(host, 7, "account", "a", "deposit", 10) == 13
    assert (ask(host, "account", "a", "total"), ask(host, "account", "b", "total")) == (13, 4)


def test_time_randomness_and_ids_of_a_command_depend_on_its_place_in_the_log(host: ActorHost) -> None:
    other = ActorHost({"account": Account})
    seen = call(host, 9, "account", "k", "look")
    assert call(other, 9, "account", "k", "look") == seen, "the same on every member"
    assert seen["now"] == EPOCH + timedelta(microseconds=START + 9)
    assert (seen["key"], seen["version"]) == ("k", 1)
    again = call(host, 10, "account", "k", "look", version=2)
    assert again["version"] == 2
    assert again["dice"] != seen["dice"]
    assert len({*seen["ids"], *again["ids"]}) == 4
    for made in seen["ids"]:
        assert (made.version, made.variant) == (7, uuid.RFC_4122)
        assert made.int >> 80 == (START + 9) // 1000


def test_ids_differ_within_a_batch_and_go_on_from_the_constructor_to_the_command(host: ActorHost) -> None:
    first, second = (
        decode_result(r)["ids"] for r in apply(host, 9, ("account", "k", "look"), ("account", "l", "look"))
    )
    assert len({*first, *second}) == 4


def test_commands_of_two_groups_draw_other_numbers_at_the_same_index_and_log_time() -> None:
    """An id is unique in the cluster, also after a state was loaded."""

    def in_group(group: int, loaded: bool = False) -> Any:
        host = ActorHost({"account": Account})
        host.enter(GroupId(group))
        if loaded:
            host.adopt(host.prepare(pieces_of(host)))
        return call(host, 7, "account", "a", "look")

    drawn = [in_group(group) for group in (0, 5, 11)]
    assert len({number for each in drawn for number in each["ids"]}) == 6
    assert len({tuple(each["dice"]) for each in drawn}) == 3
    assert drawn == [in_group(group, loaded=True) for group in (0, 5, 11)]


def test_an_instance_begins_with_its_first_command_and_a_query_begins_none(host: ActorHost) -> None:
    assert ask(host, "account", "new", "total") == 0
    assert host.status()["account"]["instances"] == 0
    call(host, 3, "account", "new", "deposit", 1)
    assert host.status()["account"]["instances"] == 1


def test_a_query_has_the_time_of_the_latest_batch_and_no_dice(host: ActorHost) -> None:
    call(host, 3, "account", "a", "deposit", 1)
    call(host, 8, "account", "b", "deposit", 1)
    assert ask(host, "account", "a", "clock") == (EPOCH + timedelta(microseconds=START + 8), 2)
    with pytest.raises(CommandError, match=r"RequestError: self.random is for commands"):
        ask(host, "account", "a", "roll")


def test_a_constructor_may_draw_though_only_a_query_asks_for_its_instance() -> None:
    """A query for a key without an instance runs the constructor on a temporary instance, which is then discarded."""

    class Drawing(ReplicatedActor):
        def __init__(self) -> None:
            self.drawn = (self.new_id(), self.random.random(), self.command_version)

        @command
        def get(self) -> Any:
            return self.drawn

        @query
        def peek(self) -> Any:
            return self.drawn

    host = ActorHost({"d": Drawing})
    imagined = ask(host, "d", "", "peek")
    assert imagined[2] == 1
    assert call(host, 1, "d", "", "get") != imagined
    assert ask(host, "d", "", "peek") == call(host, 2, "d", "", "get")


def test_an_exception_is_the_result_and_earlier_changes_stay(host: ActorHost) -> None:
    call(host, 1, "account", "a", "deposit", 5)
    (result,) = apply(host, 2, ("account", "a", "withdraw", 7))
    with pytest.raises(TooMuchError, match="2 too much"):
        decode_result(result, Account.__viewstamp__.errors)
    assert ask(host, "account", "a", "total") == -2
    with pytest.raises(CommandError, match="ValueError: bad") as caught:
        call(host, 3, "account", "a", "fail", "value")
    assert caught.value.kind == "ValueError"


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("os", OSError),
        ("memory", MemoryError),
        ("import", ImportError),
        ("exit", SystemExit),
        ("interrupt", KeyboardInterrupt),
    ],
)
def test_a_failure_of_the_machine_is_no_result(host: ActorHost, how: str, error: type[BaseException]) -> None:
    with pytest.raises(error) as caught:
        call(host, 7, "account", "a", "fail", how)
    if isinstance(caught.value, Exception):
        assert caught.value.__notes__ == [f"raised by account['a'].fail('{how}') at index 7, as no result of it"]


def test_a_recursion_error_is_no_result(host: ActorHost) -> None:
    """The depth at which Python raises it depends on the caller's stack, so members could have different results."""
    with pytest.raises(RecursionError):
        call(host, 7, "account", "a", "recurse")


def test_a_result_that_can_not_be_packed_is_a_failure_and_the_change_stays(host: ActorHost) -> None:
    with pytest.raises(CommandError, match=r"RequestError: the result\[1\] is an object"):
        call(host, 7, "account", "a", "odd")
    assert ask(host, "account", "a", "total") == 1


def test_a_constructor_that_raises_leaves_no_instance(host: ActorHost) -> None:
    Tally.broken = True
    with pytest.raises(CommandError, match="ValueError: not yet"):
        call(host, 1, "tally", "", "count_up")
    assert host.status()["tally"]["instances"] == 0
    Tally.broken = False
    assert [call(host, 2, "tally", "", "count_up"), call(host, 3, "tally", "", "count_up")] == [1, 2]


def test_a_state_that_can_not_be_packed_fails_each_command_until_it_can() -> None:
    class Odd(ReplicatedActor):
        def __init__(self) -> None:
            self.stock: dict[str, Any] = {}

        @command
        def put(self, name: str, good: bool) -> int:
            self.stock[name] = [1] if good else [object()]
            return len(self.stock)

    host = ActorHost({"odd": Odd})
    assert call(host, 1, "odd", "", "put", "a", True) == 1
    for index in (2, 3):
        with pytest.raises(CommandError, match=r"RequestError: self.stock\['b'\]\[0\] is an object"):
            call(host, index, "odd", "", "put", "b", False)
    assert call(host, 4, "odd", "", "put", "b", True) == 2


def test_get_state_that_raises_fails_the_command() -> None:
    class Odd(ReplicatedActor):
        @command
        def go(self) -> None: ...

        def get_state(self) -> Any:
            raise ValueError("no state today")

    with pytest.raises(CommandError, match=r"get_state\(\) raised ValueError\('no state today'\)"):
        call(ActorHost({"odd": Odd}), 1, "odd", "", "go")


@pytest.mark.parametrize(
    ("call", "version", "error", "message"),
    [
        (("acount", "", "deposit", 1), 1, UnknownActorError, "this node has no actor 'acount', only account, tally"),
        (("account", "", "deposti", 1), 1, UnknownActorError, "no command 'deposti'; its commands: deposit"),
        (("account", "", "deposit"), 1, UnknownActorError, "Account.deposit(amount: int) -> int does not take ()"),
        (("account", "", "total"), 1, UnknownActorError, "Account.total is a query, not a command"),
        (("account", "", "deposit", 1), 3, RequestError, "uses version 3 of account, but this node runs version 2"),
    ],
)
def test_a_leader_refuses_commands_that_its_code_does_not_have(
    host: ActorHost, call: tuple[Any, ...], version: int, error: type[Exception], message: str
) -> None:
    commands = host.decode(batch_of(1, ("account", "", "deposit", 1))) + host.decode(batch_of(2, call, version=version))
    with pytest.raises(error) as caught:
        host.check(commands)
    assert message in str(caught.value)
    host.check(commands[:1])


@pytest.mark.parametrize(
    ("call", "version", "message"),
    [
        (("orders", "", "add", 1), 1, "orders.add(1) at index 4, but this node's code has no actor 'orders'"),
        (("account", "k", "lend", 1), 1, "account['k'].lend(1) at index 4, but this node's code has no command 'lend'"),
        (("account", "", "deposit", 1), 3, "has version 2 of the actor, but the command needs version 3"),
    ],
)
def test_a_committed_command_that_the_code_does_not_have_stops_the_node(
    host: ActorHost, call: tuple[Any, ...], version: int, message: str
) -> None:
    with pytest.raises(OutdatedCodeError) as caught:
        apply(host, 4, call, version=version)
    assert message in str(caught.value)
    assert "upgrade" in caught.value.remedy


def test_a_call_by_name_carries_no_version_and_passes(host: ActorHost) -> None:
    batch = batch_of(1, ("account", "", "look"), version=0)
    commands = host.decode(batch)
    host.check(commands)
    assert decode_result(host.apply(batch, commands)[0])["version"] == 0


@pytest.mark.parametrize(
    ("name", "method", "arguments", "error", "message"),
    [
        ("acount", "total", [], UnknownActorError, "this node has no actor 'acount'"),
        ("account", "totl", [], UnknownActorError, "no query 'totl'; its queries: broken, clock, roll, total"),
        ("account", "deposit", [1], UnknownActorError, "Account.deposit is a command, not a query"),
        ("account", "total", [1], UnknownActorError, "does not take (1)"),
        ("account", "broken", ["result"], RequestError, "the result is an object"),
    ],
)
def test_a_query_that_can_not_be_answered_is_refused(
    host: ActorHost, name: str, method: str, arguments: list[Any], error: type[Exception], message: str
) -> None:
    call(host, 1, "account", "", "deposit", 1)
    with pytest.raises(error) as caught:
        host.query(name, "", method, encode_arguments(arguments, {}))
    assert message in str(caught.value)


def test_an_unknown_actor_of_a_node_without_actors_is_refused_with_the_setting_that_adds_one() -> None:
    with pytest.raises(UnknownActorError) as caught:
        ActorHost({}).query("account", "", "total", encode_arguments([], {}))
    assert str(caught.value.message) == "this node has no actor 'account', and no other one"
    assert "[actors] NAME = MODULE:CLASS" in caught.value.remedy


def test_any_error_of_a_query_is_its_result_and_no_reason_to_stop(host: ActorHost) -> None:
    """It runs on one member only, so members need not agree on it."""
    call(host, 1, "account", "", "deposit", 1)
    with pytest.raises(CommandError, match="OSError: disk"):
        ask(host, "account", "", "broken", "os")
    with pytest.raises(CommandError, match="TooMuchError: ask less"):
        ask(host, "account", "", "broken", "x")


def test_actors_are_listed_and_described(host: ActorHost) -> None:
    call(host, 1, "account", "a", "deposit", 1)
    account, tally = host.list()
    assert (account["name"], account["class"], account["version"], account["instances"]) == ("account", "Account", 2, 1)
    assert len(account["digest"]) == 16
    assert tally["digest"] == "0" * 16
    described = host.describe("account")
    assert described["name"] == "account"
    assert described["commands"]["deposit"]["parameters"] == [["amount", 1, False, "int"]]
    with pytest.raises(UnknownActorError):
        host.describe("acount")


def test_a_command_that_returns_nothing_has_the_result_of_nothing(host: ActorHost) -> None:
    class Silent(ReplicatedActor):
        @command
        def go(self) -> None: ...

    assert apply(ActorHost({"s": Silent}), 1, ("s", "", "go")) == [NO_RESULT]


def test_an_argument_that_the_state_keeps_is_the_members_own(host: ActorHost) -> None:
    """If one command keeps an object and a later one changes it, the listed change of the first must stay the same."""

    class Keeper(ReplicatedActor):
        def __init__(self) -> None:
            self.lines: list[int] = []

        @command
        def keep(self, lines: list[int]) -> None:
            self.lines = lines

        @command
        def add(self, n: int) -> list[int]:
            self.lines.append(n)
            return self.lines

    keeper = ActorHost({"k": Keeper})
    apply(keeper, 1, ("k", "", "keep", [1]), ("k", "", "add", 2))
    assert keeper.describe_index(1) == "k.keep([1])"
    assert [decode_result(change[6]) for change in keeper.changes("k", None, 1)[0]] == [None, [1, 2]]


class Large(ReplicatedActor):
    """Returns or raises an oversized value, after it has changed its state."""

    def __init__(self) -> None:
        self.calls = 0

    @command
    def give(self, size: int) -> str:
        self.calls += 1
        return "x" * size

    @command
    def refuse(self, size: int) -> None:
        self.calls += 1
        raise TooMuchError("y" * size)

    @command
    def mumble(self, how: str) -> None:
        self.calls += 1
        raise {"text": UnspeakableError(), "number": KeyError(10**5000)}[how]

    @query
    def look(self, size: int) -> str:
        if size < 0:
            raise TooMuchError("z" * -size)
        return "x" * size

    @query
    def called(self) -> int:
        return self.calls


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def limited(limit: int, *calls: tuple[str, object]) -> tuple[ActorHost, list[bytes]]:
    """Apply one batch, admitted by a leader with this limit."""
    host = ActorHost({"large": Large}, result_bytes_max=1000)
    batch = batch_of(1, *(("large", "", method, argument) for method, argument in calls))
    batch.first_position = Position(limit)
    return host, host.apply(batch, host.decode(batch))


def test_a_result_over_the_limit_is_dropped_and_the_command_stays_applied() -> None:
    host, (fits, large) = limited(1000, ("give", 990), ("give", 1001))
    assert decode_result(fits) == "x" * 990
    with pytest.raises(ResultTooLargeError, match=r"was carried out; its result of 1,005 bytes") as caught:
        decode_result(large)
    assert caught.value.kind == "ResultTooLargeError"
    assert "do not call a command again" in caught.value.remedy
    assert ask(host, "large", "", "called") == 2


def test_the_text_of_an_error_is_cut() -> None:
    _, (refusal,) = limited(4096, ("refuse", 70_000_000))
    assert len(refusal) < 4096
    with pytest.raises(CommandError, match=r"TooMuchError: y+\.\.\. \(70,000,000 characters\)"):
        decode_result(refusal)


@pytest.mark.parametrize(("how", "kind"), [("text", "UnspeakableError"), ("number", "KeyError")])
def test_an_error_whose_text_cannot_be_had_is_a_result_all_the_same(how: str, kind: str) -> None:
    """Otherwise it would stop every member, and again at each replay."""
    _, (refusal,) = limited(4096, ("mumble", how))
    with pytest.raises(CommandError) as caught:
        decode_result(refusal)
    assert caught.value.kind == kind


def test_the_results_of_a_batch_are_limited_together() -> None:
    """The results of a batch are sent in one response and kept together, so their sum has to be bounded."""
    host, results = limited(1000, *[("give", 900)] * 30, ("give", 10))
    kept = [result for result in results[:-1] if b"ResultTooLargeError" not in result]
    assert 10 < len(kept) < 20
    assert sum(map(len, results)) < 20_000
    assert decode_result(results[-1]) == "x" * 10
    assert ask(host, "large", "", "called") == 31


def test_the_answer_of_a_query_is_limited_too() -> None:
    host = ActorHost({"large": Large}, result_bytes_max=5000)
    assert ask(host, "large", "", "look", 4000) == "x" * 4000
    with pytest.raises(ResultTooLargeError):
        ask(host, "large", "", "look", 5000)
    with pytest.raises(CommandError, match=r"TooMuchError: z+\.\.\. \(1,000,000 characters\)"):
        ask(host, "large", "", "look", -1_000_000)
