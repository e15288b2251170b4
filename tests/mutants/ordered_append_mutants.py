"""Planted mistakes in ordered appends."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

from tests.mutants.mutants import Mutant, both, patched
from viewstamp.client import session
from viewstamp.client.global_positions import GlobalPositions
from viewstamp.client.router import Router
from viewstamp.errors import TrimmedError, UnavailableError
from viewstamp.ids import NodeId, Position, Stream
from viewstamp.node import order_waits, ordered_reads
from viewstamp.node.group import Group
from viewstamp.node.order_waits import OrderWaits
from viewstamp.node.ordering import Ordering
from viewstamp.node.replica import Replica
from viewstamp.streams import Streams
from viewstamp.streams.order import Order
from viewstamp.wire.frame import Frame
from viewstamp.wire.ordered_requests import WaitOrdered
from viewstamp.wire.ordering import GlobalRun, PlacedPart, StreamReport, encode_order
from viewstamp.wire.schema import RequestBody
from viewstamp.wire.spreading import topic_of

__all__ = ["ORDERED_APPEND_MUTANTS"]


def ordered_by_a_report() -> AbstractContextManager[None]:
    """A caller is answered with the positions that the reports would get, before an ORDER with them is committed."""
    take, find = Ordering.take, OrderWaits._find

    def keep(
        self: Ordering,
        source: NodeId,
        reports: Sequence[StreamReport],
        parts: Sequence[PlacedPart] = (),
        *,
        is_awaited: bool = False,
    ) -> None:
        take(self, source, reports, parts, is_awaited=is_awaited)
        self._waits.__dict__["reports"] = self._reports

    def guess(self: OrderWaits, hosted: Group, stream: Stream, position: int) -> list[GlobalRun]:
        found, reports = find(self, hosted, stream, position), self.__dict__.get("reports", {})
        state = cast("Streams", self._group.machine)._state
        moved = state.order.moved(reports.values(), state.spread.by_stream)
        if found or not moved:
            return found
        planned = Order.from_image(state.order.image(), state.spread.by_stream)
        planned.apply(encode_order(moved), state.spread.by_stream)
        runs = planned.missing(stream, Position(position), 256)
        return runs if runs and runs[0].local <= position else []

    return both(patched(Ordering, take=keep), patched(OrderWaits, _find=guess))


def ordered_by_a_guess() -> AbstractContextManager[None]:
    """A node answers with the next global position that it knows, without an ORDER."""
    find = OrderWaits._find

    def guess(self: OrderWaits, hosted: Group, stream: Stream, position: int) -> list[GlobalRun]:
        order = cast("Streams", self._group.machine)._state.order
        following = order.next_position(topic_of(stream.name))
        return find(self, hosted, stream, position) or [GlobalRun(1, following, Position(position), 1)]

    return patched(OrderWaits, _find=guess)


def wait_lost_with_its_leader() -> AbstractContextManager[None]:
    """A client does not ask again after its request was lost with a leader."""
    original, ever = Router.ask_leader, 1e9

    async def ask_leader(self: Router, request: RequestBody, *args: Any, **options: Any) -> Frame:
        if not isinstance(request, WaitOrdered):
            return await original(self, request, *args, **options)
        connection = await self.leader.wait(ever)
        try:
            return await connection.ask(request, timeout=ever, wait=ever)
        except UnavailableError:
            await self._runtime.sleep(ever)
            raise

    return patched(Router, ask_leader=ask_leader)


def wait_until_the_next_round() -> AbstractContextManager[None]:
    """Nobody hastens the reports and the ORDER for a caller that waits."""
    return patched(OrderWaits, hurry=lambda self: None)


def wait_for_a_caller_that_has_gone() -> AbstractContextManager[None]:
    """A caller that goes is counted for ever, so its group is ordered at once for nobody."""
    original = OrderWaits.wait

    async def wait(
        self: OrderWaits, stream: Stream, position: int, seconds: float, *, expects: bool = False
    ) -> list[GlobalRun]:
        runs = await original(self, stream, position, seconds, expects=expects)
        self._awaited[stream.group] = 1
        return runs

    return patched(OrderWaits, wait=wait)


def one_request_for_each_caller() -> AbstractContextManager[None]:
    """An answer serves only the caller for whom the request was sent."""
    original = GlobalPositions._answer

    def answer(self: GlobalPositions, waiting: dict[Any, None], known: Any) -> None:
        first = min(waiting, key=lambda each: each.first, default=None)
        alone = {first: None} if first is not None else {}
        original(self, alone, known)
        if not alone and first is not None:
            del waiting[first]

    return patched(GlobalPositions, _answer=answer)


def ordered_when_asked() -> AbstractContextManager[None]:
    """The append does not say that its caller is going to ask, so the stream is ordered a round trip later."""
    return patched(session, _ORDERED={})


def order_not_told() -> AbstractContextManager[None]:
    """The member on which callers wait learns with the next tick that the ORDER is committed."""
    return patched(Replica, tell_commit_end=lambda self, names: None)


def deaf_to_orders() -> AbstractContextManager[None]:
    """Callers look when they come, and not when an ORDER is applied."""
    return patched(OrderWaits, on_order=lambda self, group: None)


def deaf_to_records() -> AbstractContextManager[None]:
    """A reader whose node has the order before the records does not look again when they come."""
    return patched(ordered_reads, _lacks_records=lambda cover: False)


def wait_for_a_trimmed_position() -> AbstractContextManager[None]:
    """A caller waits for the position of a trimmed record, which no state will ever have again."""
    return patched(order_waits, _check_mapped=lambda hosted, stream, position, first: None)


def refuse_a_position_that_comes() -> AbstractContextManager[None]:
    """A record that was trimmed before it was ordered is refused, although it is going to have a position."""

    def refuse(hosted: Group, stream: Stream, position: int, first: int) -> None:
        raise TrimmedError(f"position {position} of {stream.name!r} has been trimmed", first=first)

    return patched(order_waits, _check_mapped=refuse)


ORDERED_APPEND_MUTANTS = {
    name: Mutant(name, mistake, plant, rule="§7")
    for name, mistake, plant in (
        ("ordered-by-a-report", "an ordered append is answered before its ORDER is committed", ordered_by_a_report),
        ("ordered-by-a-guess", "an ordered append is answered without an ORDER", ordered_by_a_guess),
        ("wait-lost-with-its-leader", "a client waits for the answer of a dead leader", wait_lost_with_its_leader),
        ("wait-until-the-next-round", "an ordered append waits for the next round", wait_until_the_next_round),
        ("wait-for-nobody", "a node waits for a caller that has gone", wait_for_a_caller_that_has_gone),
        ("ordered-when-asked", "a stream is ordered a round trip after its record is durable", ordered_when_asked),
        ("order-not-told", "an ORDER is applied a tick late where callers wait", order_not_told),
        ("deaf-to-orders", "callers that wait do not look when an ORDER is applied", deaf_to_orders),
        ("deaf-to-records", "readers do not look when the records of known positions come", deaf_to_records),
        ("one-request-for-each-caller", "each ordered append sends a request", one_request_for_each_caller),
        ("wait-for-a-trimmed-position", "a caller waits for a position that is lost", wait_for_a_trimmed_position),
        ("refuse-a-position-that-comes", "a record without a position yet is refused", refuse_a_position_that_comes),
    )
}
"""The mutants by name."""
