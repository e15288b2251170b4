"""The session core against a real state machine, with random faults of connections, leaders and copies.

Every answer to a caller must stay true for ever, even after every sent and lost copy has arrived at last.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import pytest

from tests.streams.log import Log, abort, begin, create_topic, fence, open_session
from viewstamp.actors.replicated import ReplicatedActor, command
from viewstamp.client.batches import COMMANDS, RECORD_COST, Completion, Request
from viewstamp.client.options import ClientOptions
from viewstamp.client.results import BatchReceipt
from viewstamp.client.session import Action, Session
from viewstamp.client.unsent import OpenBatches
from viewstamp.errors import (
    NotLeaderError,
    OutcomeUnknownError,
    OverloadedError,
    PositionMismatchError,
    RequestError,
    StorageFullError,
    UnavailableError,
    UnknownActorError,
    ViewstampError,
)
from viewstamp.ids import Position, SessionId, TopicId
from viewstamp.node.state_machine import Accepted, Answered, CommandResults, Placement, Result, TopicsQuery, Waiting
from viewstamp.streams import Streams
from viewstamp.wire.batch import Batch, Kind, build_batch
from viewstamp.wire.commands import decode_command, decode_result, encode_command
from viewstamp.wire.frame import FrameKind

TOPICS = 2
STAGED = -1
"""Stands for the topic of staged batches, for any topic."""
ROOM = 4 * build_batch([b"0000"]).size


class Register(ReplicatedActor):
    """Returns the number of earlier commands, so that a command that is applied twice shows in every later result."""

    def __init__(self) -> None:
        self.count = 0

    @command
    def add(self, caller: int) -> int:
        self.count += 1
        return self.count

    @command
    def insert(self, caller: int) -> int:
        self.count += 1
        return self.count


@dataclass
class Caller:
    """A caller of an append: its values and its answer."""

    number: int
    topic: int
    values: list[bytes]
    expected_position: int = 0
    told: list[int] | ViewstampError | None = None
    """Positions; for a command its result, for a block its index."""
    gone: bool = False

    def done(self) -> bool:
        return self.gone or self.told is not None


@dataclass
class Connection:
    """The frames in flight between the client and the leader, in both directions.

    Lost connections may still deliver.
    """

    requests: list[Request] = field(default_factory=list)
    answers: list[tuple[int, Result | ViewstampError]] = field(default_factory=list)


class Chaos:
    """One history from one seed.

    Each seed draws the weights of the events, so that some histories concentrate on one kind.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.log = Log(Streams({"register": Register}, sessions_max=2, staged_bytes_max=ROOM))
        self.whole_log: list[Batch] = []
        self.waiting: dict[int, list[tuple[Connection, int]]] = {}
        self.connection = Connection()
        self.lost: list[Connection] = []
        self.callers: list[Caller] = []
        self.expected: dict[bytes, Caller] = {}
        options = ClientOptions(
            batch_bytes=3 * (RECORD_COST + 8), batches_in_flight=3, batches_in_flight_far=3, batches_eager=1
        )
        self.batches: OpenBatches[Caller] = OpenBatches(options, lambda batch: None)
        self.session: Session[Caller] = Session(options, count(1), self.batches)
        for n in range(TOPICS):
            self.log.propose(create_topic(f"t{n}"))
            self.apply()
        self.attempt = 0
        self.mismatches = 0
        self.begin_another_attempt()
        self.open()

    # The client.

    def open(self) -> None:
        while True:
            try:
                self.log.propose(open_session())
                break
            except OverloadedError:
                self.apply()
        while self.log.unapplied:
            result = self.apply()
        assert isinstance(result, dict)
        session = result["session"]
        assert isinstance(session, int)
        self.session.opened(SessionId(session))

    def append(self) -> None:
        topic = self.random.randint(1, TOPICS)
        plain = self.random.random() < 0.6
        records = self.random.randint(1, 4)
        number = len(self.callers)
        values = [b"%04d.%03d" % (number, n) for n in range(1 if plain else records)]
        caller = Caller(number, topic, values)
        self.callers.append(caller)
        self.expected.update(dict.fromkeys(values, caller))
        size = sum(len(value) + RECORD_COST for value in values)
        if self.random.random() < self.expecting:
            ends = (topic["last_position"] for topic in self.log.machine.query(TopicsQuery()))  # type: ignore[attr-defined]
            caller.expected_position = list(ends)[topic - 1] + self.random.choice([0, 1, 1, 1, 2, 3])
        if plain and not caller.expected_position:
            self.batches.add(TopicId(topic), values[0], size, caller)
        else:
            self.batches.add_group(
                *(TopicId(topic), values, None, None, size, caller),
                atomic=True,
                expected_position=caller.expected_position,
            )

    def cancel(self) -> None:
        waiting = [caller for caller in self.callers if not caller.done()]
        if not waiting:
            return
        caller = self.random.choice(waiting)
        caller.gone = True
        for batch in self.batches.waiting:
            if caller in batch.waiters:
                batch.cancelled = True
                caller.told = UnavailableError("cancelled before it was sent")

    def compact(self) -> None:
        self.batches.compact()

    def pump(self) -> None:
        if not self.session.id:
            self.open()
        while (request := self.session.take_request()) is not None:
            self.connection.requests.append(request)

    def resume(self) -> None:
        self.session.resume()

    def lose_connection(self) -> None:
        self.lost.append(self.connection)
        self.connection = Connection()
        self.tell(self.session.lost())
        if not self.session.id:
            self.open()

    def call(self) -> None:
        number = len(self.callers)
        method = self.random.choice(["add", "add", "insert"])
        value = encode_command("register", "", 1, method, [number], {})
        caller = Caller(number, COMMANDS, [value])
        self.callers.append(caller)
        self.expected[value] = caller
        self.batches.add(COMMANDS, value, len(value) + RECORD_COST, caller)

    def stage(self) -> None:
        number = len(self.callers)
        caller = Caller(number, STAGED, [b"%04d" % number])
        self.callers.append(caller)
        topic = TopicId(self.random.randint(1, TOPICS))
        self.batches.add_block(topic, build_batch(caller.values).columns(), self.attempt, caller)

    def tell(self, settled: list[Completion[Caller]]) -> None:
        for batch, receipt, error in settled:
            for offset, size, caller in batch.spans():
                if caller.gone:
                    continue
                assert caller.told is None, "an answer comes once"
                if receipt is None:
                    caller.told = error(offset, size)
                elif batch.attempt:
                    assert (offset, receipt.first_position) == (0, 0), "a block is a batch, and has no position"
                    caller.told = [receipt.first_index]
                elif batch.topic == COMMANDS:
                    assert batch.results is not None, "the results of so few commands are kept"
                    caller.told = [decode_result(batch.results[offset])]
                else:
                    first = receipt.first_position + offset
                    caller.told = list(range(first, first + size))

    def hear(self) -> None:
        if not self.connection.answers:
            return
        request_id, answer = self.connection.answers.pop(0)
        if isinstance(answer, ViewstampError):
            action, settled = self.session.on_refused(request_id, answer)
            self.tell(settled)
            if action is Action.MOVE:
                self.lose_connection()
            elif action is Action.REOPEN:
                self.open()
            return
        receipt = results = None
        if isinstance(answer, CommandResults):
            answer, results = answer.receipt, answer.results
        if isinstance(answer, Placement):
            receipt = BatchReceipt(
                answer.first_position, answer.count, answer.term, answer.first_index, answer.log_time
            )
        if request_id == self.session.fence_request:
            self.tell(self.session.on_outcome(request_id, receipt, results))
        else:
            self.tell(self.session.on_receipt(request_id, receipt, results))

    # The leader.

    def deliver(self) -> None:
        refusal = None
        if self.random.random() < self.refusing:
            refusal = self.random.choice([OverloadedError, RequestError, StorageFullError, NotLeaderError])
        if self.connection.requests:
            self.arrive(self.connection, self.connection.requests.pop(0), refusal)

    def deliver_what_was_lost(self) -> None:
        """Copies of one lost connection arrive in order, but at any time, also much later."""
        late = [connection for connection in self.lost if connection.requests]
        if late:
            connection = self.random.choice(late)
            self.arrive(connection, connection.requests.pop(0), None)

    def arrive(self, connection: Connection, request: Request, refusal: type[ViewstampError] | None) -> None:
        if request.kind is FrameKind.OUTCOME:
            session, sequence = request.body["session"], request.body["sequence"]
            assert isinstance(session, int)
            assert isinstance(sequence, int)
            if refusal is RequestError:
                refusal = None
            batch = fence(session, sequence)
        else:
            batch = Batch.decode(bytearray(request.payload[0]))
            if request.kind is FrameKind.APPEND_AT:
                batch.first_position = Position(request.body["position"])  # type: ignore[arg-type]
            assert (batch.kind is Kind.COMMANDS) == (request.kind is FrameKind.CALL)
            assert (batch.kind is Kind.STAGED) == (request.kind is FrameKind.STAGE)
            if batch.kind is Kind.COMMANDS and refusal is RequestError:
                methods = {decode_command(value).method for value in batch.values()}
                refusal = UnknownActorError if "insert" in methods else None
        try:
            if refusal is not None:
                raise refusal("as drawn")
            admission = self.log.propose(batch)
        except ViewstampError as error:
            connection.answers.append((request.id, error))
            return
        if isinstance(admission, Answered):
            connection.answers.append((request.id, admission.result))
        elif isinstance(admission, Accepted):
            self.waiting.setdefault(self.log.unapplied[-1].first_index, []).append((connection, request.id))
        else:
            assert isinstance(admission, Waiting)
            original = next(
                b
                for b in self.log.unapplied
                if b.kind in (Kind.RECORDS, Kind.COMMANDS, Kind.STAGED)
                and (b.session, b.sequence) == (batch.session, batch.sequence)
            )
            self.waiting[original.first_index].append((connection, request.id))

    def apply(self) -> Result:
        batch = self.log.unapplied[0]
        result: Result | RequestError
        try:
            result = self.log.apply()
        except PositionMismatchError as error:
            result = error
            self.mismatches += 1
        self.whole_log.append(batch)
        for connection, request_id in self.waiting.pop(batch.first_index, []):
            connection.answers.append((request_id, result))
        return None if isinstance(result, RequestError) else result

    def commit(self) -> None:
        if self.log.unapplied:
            self.apply()

    def change_leader(self) -> None:
        """The end of the log is cut or stays; all waiting requests are refused because this node no longer leads."""
        unapplied = self.log.unapplied
        keep = self.random.randint(0, len(unapplied))
        cut = unapplied[keep:]
        next_index = cut[0].first_index if cut else self.log.next_index
        self.log.unapplied = unapplied[:keep]
        for waiting in self.waiting.values():
            for connection, request_id in waiting:
                connection.answers.append((request_id, NotLeaderError("deposed")))
        self.waiting = {}
        self.log.machine.stop_leading()
        while self.log.unapplied:
            self.apply()
        self.log = Log(self.log.machine, first_index=next_index, term=self.log.term + 1)

    def another_client_opens_a_session(self) -> None:
        try:
            self.log.propose(open_session())
        except OverloadedError:
            self.apply()

    def begin_another_attempt(self) -> None:
        """The batches staged for the previous attempt are dropped, which frees room; those in flight are refused."""
        self.log.propose(abort())
        batch = begin(name=f"p{self.attempt}")
        self.log.propose(batch)
        self.attempt = batch.first_index

    def somebody_fences(self) -> None:
        """Another process asks for the outcome of one of our appends."""
        back = self.random.randint(0, 3)
        sequence = self.session._next_sequence - 1 - back
        if self.session.id and sequence >= 1:
            try:
                self.log.propose(fence(self.session.id, sequence))
            except ViewstampError:
                return

    # The end.

    def run(self, steps: int) -> None:
        """Let random events happen, then end all faults, then let every lost copy arrive."""
        ordinary: list[Callable[[], None]] = [self.append, self.call, self.stage]
        ordinary += [self.pump, self.deliver, self.commit, self.hear]
        trouble: list[Callable[[], None]] = [
            self.cancel,
            self.compact,
            self.resume,
            self.lose_connection,
            self.deliver_what_was_lost,
            self.change_leader,
            self.another_client_opens_a_session,
            self.somebody_fences,
            self.begin_another_attempt,
        ]
        weights = [1.0] * len(ordinary) + [self.random.choice([0.0, 0.05, 0.3, 0.8]) for _ in trouble]
        self.refusing = self.random.choice([0.0, 0.05, 0.3])
        self.expecting = self.random.choice([0.0, 0.1, 0.5])
        for event in self.random.choices(ordinary + trouble, weights, k=steps):
            event()
        self.settle()

    def settle(self) -> None:
        for _ in range(1000):
            if not self.session.has_work:
                break
            self.session.resume()
            self.begin_another_attempt()
            self.pump()
            while self.connection.requests:
                self.arrive(self.connection, self.connection.requests.pop(0), None)
            while self.log.unapplied:
                self.apply()
            while self.connection.answers:
                self.hear()
        assert not self.session.has_work, "a healthy leader answers everything"
        assert self.batches.held_bytes == 0
        assert all(caller.done() for caller in self.callers)
        self.pump()
        for connection in self.lost:
            for request in connection.requests:
                self.arrive(connection, request, None)
        while self.log.unapplied:
            self.apply()
        self.check()

    def check(self) -> None:
        self.check_staged()
        for topic in range(TOPICS + 1):
            kind = Kind.RECORDS if topic else Kind.COMMANDS
            batches = [b for b in self.whole_log if b.kind is kind and b.topic == topic]
            held = [value for batch in batches for value in batch.values()]
            assert len(held) == len(set(held)), "nothing is applied twice"
            for caller in (caller for caller in self.callers if caller.topic == topic):
                found = [held.index(value) + 1 for value in caller.values if value in held]
                assert not found or caller.expected_position in (0, found[0]), "there, or nowhere"
                if isinstance(caller.told, list):
                    assert found == caller.told, "a receipt contains the positions of the records"
                elif isinstance(caller.told, ViewstampError) and not isinstance(caller.told, OutcomeUnknownError):
                    assert found == [], f"nothing was written, but the answer was {caller.told!r}"
                else:
                    assert len(found) in (0, len(caller.values)), "a group is atomic"
            if topic == COMMANDS:
                continue  # A divided batch may be overtaken.
            acknowledged = [c for c in self.callers if c.topic == topic and isinstance(c.told, list)]
            assert [c.told for c in acknowledged] == sorted(c.told for c in acknowledged), "the order of the calls"

    def check_staged(self) -> None:
        batches = [batch for batch in self.whole_log if batch.kind is Kind.STAGED]
        held = {batch.values()[0]: [batch.first_index] for batch in batches}
        assert len(held) == len(batches), "nothing is staged twice"
        for caller in (caller for caller in self.callers if caller.topic == STAGED):
            (value,) = caller.values
            if isinstance(caller.told, list):
                assert held.get(value) == caller.told, "a receipt contains the position of the block"
            elif isinstance(caller.told, ViewstampError) and not isinstance(caller.told, OutcomeUnknownError):
                assert value not in held, f"nothing was staged, but the answer was {caller.told!r}"
        assert list(held) == sorted(held), "the order of the calls"


@pytest.mark.slow
@pytest.mark.parametrize("first_seed", range(0, 600, 100))
def test_answers_to_callers_stay_true_for_ever(first_seed: int) -> None:
    mismatches = 0
    for seed in range(first_seed, first_seed + 100):
        chaos = Chaos(seed)
        try:
            chaos.run(150)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        mismatches += chaos.mismatches
    assert mismatches > 20
