"""Random histories of sinks, leaders and members against a model in plain Python: a list of records per topic.

The model has no sparse maps, checksums or admission. Its statement about a topic is the list of records that a reader
has to get, each with its place in the log.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgpack
import pytest

from tests.streams.log import (
    Log,
    abort,
    begin,
    commit,
    configure_topic,
    create_topic,
    entries,
    forget,
    open_session,
    pieces,
    records,
    seal,
    staged,
    trim_topic,
)
from viewstamp.errors import FencedError, OverloadedError, RequestError, StagingError, TrimmedError, UnavailableError
from viewstamp.node.state_machine import (
    Accepted,
    Answered,
    CommitEffectQuery,
    LocationQuery,
    Placement,
    SinkQuery,
    SnapshotView,
    SplitQuery,
    TimeQuery,
    TopicQuery,
    Waiting,
)
from viewstamp.streams import Streams
from viewstamp.wire.batch import Batch, Kind
from viewstamp.wire.staged import ENTRY_SIZE, decode_commit, entries_of, pack_entry

SECOND = 1_000_000
SINKS = ("s", "t")
TOPICS = 2
QUOTA = 400_000


class Stored(NamedTuple):
    """A record of a topic: its batch, its place there, and the index and time of its appearance."""

    index: int  # type: ignore[assignment]
    offset: int
    visible: int
    time: int


@dataclass
class Try:
    """An attempt in the model."""

    sink: str
    batch: int
    name: str
    keep_seconds: int
    gone_at: float
    """The attempt is dropped when the log has this many bytes."""
    time: int
    held: list[Batch] = field(default_factory=list)
    is_sealed: bool = False


@dataclass
class Sink:
    """A sink in the model."""

    owner: str
    run: str = ""
    former_owners: set[str] = field(default_factory=set)
    former_runs: set[str] = field(default_factory=set)
    batch: int = -1
    answer: dict[str, Any] | None = None
    """The answer to the COMMIT of ``batch``."""
    forget_seconds: int = 0
    used: int = 0


@dataclass
class Topic:
    """A topic in the model, with every record that it got."""

    records: list[Stored] = field(default_factory=list)
    trimmed: int = 1
    """All positions below it were deleted by a trim, not by the retention."""
    first: int = 1
    retain_bytes: int = 0


class Model:
    """The meaning of the log. One call per batch, in order: the answer, or the class of the refusal."""

    def __init__(self) -> None:
        self.sinks: dict[str, Sink] = {}
        self.tries: dict[int, Try] = {}
        self.topics = {number: Topic() for number in range(1, TOPICS + 1)}
        self.batches: dict[int, Batch] = {}
        self.idle: set[int] = set()
        """The COMMITs without an effect."""
        self.commits = 0
        self.next_second = 0
        self.log_bytes = 0
        """The size of all batches before the present one."""

    def apply(self, batch: Batch) -> Any:
        """Apply a committed batch."""
        self.batches[batch.first_index] = batch
        is_due = any(self.log_bytes >= attempt.gone_at for attempt in self.tries.values())
        if batch.log_time >= self.next_second or is_due:
            self._drop(lambda t: batch.log_time - t.time > t.keep_seconds * SECOND or self.log_bytes >= t.gone_at)
            busy = {attempt.sink for attempt in self.tries.values()}
            for name, sink in list(self.sinks.items()):
                is_old = sink.forget_seconds and batch.log_time > sink.used + sink.forget_seconds * SECOND
                if is_old and name not in busy:
                    del self.sinks[name]
        self.next_second = max(self.next_second, (batch.log_time // SECOND + 1) * SECOND)
        answer = self._apply(batch)
        self.log_bytes += batch.size
        return answer

    def _apply(self, batch: Batch) -> Any:
        match batch.kind:
            case Kind.RECORDS:
                self._append(batch.topic, batch, batch)
            case Kind.CONFIGURE_TOPIC:
                settings = msgpack.unpackb(batch.values()[0])
                self.topics[int(settings["name"][1:])].retain_bytes = settings["retain_bytes"]
            case Kind.STAGED:
                attempt = self.tries.get(batch.attempt)
                if attempt is not None and not attempt.is_sealed:
                    attempt.held.append(batch)
                    attempt.time = batch.log_time
            case Kind.COMMIT:
                answer = self.judge_commit(batch)
                if type(answer) is type or answer["commit"]["duplicate"]:
                    self.idle.add(batch.first_index)
                    return answer
                self._commit(batch, answer["commit"])
                return answer
            case Kind.BEGIN_ATTEMPT | Kind.SEAL_ATTEMPT | Kind.ABORT_ATTEMPTS | Kind.FORGET_SINK:
                fields = msgpack.unpackb(batch.values()[0])
                return {
                    Kind.BEGIN_ATTEMPT: self._begin,
                    Kind.SEAL_ATTEMPT: self._seal,
                    Kind.ABORT_ATTEMPTS: self._abort,
                    Kind.FORGET_SINK: self._forget,
                }[batch.kind](fields, batch)
            case _:
                pass
        return None

    def _append(self, topic: int, batch: Batch, visible: Batch) -> None:
        self.topics[topic].records.extend(
            Stored(batch.first_index, offset, visible.first_index, visible.log_time) for offset in range(batch.count)
        )

    def judge_begin(self, fields: dict[str, Any]) -> Any:
        """Return the answer if nothing has to be begun, the refusal, or None."""
        sink = self.sinks.get(fields["sink"])
        if sink is None:
            return None
        if fields["owner"] != sink.owner:
            return None if fields["reset"] and fields["owner"] not in sink.former_owners else FencedError
        if fields["run"] in sink.former_runs:
            return FencedError
        if fields["batch"] <= sink.batch:
            return {"attempt": 0, "commit": self._duplicate(fields["sink"], fields["batch"])}
        return None

    def _begin(self, fields: dict[str, Any], batch: Batch) -> Any:
        judged = self.judge_begin(fields)
        if judged is not None:
            return judged
        name, owner, run = fields["sink"], fields["owner"], fields["run"]
        sink = self.sinks.setdefault(name, Sink(owner))
        sink.forget_seconds, sink.used = fields.get("forget_seconds", 0), batch.log_time
        if owner != sink.owner:
            times = {"forget_seconds": sink.forget_seconds, "used": sink.used}
            self.sinks[name] = sink = Sink(owner, former_owners=sink.former_owners | {sink.owner}, **times)
            self._drop(lambda t: t.sink == name)
        if run != sink.run:
            sink.former_runs |= {sink.run} if sink.run else set()
            sink.run = run
            self._drop(lambda t: t.sink == name)
        for number, each in self.tries.items():
            if (each.sink, each.batch, each.name) == (name, fields["batch"], fields["name"]):
                return {"attempt": number}
        gone_at = self.log_bytes + fields["keep_bytes"] if fields["keep_bytes"] else float("inf")
        self.tries[batch.first_index] = Try(
            name, fields["batch"], fields["name"], fields["keep_seconds"], gone_at, batch.log_time
        )
        return {"attempt": batch.first_index}

    def _seal(self, fields: dict[str, Any], batch: Batch) -> Any:
        attempt = self.tries.get(fields["attempt"])
        if attempt is None:
            return StagingError
        same = msgpack.unpackb(seal(fields["attempt"], entries(*attempt.held)).values()[0])
        if fields != same:
            return StagingError
        attempt.is_sealed = True
        attempt.time = batch.log_time
        return {}

    def _abort(self, fields: dict[str, Any], _: Batch) -> Any:
        sink = self.sinks.get(fields["sink"])
        if sink is not None and sink.run == fields["run"]:
            wanted = fields["attempt"]
            doomed = [number for number in self.tries if wanted in (0, number)]
            self._drop(lambda t: t.sink == fields["sink"] and t.batch == fields["batch"], doomed)
        return {}

    def _forget(self, fields: dict[str, Any], _: Batch) -> Any:
        if fields["name"] not in self.sinks:
            return RequestError
        del self.sinks[fields["name"]]
        self._drop(lambda t: t.sink == fields["name"])
        return {}

    def judge_commit(self, batch: Batch) -> Any:
        """Return the answer to a COMMIT that would be applied now, or the class of its refusal."""
        request = decode_commit(batch)
        sink = self.sinks.get(request.sink)
        if sink is None:
            return StagingError
        if request.owner != sink.owner or request.run in sink.former_runs:
            return FencedError
        if request.batch <= sink.batch:
            return {"commit": self._duplicate(request.sink, request.batch)}
        if request.run != sink.run:
            return FencedError
        for number, packed in request.parts:
            attempt = self.tries.get(number)
            if attempt is None or (attempt.sink, attempt.batch) != (request.sink, request.batch):
                return StagingError
            if not attempt.is_sealed or packed != entries(*attempt.held):
                return StagingError
        if len({number for number, _ in request.parts}) < len(request.parts):
            return StagingError
        ranges: dict[int, list[Any]] = {}
        for _, packed in request.parts:
            for entry in entries_of(packed):
                first = len(self.topics[entry.topic].records) + 1
                ranges.setdefault(entry.topic, [f"t{entry.topic}", first, 0])[2] += entry.count
        return {
            "commit": {
                "sink": request.sink,
                "batch": request.batch,
                "duplicate": False,
                "ranges": list(ranges.values()),
                "index": batch.first_index,
                "log_time": batch.log_time,
            }
        }

    def _commit(self, batch: Batch, answer: dict[str, Any]) -> None:
        request = decode_commit(batch)
        for number, _ in request.parts:
            for each in self.tries[number].held:
                self._append(each.topic, each, batch)
        sink = self.sinks[request.sink]
        sink.batch, sink.answer, sink.used = request.batch, answer, batch.log_time
        self._drop(lambda t: t.sink == request.sink and t.batch <= request.batch)
        self.commits += 1

    def _duplicate(self, name: str, number: int) -> dict[str, Any]:
        sink = self.sinks[name]
        assert sink.answer is not None
        if number == sink.batch:
            return sink.answer | {"duplicate": True}
        nothing: dict[str, Any] = {"ranges": None, "index": 0, "log_time": 0}
        return {"sink": name, "batch": number, "duplicate": True} | nothing

    def _drop(self, is_doomed: Callable[[Try], bool], among: list[int] | None = None) -> None:
        for number in list(self.tries) if among is None else among:
            if is_doomed(self.tries[number]):
                del self.tries[number]

    @property
    def staged_bytes(self) -> int:
        """The size of all batches staged and not committed."""
        return sum(batch.size for attempt in self.tries.values() for batch in attempt.held)


@dataclass
class Copy:
    """A cut of the leader's machine that is being handed out, and the batches applied since its beginning."""

    cut: SnapshotView
    digest: bytes
    pieces: list[bytes] = field(default_factory=list)
    since: list[Batch] = field(default_factory=list)

    def hand_out(self, bytes_max: int) -> bool:
        """Take the next piece; False = there was none."""
        piece = self.cut.next_piece(bytes_max)
        if piece is not None:
            self.pieces.append(piece)
        return piece is not None


