"""The session: sequences, retries, fences and outcomes of batches. Sans-IO: no event loop, no socket, no clock.

The sender feeds it answers, sends the requests that ``take_request`` returns, and resolves the futures in each
``Completion``. The package's docstring states the rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from typing import Generic

from viewstamp.client.batches import (
    COMMANDS,
    Completion,
    InFlightBatch,
    OpenBatch,
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
from viewstamp.client.unsent import OpenBatches
from viewstamp.enums import fast_members
from viewstamp.errors import (
    ClosedError,
    OutcomeToken,
    OutcomeUnknownError,
    PeerError,
    PositionMismatchError,
    StaleSessionError,
    StorageFullError,
    StreamSealedError,
    UnknownActorError,
    ViewstampError,
)
from viewstamp.ids import GROUP_0, GroupId, Sequence, SessionId, TopicId
from viewstamp.wire.requests import AppendBatch, AppendBatchAt, AskOutcome, CallActors
from viewstamp.wire.schema import RequestBody
from viewstamp.wire.sink_requests import StageBatch

__all__ = ["IN_FLIGHT_MAX", "Action", "Session"]

IN_FLIGHT_MAX = 64
"""Unanswered batches of all topics of a session. The cluster keeps more receipts and results, for retries."""
_APPEND, _CALL, _STAGE = AppendBatch(), CallActors(), StageBatch()
_ORDERED: Mapping[str, object] = AppendBatch(ordered=True).to_map()


@fast_members
class Action(Enum):
    """The sender's next step after a refusal."""

    GO_ON = 1
    """Ask ``take_request`` again."""
    BACK_OFF = 2
    """Wait for the back-off, then call ``resume``: the same node may accept the batch later."""
    MOVE = 3
    """Find the leader and send to it. ``lost`` has been called."""
    REOPEN = 4
    """The session has ended. Open another one for the batches that were never sent."""


