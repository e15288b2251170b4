"""The session: batches, sequences, retries and what may be said about them. Sans-IO: knows no loop, socket or clock.

A runtime feeds it records and answers, sends what ``take_request`` returns, and tells the waiters in each
``Completion`` what became of their records. The package's docstring states the rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import Enum
from typing import Generic

from viewstamp.client.batches import (
    COMMANDS,
    Completion,
    InFlightBatch,
    OpenBatch,
    OpenBatches,
    Request,
    WaiterT,
    check_results,
    divide,
    fenced,
    not_kept,
    unwritten,
)
from viewstamp.client.options import ClientOptions
from viewstamp.client.results import BatchReceipt, new_tuple
from viewstamp.client.routing import Reaction, copies, reaction
from viewstamp.enums import fast_members
from viewstamp.errors import (
    ClosedError,
    OutcomeToken,
    OutcomeUnknownError,
    PeerError,
    PositionMismatchError,
    StaleSessionError,
    StorageFullError,
    UnknownActorError,
    ViewstampError,
)
from viewstamp.ids import Sequence, SessionId
from viewstamp.wire.requests import AppendBatch, AppendBatchAt, AskOutcome, CallActors, StageBatch
from viewstamp.wire.schema import RequestBody

__all__ = ["Action", "Session"]

_APPEND, _CALL, _STAGE = AppendBatch(), CallActors(), StageBatch()


@fast_members
class Action(Enum):
    """What the runtime does after a refusal."""

    GO_ON = 1
    """Ask ``take_request`` again."""
    BACK_OFF = 2
    """Wait a little, then ``resume``: the same node may take it later."""
    MOVE = 3
    """Find the leader, then go on there: ``lost`` has been called."""
    REOPEN = 4
    """The session has ended; open another one for what was not sent yet."""


class Session(Generic[WaiterT]):
    """One session at a time, and the batches that were sent in it.

    Invariants:
      * unanswered batches have consecutive sequences, in the order in which they were built
      * a batch is built, and takes its sequence, in the moment in which it is first sent: what has none was never sent
      * while a refusal is to be fenced, nothing behind it is sent
      * a batch never changes its session
    """

    def __init__(self, options: ClientOptions, request_ids: Iterator[int], batches: OpenBatches[WaiterT]) -> None:
        self.id = SessionId(0)
        """0 = no session is open."""
        self.request_ids = request_ids
        """Numbers the requests; to be replaced with each connection, because other clients may share that counter."""
        self.batches_retried = 0
        """Batches that were handed to a connection and have to be again, counted each time."""
        self.applied_index = 0
        """Up to where all that this client was told has been applied: what a node must have applied to show it."""
        self.fence_request = 0
        """The request that asks for an outcome; 0 = none is unanswered."""
        self._fenced: InFlightBatch[WaiterT] | None = None
        """The refused batch that it asks for; None = one that is decided."""
        self._batches = batches
        self._options = options
        self._next_sequence = Sequence(1)
        self._unanswered: deque[InFlightBatch[WaiterT]] = deque()
        self._to_send: deque[InFlightBatch[WaiterT]] = deque()
        """Unanswered batches that this connection has to get (again), in order."""
        self._by_request: dict[int, InFlightBatch[WaiterT]] = {}
        self._paused = False
        self._probing = False
        """This node has not shown yet that it leads: one request goes there, and nothing that was never sent."""
        self._is_unproven = False
        """This node has not shown yet that it holds all that was acknowledged in this session."""
        self._must_prove = False
        """The next request asks for the outcome of the last decided sequence."""
        self._refused: InFlightBatch[WaiterT] | None = None
        """The first unanswered batch with a refusal."""
        self._stale: ViewstampError | None = None
        """The session is forgotten: nothing is sent any more, and what was sent is being answered."""

    # Requests go out.

    @property
    def has_work(self) -> bool:
        """Whether the leader is needed: something waits to be sent or answered."""
        return bool(self._batches.waiting or self._unanswered)

    @property
    def has_more(self) -> bool:
        """Whether ``take_request`` may return something now. If not, it does so only after another event."""
        return bool(self._to_send or self._batches.waiting or self._refused is not None or self._must_prove)

    @property
    def is_owed(self) -> bool:
        """Whether the leader owes an answer."""
        return bool(self._unanswered or self.fence_request)

    def opened(self, session: SessionId) -> None:
        """Begin a session that a leader has opened. Not while batches of another one are unanswered."""
        assert not self._unanswered, "batches never change their session"
        self.id = session
        self._next_sequence = Sequence(1)
        self._probing = self._is_unproven = self._must_prove = False

    def resume(self) -> None:
        """Go on after a back-off."""
        self._paused = False

    def lost(self) -> list[Completion[WaiterT]]:
        """The connection to the leader is gone: every unanswered batch goes to the next one again, in order.

        The first one goes alone: nodes that do not lead would get and refuse all of them, one node after the other.
        Where none is unanswered, the outcome of the last one is asked for: only a leader answers that, it costs no
        place in the log, and so what was never sent does not become doubtful while there is no leader.
        """
        for sent in self._unanswered:
            sent.doubtful = sent.doubtful or sent.open > 0
            sent.open = 0
        self._by_request.clear()
        self.fence_request, self._fenced = 0, None
        self._paused = False
        self._probing = self._is_unproven = True
        self._must_prove = False
        self._rewind()
        return self._end() if self._stale is not None else []

    def take_request(self) -> Request | None:
        """Return the next frame for the leader; None = nothing may be sent now. Call until None."""
        if not self.id or self._paused or self._stale is not None:
            return None
        to_send = self._to_send
        while to_send and to_send[0].answered:
            to_send.popleft()
        if self._probing and not self._unanswered:
            return self._probe()
        if self._must_prove:
            self._must_prove = False
            return self._outcome_request(Sequence(self._unanswered[0].sequence - 1), None)
        if self._probing and (self._unanswered[0].request_id or self.fence_request):
            return None
        if self._refused is not None:
            if to_send and to_send[0].sequence < self._refused.sequence:
                return self._transmit(to_send.popleft())
            return self._ask_outcome()
        if to_send:
            return self._transmit(to_send.popleft())
        in_flight = len(self._unanswered)
        if not self._batches.waiting or in_flight >= self._options.batches_in_flight:
            return None
        batch = self._batches.take(full_only=in_flight >= self._options.batches_eager)
        return None if batch is None else self._transmit(self._build(batch))

    def _build(self, batch: OpenBatch[WaiterT]) -> InFlightBatch[WaiterT]:
        sent = InFlightBatch(batch, self._next_sequence, batch.build(self.id, self._next_sequence))
        self._next_sequence = Sequence(self._next_sequence + 1)
        batch.sent = sent
        self._unanswered.append(sent)
        return sent

    def _transmit(self, sent: InFlightBatch[WaiterT]) -> Request:
        request_id = next(self.request_ids)
        sent.request_id = request_id
        sent.open += 1
        self._by_request[request_id] = sent
        asked: RequestBody = _APPEND if sent.batch.topic != COMMANDS else _CALL
        if sent.batch.attempt:
            asked = _STAGE
        body: dict[str, object] = {"id": request_id}
        if sent.batch.expected_position:
            asked = AppendBatchAt(position=sent.batch.expected_position)
            body |= asked.to_map()
        return new_tuple(Request, (request_id, asked.kind, body, (sent.payload,)))

    def _ask_outcome(self) -> Request | None:
        """Ask for the outcome of the first unanswered batch, when that is a refused one: the answer fences it."""
        head = self._unanswered[0]
        if self.fence_request or head.refusal is None:
            return None
        last = head
        for sent in self._unanswered:
            if not sent.settled:
                break
            last = sent
        return self._outcome_request(last.sequence, last)

    def _probe(self) -> Request | None:
        """Ask something that only the leader answers."""
        if self.fence_request or not self._batches.waiting:
            return None
        if self._next_sequence == 1:
            # Nothing is decided that could be asked for. Opening another session shows who leads, too.
            self._forget()
            return None
        return self._outcome_request(Sequence(self._next_sequence - 1), None)

    def _outcome_request(self, sequence: Sequence, refused: InFlightBatch[WaiterT] | None) -> Request:
        request_id = next(self.request_ids)
        self.fence_request, self._fenced = request_id, refused
        ask = AskOutcome(session=self.id, sequence=sequence)
        return Request(request_id, ask.kind, {"id": request_id, **ask.to_map()}, ())

    def _rewind(self) -> None:
        self._to_send = deque(self._unanswered)
        for sent in self._unanswered:
            self.batches_retried += sent.request_id != 0
            sent.request_id = 0

    # Answers come back.

    def on_receipt(
        self, request_id: int, receipt: BatchReceipt | None, results: list[bytes] | None = None
    ) -> list[Completion[WaiterT]]:
        """Take the answer to an APPEND or CALL; None = the sequence was fenced, so the batch is and stays unapplied.

        Raises:
          PeerError: the receipt, or the results, are not of this batch; the connection must end.
        """
        sent = self._by_request.pop(request_id, None)
        if sent is None:
            return []
        sent.open -= 1
        if sent.answered:
            return []
        if receipt is not None and receipt.count != sent.batch.count:
            raise PeerError(f"a receipt for {receipt.count} records answers a batch of {sent.batch.count}")
        expected = sent.batch.expected_position
        if receipt is not None and expected and receipt.first_position != expected:
            raise PeerError(f"a receipt for position {receipt.first_position} answers an append at {expected}")
        if results is not None:
            check_results(sent.batch, results)
        self._probing = self._is_unproven = self._must_prove = False
        settled = self._answer(sent, receipt, fenced, results)
        if self._stale is not None:
            settled += self._on_stale(self._stale)[1]
        return settled

    def on_outcome(
        self,
        request_id: int,
        receipt: BatchReceipt | None,
        results: list[bytes] | None = None,
        too_large: Callable[[int, int], ViewstampError] | None = None,
    ) -> list[Completion[WaiterT]]:
        """Take the answer to an OUTCOME: this node leads. Refused batches are decided, those behind them can pass.

        Raises:
          PeerError: the results are not of that batch; the connection must end.
        """
        if request_id != self.fence_request:
            return []
        last = self._fenced
        if last is not None and results is not None:
            check_results(last.batch, results)
        self.fence_request, self._fenced = 0, None
        self._probing = self._is_unproven = self._must_prove = False
        settled: list[Completion[WaiterT]] = []
        while last is not None and self._unanswered and self._unanswered[0].sequence <= last.sequence:
            sent = self._unanswered[0]
            applied = receipt if sent is last and receipt is not None and receipt.count == sent.batch.count else None
            if applied is not None:
                settled += self._answer(sent, applied, fenced, results)
            else:
                self._retire(sent)
                error = too_large if sent is last else None
                settled += self._settle_refused(sent) if error is None else self._settle(sent, None, error)
        self._rewind()
        return settled

    def on_too_large(self, request_id: int, error: Callable[[int, int], ViewstampError]) -> list[Completion[WaiterT]]:
        """Take an answer OK that was dropped for its size: the batch was applied, and its callers get ``error``."""
        if request_id == self.fence_request:
            return self.on_outcome(request_id, None, None, error)
        sent = self._by_request.pop(request_id, None)
        if sent is None or sent.answered:
            return []
        sent.open -= 1
        self._probing = self._is_unproven = self._must_prove = False
        self._retire(sent)
        return self._settle(sent, None, error)

    def on_refused(self, request_id: int, error: ViewstampError) -> tuple[Action, list[Completion[WaiterT]]]:
        """Take the refusal of a request of this session, and say what to do."""
        if request_id == self.fence_request:
            return self._on_fence_refused(error)
        sent = self._by_request.pop(request_id, None)
        if sent is None:
            return Action.GO_ON, []
        sent.open -= 1
        react = reaction(error)
        if react not in (Reaction.FINAL, Reaction.LATER):
            # Not the leader (any more), or a node in trouble: it may have put the batch into the log before.
            sent.doubtful = True
        if sent.answered:
            return Action.GO_ON, []
        if isinstance(error, PositionMismatchError) and sent.batch.expected_position:
            # Decided in the log, as by a fence: the sequence is over, and the node leads.
            self._probing = self._is_unproven = self._must_prove = False
            settled = self._answer(sent, None, copies(error))
            if self._stale is None:
                return Action.GO_ON, settled
            action, others = self._on_stale(self._stale)
            return action, settled + others
        if isinstance(error, StaleSessionError) or self._stale is not None:
            return self._on_stale(self._stale or error)
        if sent.refusal is not None and sent.was_refused:
            return Action.GO_ON, self._settle_refused(sent)
        if sent.request_id != request_id:
            return Action.GO_ON, []
        is_block = sent.batch.attempt != 0
        if react is Reaction.LATER and not (is_block and sent.batch.is_unwanted):
            if self._is_unproven and sent is self._unanswered[0] and sent.sequence > 1:
                return self._prove()
            if is_block:
                # Room for it comes with a commit, not in a moment: the first one alone goes and looks.
                self._probing = True
            return self._back_off()
        if react in (Reaction.FINAL, Reaction.LATER):
            # A block that nobody waits for any more is here too: it would hold up those behind it for nothing.
            return Action.GO_ON, self._refuse(sent, error)
        self.lost()
        return Action.MOVE, []

    def _on_fence_refused(self, error: ViewstampError) -> tuple[Action, list[Completion[WaiterT]]]:
        self.fence_request, self._fenced = 0, None
        if isinstance(error, StaleSessionError):
            return self._on_stale(error)
        if isinstance(error, StorageFullError):
            self._paused = True
            return Action.BACK_OFF, self._batches.fail(copies(error))
        if reaction(error) in (Reaction.FINAL, Reaction.LATER):
            self._is_unproven = self._probing
            return self._back_off()
        self.lost()
        return Action.MOVE, []

    def _prove(self) -> tuple[Action, list[Completion[WaiterT]]]:
        """Ask for the outcome of the sequence before the first unanswered one: it is decided, and this client was told.

        In interval mode a majority that loses power takes acknowledged batches with it. Then every later batch is out
        of order, for ever, and such a refusal cannot be told from "no room". A leader that misses the sequence fences
        it and all others that it misses, so that they stay lost, and the unanswered batch is the next one.
        """
        self._is_unproven = False
        self._must_prove = True
        self._rewind()
        return Action.GO_ON, []

    def _back_off(self) -> tuple[Action, list[Completion[WaiterT]]]:
        self._paused = True
        self._rewind()
        return Action.BACK_OFF, []

    def _refuse(self, sent: InFlightBatch[WaiterT], error: ViewstampError) -> list[Completion[WaiterT]]:
        """Take a refusal for good. Its callers hear it as soon as no attempt is in doubt, else after the fence."""
        settled = []
        refused = [sent]
        if isinstance(error, StorageFullError):
            # What is behind it waits for the same space, and is being refused for the gap.
            refused += [later for later in self._unanswered if later.sequence > sent.sequence and not later.doubtful]
            settled += self._batches.fail(copies(error))
        for each in refused:
            each.refusal = error
            if each.was_refused:
                settled += self._settle_refused(each)
        self._note_refused()
        self._rewind()
        return settled

    def _note_refused(self) -> None:
        self._refused = next((sent for sent in self._unanswered if sent.refusal is not None), None)

    def _on_stale(self, error: ViewstampError) -> tuple[Action, list[Completion[WaiterT]]]:
        """The session is forgotten: nothing of it is accepted any more. Wait for the answers that are under way."""
        self._stale = error
        if any(sent.open for sent in self._unanswered):
            return Action.GO_ON, []
        return Action.REOPEN, self._end()

    def _end(self) -> list[Completion[WaiterT]]:
        """End a forgotten session. What was in doubt stays unknown: nobody can tell any more."""
        stale = self._stale
        assert stale is not None

        settled = []
        for sent in list(self._unanswered):
            unknown = self._unknown(sent.batch, "the session was forgotten while the answer was outstanding")
            settled += self._answer(sent, None, unwritten(stale) if sent.was_refused else unknown)
        self._forget()
        return settled

    def _forget(self) -> None:
        self.id = SessionId(0)
        self._to_send.clear()
        self._by_request.clear()
        self._refused = None
        self._stale = None
        self.fence_request, self._fenced = 0, None
        self._paused = False
        self._probing = self._is_unproven = self._must_prove = False

    def _answer(
        self,
        sent: InFlightBatch[WaiterT],
        receipt: BatchReceipt | None,
        error: Callable[[int, int], ViewstampError],
        results: list[bytes] | None = None,
    ) -> list[Completion[WaiterT]]:
        self._retire(sent)
        if receipt is not None:
            self.applied_index = max(self.applied_index, receipt.first_index + receipt.count - 1)
            if sent.batch.topic == COMMANDS:
                sent.batch.results = results
                if results is None:
                    error = not_kept
        return self._settle(sent, receipt, error)

    def _retire(self, sent: InFlightBatch[WaiterT]) -> None:
        """Take a batch out of the session: its sequence is decided."""
        sent.answered = True
        if self._unanswered[0] is sent:
            self._unanswered.popleft()
        else:
            self._unanswered.remove(sent)
        if self._refused is not None:
            self._note_refused()

    def _settle(
        self, sent: InFlightBatch[WaiterT], receipt: BatchReceipt | None, error: Callable[[int, int], ViewstampError]
    ) -> list[Completion[WaiterT]]:
        if sent.settled:
            return []
        sent.settled = True
        self._batches.held_bytes -= sent.batch.bytes
        return [new_tuple(Completion, (sent.batch, receipt, error))]

    def _settle_refused(self, sent: InFlightBatch[WaiterT]) -> list[Completion[WaiterT]]:
        """Tell a refusal to its callers: no attempt is in the log, and none can get there any more.

        Where a leader does not know one of many commands, which happens while nodes are upgraded, the others are not to
        blame: each kind of command gets a batch of its own, and only the one that is refused again fails.
        """
        assert sent.refusal is not None
        if isinstance(sent.refusal, UnknownActorError) and not sent.settled and sent.batch.topic == COMMANDS:
            batch = sent.batch
            batch.parts = divide(sent)
            self._batches.put_back(batch.parts)
            if batch.parts:
                batch.waiters = []
        return self._settle(sent, None, copies(sent.refusal))

    # Ends.

    def close(self) -> list[Completion[WaiterT]]:
        """Give up everything: unknown where a batch was sent, "nothing was written" where not."""
        settled = []
        for sent in list(self._unanswered):
            unknown = self._unknown(sent.batch, "the client was closed while the answer was outstanding")
            settled += self._answer(sent, None, unknown)
        settled += self._batches.fail(lambda offset, count: ClosedError("the client was closed, nothing was written"))
        self._forget()
        return settled

    def find(self, session: SessionId, sequence: Sequence) -> OpenBatch[WaiterT] | None:
        """Return the batch with this sequence if it is of this session and its waiters do not know yet."""
        if session != self.id:
            return None
        return next((s.batch for s in self._unanswered if s.sequence == sequence and not s.settled), None)

    def token(self, batch: OpenBatch[WaiterT], offset: int, count: int) -> OutcomeToken:
        """Return what asks for the outcome of records of a batch that was sent."""
        assert batch.sent is not None, "a batch that was not sent has no outcome"
        return OutcomeToken(
            session=self.id, sequence=batch.sent.sequence, topic=batch.topic, offset=offset, count=count
        )

    def _unknown(self, batch: OpenBatch[WaiterT], why: str) -> Callable[[int, int], ViewstampError]:
        token = self.token(batch, 0, 0)

        def error(offset: int, count: int) -> ViewstampError:
            asked = replace(token, offset=offset, count=count)
            remedy = "client.outcome(error.token) returns whether it was written"
            return OutcomeUnknownError(why, token=asked, remedy=remedy)

        return error
