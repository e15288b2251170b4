"""Appends to the topics of one group, and their outcomes. ``topic_appends.py`` has the calls of a client."""

from __future__ import annotations

from typing import Any

from viewstamp.client.append import TopicAppend
from viewstamp.client.checks import read_receipt, read_results
from viewstamp.client.results import DURABILITY, Decided, Outcome, receipts_of, result_or_error
from viewstamp.client.router import Router
from viewstamp.client.runtime import Future, Runtime
from viewstamp.client.sender import Sender
from viewstamp.errors import (
    ClosedError,
    OutcomeToken,
    OutcomeUnknownError,
    RequestError,
    StaleSessionError,
    StorageError,
    UnavailableError,
)
from viewstamp.wire.requests import AskOutcome

__all__ = ["Appends"]


class Appends:
    """Appends records to the topics of one group, and finds the outcome of appends that timed out."""

    def __init__(self, runtime: Runtime, router: Router, sender: Sender) -> None:
        self._runtime = runtime
        self._router = router
        self._sender = sender

    def begin(self, append: TopicAppend, topic: str, timeout: float | None = None) -> None:
        """Put records into a batch, or into the queue if they must wait. ``end`` or ``abandon`` must follow.

        Appends to a topic have the order of these calls. ``topic`` is the name of the topic in this group.
        """
        self._router.start()
        append.name, append.sender = topic, self._sender
        self._sender.admit(append, timeout)

    async def end(self, append: TopicAppend) -> Any:
        """Wait for the receipt, or for all receipts if it is atomic. Cancelled: it is not sent, unless it was.

        Raises: as ``TopicAppends.append``.
        """
        return await self._sender.answer(append)

    async def outcome(self, token: OutcomeToken, *, timeout: float | None = None) -> Outcome:
        """Find the outcome of records in a session of this group; as ``Groups.outcome``, which chooses the group."""
        self._router.start()
        seconds = self._router.seconds(timeout)
        try:
            decided = await self._decided(token, seconds)
        except StaleSessionError:
            return Outcome(answer="expired")
        except (UnavailableError, OutcomeUnknownError, StorageError, TimeoutError) as error:
            if isinstance(error, ClosedError) and self._router.is_closed:
                raise
            raise OutcomeUnknownError(
                f"the outcome is unknown: {error}" if str(error) else f"the outcome is unknown after {seconds:g} s",
                token=token,
                remedy="ask again with the same token",
            ) from error
        receipt, results, durability = decided
        if receipt is None:
            return Outcome(answer="not applied")
        end = token.offset + token.count
        if end > receipt.count or (results is not None and end > len(results)):
            raise RequestError(
                f"the token names records {token.offset}..{end} of a batch of {receipt.count}",
                remedy="pass the token of an OutcomeUnknownError as it is",
            )
        return Outcome(
            answer="applied",
            receipts=receipts_of(receipt, token.offset, token.count, durability, token.stream),
            results=None if results is None else list(map(result_or_error, results[token.offset : end])),
        )

    async def _decided(self, token: OutcomeToken, seconds: float) -> Decided:
        deadline = self._runtime.time() + seconds
        batch = self._sender.session.find(token.session, token.sequence)
        if batch is not None:
            watcher: Future[Decided] = self._runtime.create_future()
            batch.watchers.append(watcher)
            try:
                return await self._runtime.within(seconds, watcher)
            except OutcomeUnknownError:
                if self._router.is_closed:
                    raise
                # The session has ended, and this client has no outcome of its own. So the leader decides.
        request = AskOutcome(session=token.session, sequence=token.sequence)
        frame = await self._router.ask_leader(request, deadline=deadline)
        leader = self._router.leader.connection
        durability = leader.durability if leader is not None else DURABILITY
        return Decided(read_receipt(frame.body["receipt"]), read_results(frame.body.get("results")), durability)