class Session(Generic[WaiterT]):
    """One session at a time, and the batches that were sent in it.

    Invariants:
      * unanswered batches have consecutive sequences, in the order in which they were built
      * a batch is built and takes its sequence when it is first sent; a batch without a sequence was never sent
      * while the sequence of a refused batch has to be fenced, no later batch is sent
      * a batch never changes its session
    """

    def __init__(
        self,
        options: ClientOptions,
        request_ids: Iterator[int],
        batches: OpenBatches[WaiterT],
        group: GroupId = GROUP_0,
    ) -> None:
        self.id = SessionId(0)
        """0 = no session is open."""
        self.request_ids = request_ids
        """The connection's counter of request ids. Other clients of the connection draw from it too."""
        self.batches_retried = 0
        """Number of times that a sent batch was scheduled to be sent again."""
        self.applied_index = 0
        """Highest index in a receipt for this client. A node that has applied it shows all these records."""
        self.fence_request = 0
        """Id of the unanswered OUTCOME request; 0 = none."""
        self._fenced: InFlightBatch[WaiterT] | None = None
        """The refused batch whose sequence that request fences; None = it asks for a decided sequence."""
        self._batches = batches
        self._group = group
        self._options = options
        self._next_sequence = Sequence(1)
        self._unanswered: deque[InFlightBatch[WaiterT]] = deque()
        self._unanswered_by_lane: dict[int, int] = {}
        """The number of those batches, by lane."""
        self._to_send: deque[InFlightBatch[WaiterT]] = deque()
        """Unanswered batches that have to be sent on this connection, in order of their sequences."""
        self._by_request: dict[int, InFlightBatch[WaiterT]] = {}
        self._paused = False
        self._probing = False
        """The node has not shown that it leads. It gets one request, and no batch that was never sent."""
        self._is_unproven = False
        """The node has not shown that it has every batch that was acknowledged in this session."""
        self._must_prove = False
        """The next request asks for the outcome of the last decided sequence."""
        self._refused: InFlightBatch[WaiterT] | None = None
        """The first unanswered batch with a refusal."""
        self._stale: ViewstampError | None = None
        """Why the session is forgotten; nothing more is sent in it, and answers to sent batches are awaited."""

    # Requests to send.

    @property
    def has_work(self) -> bool:
        """Whether a batch waits to be sent or to be answered, so that a leader is needed."""
        return bool(self._batches.waiting or self._unanswered)

    @property
    def has_more(self) -> bool:
        """Whether ``take_request`` may return a request now. If not, it returns None until the next event."""
        return bool(self._to_send or self._batches.waiting or self._refused is not None or self._must_prove)

    @property
    def is_owed(self) -> bool:
        """Whether a request to the leader is unanswered."""
        return bool(self._unanswered or self.fence_request)

    def has_batches_of(self, topic: TopicId) -> bool:
        """Return whether a batch of a topic waits to be sent, or is not decided."""
        return any(batch.topic == topic for batch in self._batches.waiting) or any(
            sent.batch.topic == topic for sent in self._unanswered
        )

    def opened(self, session: SessionId) -> None:
        """Begin a session that a leader has opened. Not to be called while batches of another one are unanswered."""
        assert not self._unanswered, "batches never change their session"
        self.id = session
        self._next_sequence = Sequence(1)
        self._probing = self._is_unproven = self._must_prove = False

    def resume(self) -> None:
        """Continue to send after a back-off."""
        self._paused = False

    def lost(self) -> list[Completion[WaiterT]]:
        """Schedule every unanswered batch to be sent again, in order, because the connection to the leader has ended.

        The first batch is sent alone, because each node that does not lead would receive and refuse all of them. If no
        batch is unanswered, the client asks for the outcome of the last sequence: only a leader answers that, and it
        adds nothing to the log. So batches that were never sent do not become doubtful while there is no leader.
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
        """Return the next request for the leader; None = no request may be sent now. Call until it returns None."""
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
        if not self._batches.waiting or len(self._unanswered) >= IN_FLIGHT_MAX:
            return None
        batch = self._batches.take(self._unanswered_by_lane)
        return None if batch is None else self._transmit(self._build(batch))

    def _build(self, batch: OpenBatch[WaiterT]) -> InFlightBatch[WaiterT]:
        sent = InFlightBatch(batch, self._next_sequence, batch.build(self.id, self._next_sequence))
        self._next_sequence += 1  # type: ignore[assignment]  # without Sequence(...), which is a function call
        batch.sent = sent
        self._unanswered.append(sent)
        self._unanswered_by_lane[batch.lane] = self._unanswered_by_lane.get(batch.lane, 0) + 1
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
        if sent.batch.is_ordered:
            body |= _ORDERED
        return new_tuple(Request, (request_id, asked.kind, body, (sent.payload,)))

    def _ask_outcome(self) -> Request | None:
        """Return the request that fences the first unanswered batch if that was refused; None = not yet."""
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
        """Return a request that only a leader answers; None = none can be made, or one is unanswered."""
        if self.fence_request or not self._batches.waiting:
            return None
        if self._next_sequence == 1:
            # No sequence is decided that could be asked for. Opening another session needs a leader, too.
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

    # Answers.

    def on_receipt(
        self, request_id: int, receipt: BatchReceipt | None, results: list[bytes] | None = None
    ) -> list[Completion[WaiterT]]:
        """Process the answer to an APPEND or CALL. Without a receipt the batch was fenced, and is never applied.

        Raises:
          PeerError: the receipt or the results do not fit the batch; the connection must end.
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
        """Process the answer to an OUTCOME. The node leads, refused batches are decided, and later ones may be sent.

        Raises:
          PeerError: the results do not fit that batch; the connection must end.
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
        """Process an answer OK that was dropped for its size: the batch was applied, and its callers get ``error``."""
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
        """Process the refusal of a request of this session; return the next step and the completed batches."""
        if request_id == self.fence_request:
            return self._on_fence_refused(error)
        sent = self._by_request.pop(request_id, None)
        if sent is None:
            return Action.GO_ON, []
        sent.open -= 1
        react = reaction(error)
        if react not in (Reaction.FINAL, Reaction.LATER):
            # The node may have led, and may have put the batch into the log, before it refused.
            sent.doubtful = True
        if sent.answered:
            return Action.GO_ON, []
        if isinstance(error, PositionMismatchError) and sent.batch.expected_position:
            # The refusal is in the log, as a fence is: the sequence is decided, and the node leads.
            self._probing = self._is_unproven = self._must_prove = False
            settled = self._answer(sent, None, copies(error))
            if self._stale is None:
                return Action.GO_ON, settled
            action, others = self._on_stale(self._stale)
            return action, settled + others
        if isinstance(error, StaleSessionError) or self._stale is not None:
            return self._on_stale(self._stale or error)
        if sent.refusal is not None and self._is_certain(sent):
            return Action.GO_ON, self._settle_refused(sent)
        if sent.request_id != request_id:
            return Action.GO_ON, []
        is_block = sent.batch.attempt != 0
        if react is Reaction.LATER and not (is_block and sent.batch.is_unwanted):
            if self._is_unproven and sent is self._unanswered[0] and sent.sequence > 1:
                return self._prove()
            if is_block:
                # Room comes with a commit, which may take long. So only the first block is sent until it is accepted.
                self._probing = True
            return self._back_off()
        if react in (Reaction.FINAL, Reaction.LATER):
            # Also a block whose caller has gone, because it would delay the blocks behind it for nothing.
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
        """Ask for the outcome of the sequence before the first unanswered one, which this client knows to be decided.

        In interval mode, acknowledged batches are lost if a majority loses power. Then every later batch is out of
        order for good, and that refusal looks like "no room". A leader that lacks the sequence fences it and all others
        that it lacks. So they stay lost, and the unanswered batch becomes the next one in order.
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
        """Refuse a batch finally. Its callers get the error at once if no attempt is in doubt, else after the fence."""
        settled = []
        refused = [sent]
        if isinstance(error, StorageFullError):
            # Later batches need the same space, and are being refused because of the gap.
            refused += [later for later in self._unanswered if later.sequence > sent.sequence and not later.doubtful]
            settled += self._batches.fail(copies(error))
        for each in refused:
            each.refusal = error
            if self._is_certain(each):
                settled += self._settle_refused(each)
        self._note_refused()
        self._rewind()
        return settled

    def _is_certain(self, sent: InFlightBatch[WaiterT]) -> bool:
        """Return whether the callers of a refused batch get their error before the fence.

        Those of a sealed stream do not, even if the batch is in no log: their records go on to another stream, and
        have to stay behind those of earlier batches, which may be in the log.
        """
        return sent.was_refused and not isinstance(sent.refusal, StreamSealedError)

    def _note_refused(self) -> None:
        self._refused = next((sent for sent in self._unanswered if sent.refusal is not None), None)

    def _on_stale(self, error: ViewstampError) -> tuple[Action, list[Completion[WaiterT]]]:
        """Stop sending, because the cluster has forgotten the session. Answers to sent requests are awaited first."""
        self._stale = error
        if any(sent.open for sent in self._unanswered):
            return Action.GO_ON, []
        return Action.REOPEN, self._end()

    def _end(self) -> list[Completion[WaiterT]]:
        """End a forgotten session. Batches in doubt stay unknown, because the cluster keeps no outcome of them."""
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
        """Remove a batch from the session, because its sequence is decided."""
        sent.answered = True
        lane = sent.batch.lane
        if self._unanswered_by_lane[lane] > 1:
            self._unanswered_by_lane[lane] -= 1
        else:
            del self._unanswered_by_lane[lane]
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
        """Fail the callers of a refused batch: no attempt is in the log, and none can get there any more.

        If a leader lacks the code of one command (during an upgrade), the other commands of the batch must not fail.
        Then each kind of command is sent again in a batch of its own, and only the kind that is refused again fails.
        """
        assert sent.refusal is not None
        if isinstance(sent.refusal, UnknownActorError) and not sent.settled and sent.batch.topic == COMMANDS:
            batch = sent.batch
            batch.parts = divide(sent)
            self._batches.put_back(batch.parts)
            if batch.parts:
                batch.waiters = []
        return self._settle(sent, None, copies(sent.refusal))

    # The end of a session, and tokens.

    def close(self) -> list[Completion[WaiterT]]:
        """Fail every batch: sent ones with OutcomeUnknownError, the others with ClosedError."""
        settled = []
        for sent in list(self._unanswered):
            unknown = self._unknown(sent.batch, "the client was closed while the answer was outstanding")
            settled += self._answer(sent, None, unknown)
        settled += self._batches.fail(lambda offset, count: ClosedError("the client was closed, nothing was written"))
        self._forget()
        return settled

    def find(self, session: SessionId, sequence: Sequence) -> OpenBatch[WaiterT] | None:
        """Return the batch with this sequence; None = it is of another session, or its callers have their outcome."""
        if session != self.id:
            return None
        return next((s.batch for s in self._unanswered if s.sequence == sequence and not s.settled), None)

    def token(self, batch: OpenBatch[WaiterT], offset: int, count: int) -> OutcomeToken:
        """Return the token for ``outcome`` of records in a batch that was sent."""
        assert batch.sent is not None, "a batch that was not sent has no outcome"
        return OutcomeToken(
            session=batch.session,
            sequence=batch.sent.sequence,
            topic=batch.topic,
            offset=offset,
            count=count,
            group=self._group,
        )

    def _unknown(self, batch: OpenBatch[WaiterT], why: str) -> Callable[[int, int], ViewstampError]:
        token = self.token(batch, 0, 0)

        def error(offset: int, count: int) -> ViewstampError:
            asked = replace(token, offset=offset, count=count)
            remedy = "client.outcome(error.token) returns whether it was written"
            return OutcomeUnknownError(why, token=asked, remedy=remedy)

        return error