class History:
    """A leader's log over one machine, a second member, the model of both, and random users."""

    def __init__(self, seed: int) -> None:
        self.entropy = random.Random(seed)
        self.model = Model()
        self.log = Log(self._fresh())
        self.member = self._fresh()
        self.copy: Copy | None = None
        self.runs = 1
        self.owners = 1
        self.happened: Counter[str] = Counter()
        for number in self.model.topics:
            self.log.propose(create_topic(f"t{number}"))
        self.session = int(self.log.next_index)
        self.log.propose(open_session())
        self._apply_all()

    @staticmethod
    def _fresh() -> Streams:
        return Streams(staged_bytes_max=QUOTA)

    def run(self, steps: int) -> None:
        """Take ``steps`` random steps, and compare after each."""
        weights = {
            self.begin: 6,
            self.stage: 14,
            self.seal: 7,
            self.commit: 7,
            self.abort: 1,
            self.forget: 0.2,
            self.records: 4,
            self.trim: 0.7,
            self.configure: 0.3,
            self.let_time_pass: 0.5,
            self.apply_some: 8,
            self.change_leader: 1,
            self.replace_member: 0.3,
            self.copy_some: 2,
        }
        actions, chances = list(weights), list(weights.values())
        for step in range(steps):
            action = self.entropy.choices(actions, chances)[0]
            action()
            self.happened[action.__name__] += 1
            self.check_some(whole=step % 50 == 0)
        self._apply_all()
        self.check_some(whole=True)
        for number in self.model.topics:
            self.check_reading(number, self.model.topics[number].first)

    # Applying.

    def _apply_all(self) -> None:
        while self.log.unapplied:
            self._apply()

    def _apply(self) -> None:
        batch = self.log.unapplied[0]
        expected = self.model.apply(batch)
        if self.copy is not None:
            self.copy.since.append(batch)
        if type(expected) is type:
            with pytest.raises(RequestError) as refused:
                self.log.apply()
            assert refused.type is expected
            with pytest.raises(expected):
                self.member.apply(batch)
        else:
            result = self.log.apply()
            assert self.member.apply(batch) == result
            if expected is not None:
                assert result == expected
                self.happened[f"{batch.kind.name} applied"] += 1
            elif batch.kind in (Kind.RECORDS, Kind.STAGED):
                assert isinstance(result, Placement)
                assert result.first_index == batch.first_index

    def apply_some(self) -> None:
        for _ in range(self.entropy.randint(1, 4)):
            if self.log.unapplied:
                self._apply()

    def change_leader(self) -> None:
        """A suffix of the log is cut and the rest applied; then the same or the other machine leads."""
        kept = self.entropy.randint(0, len(self.log.unapplied))
        cut = self.log.unapplied[kept:]
        self.log.unapplied = self.log.unapplied[:kept]
        next_index = cut[0].first_index if cut else self.log.next_index
        self.log.machine.stop_leading()
        self._apply_all()
        machine = self.log.machine
        if self.copy is None and self.entropy.random() < 0.5:
            machine, self.member = self.member, machine
        seconds = self.log.seconds
        self.log = Log(machine, first_index=next_index, term=self.log.term + 1)
        self.log.seconds = seconds

    def let_time_pass(self) -> None:
        self.log.seconds += self.entropy.choice((1, 5, 60))

    # Copies.

    def replace_member(self) -> None:
        if self.copy is None:
            self.member = self._fresh()
            self.member.adopt(self.member.prepare(list(pieces(self.log.machine.begin_snapshot()))))

    def copy_some(self) -> None:
        """Hand out a piece of a cut.

        After the last, replace the member by these pieces and all batches applied since.
        """
        if self.copy is None:
            machine = self.log.machine
            self.copy = Copy(machine.begin_snapshot(), machine.digest())
        elif not self.copy.hand_out(self.entropy.choice((1, 1000))):
            self.member = self._fresh()
            self.member.adopt(self.member.prepare(self.copy.pieces))
            assert self.member.digest() == self.copy.digest
            for batch in self.copy.since:
                try:
                    self.member.apply(batch)
                except RequestError:
                    self.happened["refused again"] += 1
            self.copy = None
            assert self.member.digest() == self.log.machine.digest()

    # Sinks.

    def _sink(self) -> tuple[str, str, str]:
        """Return a sink, and an owner and a run for it: mostly the present ones."""
        name = self.entropy.choice(SINKS)
        sink = self.model.sinks.get(name)
        owner = sink.owner if sink is not None else "o0"
        run = sink.run if sink is not None and sink.run else "r0"
        chance = self.entropy.random()
        if chance < 0.05:
            run = f"r{self.entropy.randrange(self.runs)}"
        elif chance < 0.1:
            owner = f"o{self.entropy.randrange(self.owners)}"
        return name, owner, run

    def _propose(self, batch: Batch, expected: Any) -> None:
        """Propose a command; the model expects an answer at once, a refusal, or (None) a place in the log."""
        if type(expected) is type:
            with pytest.raises(RequestError) as refused:
                self.log.propose(batch)
            assert refused.type is expected
            self.happened[f"{batch.kind.name} {expected.__name__}"] += 1
        elif expected is not None:
            assert self.log.propose(batch) == Answered(expected)
            self.happened[f"{batch.kind.name} answered"] += 1
        else:
            assert isinstance(self.log.propose(batch), Accepted)

    def begin(self) -> None:
        name, owner, run = self._sink()
        chance = self.entropy.random()
        if chance < 0.06:
            run, self.runs = f"r{self.runs}", self.runs + 1
        elif chance < 0.08:
            owner, self.owners = f"o{self.owners}", self.owners + 1
        sink = self.model.sinks.get(name)
        number = max(0, (sink.batch if sink is not None else -1) + self.entropy.choice((-1, 0, 1, 1, 1, 1, 2)))
        batch = begin(
            name,
            number,
            f"p{self.entropy.randrange(4)}",
            owner=owner,
            run=run,
            reset=self.entropy.random() < 0.5,
            keep_seconds=self.entropy.choice((2, 3600)),
            keep_bytes=self.entropy.choice((0, 0, 100_000)),
            **self.entropy.choice(({}, {}, {"forget_seconds": 3})),
        )
        self._propose(batch, self.model.judge_begin(msgpack.unpackb(batch.values()[0])))

    def _try(self) -> int:
        """Return an attempt, mostly one that exists."""
        tries = list(self.model.tries)
        if not tries or self.entropy.random() < 0.05:
            return self.entropy.randrange(1, self.log.next_index)
        return self.entropy.choice(tries)

    def _sequence(self) -> int:
        used = [batch.sequence for batch in self.log.unapplied if batch.session == self.session]
        return max([self.log.machine._state.sessions.find(self.session).last, *used]) + 1  # type: ignore[arg-type]

    def stage(self) -> None:
        attempt, topic = self._try(), self.entropy.randint(1, TOPICS)
        count, size = self.entropy.randint(1, 3), self.entropy.choice((8, 8, 8, 5000, 30_000))
        batch = staged(attempt, topic, self.session, self._sequence(), count, size)
        held = self.model.tries.get(attempt)
        if held is None or held.is_sealed:
            self._propose(batch, StagingError)
            return
        beyond = self.model.staged_bytes + batch.size > QUOTA
        try:
            admission = self.log.propose(batch)
        except OverloadedError:
            in_log = sum(each.size for each in self.log.unapplied if each.kind is Kind.STAGED)
            assert self.model.staged_bytes + in_log + batch.size > QUOTA
            self.happened["over the quota"] += 1
        except RequestError:
            assert beyond
        else:
            assert isinstance(admission, Accepted)
            assert not beyond
            assert admission.first_position == 0
        if self.entropy.random() < 0.02 and self.log.unapplied and self.log.unapplied[-1] is batch:
            again = staged(attempt, topic, self.session, batch.sequence, count, size)
            assert isinstance(self.log.propose(again), Waiting)

    def seal(self) -> None:
        attempt = self._try()
        held = self.model.tries.get(attempt)
        said = entries(*held.held) if held is not None else b""
        if self.entropy.random() < 0.1:
            said = said[ENTRY_SIZE:] if said else pack_entry(1, 1, 1, 100)
        self._propose(seal(attempt, said), None)

    def commit(self) -> None:
        name, owner, run = self._sink()
        sink = self.model.sinks.get(name)
        sealed = [(number, each) for number, each in self.model.tries.items() if each.is_sealed and each.sink == name]
        numbers = sorted({each.batch for _, each in sealed})
        if numbers and self.entropy.random() < 0.9:
            number = self.entropy.choice(numbers)
        else:
            number = max(0, (sink.batch if sink is not None else -1) + self.entropy.choice((-1, 0, 0, 1)))
        chosen = [(each, entries(*held.held)) for each, held in sealed if held.batch == number]
        self.entropy.shuffle(chosen)
        chosen = chosen[: self.entropy.choice((len(chosen), len(chosen), 1))]
        chance = self.entropy.random()
        if chance < 0.03:
            chosen.append((self._try(), pack_entry(1, 1, 1, 100)))
        elif chance < 0.06 and chosen:
            chosen.append(self.entropy.choice(chosen))
        elif chance < 0.09 and chosen and chosen[0][1]:
            chosen[0] = (chosen[0][0], chosen[0][1][ENTRY_SIZE:])
        for _ in range(self.entropy.choice((1, 1, 1, 2))):
            batch = commit(*chosen, sink=name, batch=number, owner=owner, run=run)
            judged = self.model.judge_commit(batch)
            fresh = type(judged) is dict and not judged["commit"]["duplicate"]
            self._propose(batch, None if fresh else judged)

    def abort(self) -> None:
        name, _, run = self._sink()
        attempt = self._try() if self.entropy.random() < 0.3 else 0
        self._propose(abort(name, self.entropy.randint(0, 20), run, attempt), None)
        held = self.model.tries.get(attempt)
        if held is not None:
            self._propose(abort(held.sink, held.batch, self.model.sinks[held.sink].run, attempt), None)

    def forget(self) -> None:
        self._propose(forget(self.entropy.choice(SINKS)), None)

    # Topics.

    def records(self) -> None:
        topic = self.entropy.randint(1, TOPICS)
        count, size = self.entropy.randint(1, 3), self.entropy.choice((8, 8, 30_000))
        batch = records(topic, self.session, self._sequence(), count, size)
        deciding = any(
            entry.topic == topic
            for each in self.log.unapplied
            if each.kind is Kind.COMMIT
            for _, packed in decode_commit(each).parts
            for entry in entries_of(packed)
        )
        if deciding:
            with pytest.raises(UnavailableError, match="a sink's commit to topic"):
                self.log.propose(batch)
            self.happened["records wait for a commit"] += 1
        else:
            assert isinstance(self.log.propose(batch), Accepted)

    def trim(self) -> None:
        number = self.entropy.randint(1, TOPICS)
        topic = self.model.topics[number]
        position = self.entropy.randint(topic.first, len(topic.records) + 1)
        self.log.propose(trim_topic(f"t{number}", position))
        self._apply_all()
        topic.trimmed = max(topic.trimmed, position)

    def configure(self) -> None:
        self._apply_all()
        self.check_some(whole=False)  # By the records kept until now.
        number = self.entropy.randint(1, TOPICS)
        self.log.propose(configure_topic(f"t{number}", retain_bytes=self.entropy.choice((0, 0, 100_000))))
        self._apply_all()

    # Comparing.

    def check_some(self, *, whole: bool) -> None:
        """Compare the topics and sinks of the state machine with those of the model.

        Args:
          whole: also compare the digests of the two state machines, and the records of each topic. This takes longer.
        """
        machine = self.log.machine
        if whole:
            assert self.member.digest() == machine.digest()
        for number, topic in self.model.topics.items():
            described = machine.query(TopicQuery(name=f"t{number}"))
            assert isinstance(described, dict)
            assert described["last_position"] == len(topic.records)
            self._check_first(topic, described)
            if whole and topic.first <= len(topic.records):
                self.check_reading(number, self.entropy.randint(topic.first, len(topic.records)))
                self._check_times(number, topic)
                self._check_split(number, topic)
        for name, sink in self.model.sinks.items():
            found = machine.query(SinkQuery(name=name))
            assert isinstance(found, dict)
            tries = [each for each in self.model.tries.values() if each.sink == name]
            assert (found["owner"], found["run"], found["batch"]) == (sink.owner, sink.run, sink.batch)
            assert found["attempts"] == len(tries)
            assert found["sealed"] == sum(each.is_sealed for each in tries)
        assert machine.status()["staged_bytes"] == self.model.staged_bytes
        self._check_kept()

    def _check_first(self, topic: Topic, described: dict[str, Any]) -> None:
        """Trimmed records are gone, retention drops only those that it may, and no record comes back."""
        first = described["first_position"]
        assert first >= max(topic.first, topic.trimmed)
        if first > max(topic.first, topic.trimmed):
            kept = {stored.index for stored in topic.records[first - 1 :]}
            assert topic.retain_bytes, "only retention takes more than was asked for"
            assert sum(self.model.batches[index].size for index in kept) >= topic.retain_bytes
        topic.first = first

    def check_reading(self, number: int, position: int) -> None:
        """Scan the log from the place in the topic's map; get the model's records from ``position`` to the end."""
        machine, topic = self.log.machine, self.model.topics[number]
        located = machine.query(LocationQuery(topic=number, position=position))
        assert isinstance(located, tuple)
        index, at = located
        found: dict[int, tuple[int, int, int, int]] = {}
        for batch in [self.model.batches[each] for each in sorted(self.model.batches) if each >= index]:
            if batch.kind is Kind.RECORDS and batch.topic == number:
                assert batch.first_position == at, "what is visible where the map says does not end here"
                for offset in range(batch.count):
                    found[at + offset] = (batch.first_index, offset, batch.first_index, batch.log_time)
                at += batch.count
            elif batch.kind is Kind.COMMIT and machine.query(CommitEffectQuery(index=batch.first_index)):
                for _, packed in decode_commit(batch).parts:
                    for entry in entries_of(packed):
                        if entry.topic == number:
                            for offset in range(entry.count):
                                found[at + offset] = (entry.index, offset, batch.first_index, batch.log_time)
                            at += entry.count
        assert at == len(topic.records) + 1
        assert [found[each] for each in range(position, at)] == topic.records[position - 1 :]
        times = [stored.time for stored in topic.records]
        assert times == sorted(times)
        if topic.first > 1:
            with pytest.raises(TrimmedError):
                machine.query(LocationQuery(topic=number, position=topic.first - 1))

    def _check_kept(self) -> None:
        """The log, and the entries of the maps, are kept from the oldest record that is visible or staged."""
        needed: list[int] = [batch.first_index for each in self.model.tries.values() for batch in each.held]
        for topic in self.model.topics.values():
            needed += [stored.index for stored in topic.records[topic.first - 1 :]]
        kept_from = self.log.machine.keep_from()
        if needed:
            assert kept_from is not None
            assert kept_from <= min(needed)
            assert self.log.machine.explain_kept()
        else:
            assert kept_from is None

    def _check_times(self, number: int, topic: Topic) -> None:
        time = self.entropy.choice(topic.records).time + self.entropy.choice((-1, 0, 1))
        position = self.log.machine.query(TimeQuery(name=f"t{number}", timestamp=time))
        assert isinstance(position, int)
        assert topic.first <= position <= len(topic.records) + 1
        assert all(stored.time < time for stored in topic.records[topic.first - 1 : position - 1])

    def _check_split(self, number: int, topic: Topic) -> None:
        start, end = sorted(self.entropy.randint(1, len(topic.records) + 1) for _ in range(2))
        start, end = max(start, topic.first), max(end, topic.first)
        parts = self.log.machine.query(
            SplitQuery(name=f"t{number}", start=start, end=end, bytes=self.entropy.choice((1, 1000, 100_000)))
        )
        assert isinstance(parts, list)
        assert parts == sorted(set(parts))
        assert (parts[0], parts[-1]) == (start, end)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_random_histories_equal_the_model(seed: int) -> None:
    history = History(seed)
    history.run(1200)
    assert history.model.commits > 20
    assert len(history.model.idle) > 5


def test_a_short_random_history_equals_the_model() -> None:
    history = History(100)
    history.run(150)
    assert history.model.commits > 0
