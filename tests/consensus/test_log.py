from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.consensus.group import record
from viewstamp.consensus.log import RaftLog
from viewstamp.ids import Index
from viewstamp.wire.batch import Batch


class LogAgainstList(RuleBasedStateMachine):
    """The core's log against a plain list of batches and four numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.log = RaftLog(end=Index(1), commit_end=Index(1), tail=[], cache_bytes_max=300)
        self.batches: list[Batch] = []
        self.durable_end = self.commit_end = self.handed_end = 1
        self.term = 1

    @property
    def ends(self) -> list[int]:
        return [1, *(batch.end for batch in self.batches)]

    @rule(count=st.integers(1, 3))
    def append(self, count: int) -> None:
        batch = record(self.term, self.ends[-1], count=count)
        self.log.append(batch)
        self.batches.append(batch)

    @rule(data=st.data())
    def become_durable(self, data: st.DataObject) -> None:
        self.durable_end = data.draw(st.sampled_from([end for end in self.ends if end >= self.durable_end]))
        self.log.durable_end = Index(self.durable_end)

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.commit_end = data.draw(st.sampled_from([end for end in self.ends if end >= self.commit_end]))
        self.log.commit_end = Index(self.commit_end)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        end = data.draw(st.sampled_from([end for end in self.ends if end >= self.commit_end]))
        self.log.truncate(Index(end))
        self.batches = [batch for batch in self.batches if batch.end <= end]
        self.durable_end = min(self.durable_end, end)
        self.term += 1

    @rule()
    def hand_out(self) -> None:
        expected = [batch for batch in self.batches if self.handed_end < batch.end <= self.commit_end]
        assert self.log.hand_out() == expected
        self.handed_end = self.commit_end

    @rule()
    def evict(self) -> None:
        self.log.evict()

    @precondition(lambda self: self.batches)
    @rule(data=st.data(), bytes_max=st.integers(0, 500))
    def slice(self, data: st.DataObject, bytes_max: int) -> None:
        start = data.draw(st.sampled_from(self.ends[:-1]))
        found = self.log.slice(Index(start), bytes_max)
        following = [batch for batch in self.batches if batch.first_index >= start]
        if found is None:
            assert start < min(self.handed_end, self.durable_end), (
                "batches that are not both applied and durable stay in memory"
            )
            return
        assert found == tuple(following[: len(found)])
        assert len(found) == 1 or sum(batch.size for batch in found) <= bytes_max
        if len(found) < len(following):
            assert sum(batch.size for batch in following[: len(found) + 1]) > bytes_max

    @rule(data=st.data())
    def since(self, data: st.DataObject) -> None:
        start = data.draw(st.sampled_from(self.ends))
        expected = [batch for batch in self.batches if batch.end > start]
        found = self.log.since(Index(start))
        assert found == (expected[-len(found) :] if found else [])

    @invariant()
    def the_ends_agree(self) -> None:
        assert (self.log.end, self.log.durable_end, self.log.commit_end) == (
            self.ends[-1],
            self.durable_end,
            self.commit_end,
        )


LogAgainstList.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLogAgainstList = LogAgainstList.TestCase


def test_the_memory_of_evicted_batches_is_released_however_large_they_are() -> None:
    """A batch may take 8 MiB, so thirty evicted ones would keep a quarter of a gigabyte."""
    log = RaftLog(end=Index(1), commit_end=Index(1), tail=[], cache_bytes_max=2500)
    for index in range(1, 41):
        log.append(record(1, index, b"x" * 1000))
        log.durable_end = log.commit_end = log.end
        log.hand_out()
        log.evict()
        held = sum(batch.size for batch in log._batches)
        assert held <= 2 * 2500 + 1200, f"{held} bytes are held at index {index}"


def test_a_log_starts_with_the_tail_that_is_not_known_to_be_committed() -> None:
    tail = [record(1, 4), record(1, 5, count=2)]
    log = RaftLog(end=Index(7), commit_end=Index(5), tail=tail, cache_bytes_max=0)
    assert (log.handed_end, log.durable_end) == (5, 7)
    log.commit_end = Index(7)
    assert log.hand_out() == tail[1:]
    assert log.slice(Index(3), 100) is None
