"""Planted mistakes in the identification of nodes, clusters and directories, and in a client's reaction to errors."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from tests.mutants.mutants import Mutant, everywhere, patched
from viewstamp.client import identity, pool, routing, unsent
from viewstamp.client.admin import Admin
from viewstamp.client.append import Held, TopicAppend
from viewstamp.client.batches import COMMANDS, Completion, InFlightBatch, OpenBatch
from viewstamp.client.connection import NodeConnection
from viewstamp.client.group import GroupParts
from viewstamp.client.groups import Groups
from viewstamp.client.link import Link
from viewstamp.client.results import GroupInfo, Outcome
from viewstamp.client.routing import REACTIONS, LeaderFinder, Reaction, Roster
from viewstamp.client.sender import Sender
from viewstamp.client.session import Session
from viewstamp.client.stream_choice import StreamChoice
from viewstamp.client.stream_routes import StreamRoutes
from viewstamp.client.streams import StreamCalls
from viewstamp.client.topic_appends import TopicAppends
from viewstamp.client.unsent import OpenBatches
from viewstamp.errors import OutcomeToken, OutcomeUnknownError, ViewstampError
from viewstamp.ids import Sequence
from viewstamp.local import cluster
from viewstamp.local.cluster import LocalCluster
from viewstamp.local.target import ClusterTarget
from viewstamp.node import address_check, group
from viewstamp.wire import spreading
from viewstamp.wire.batch import Batch, Kind, encode_batch
from viewstamp.wire.checksum import crc32c
from viewstamp.wire.schema import RequestBody

__all__ = ["CLIENT_MUTANTS"]


def ask_anybody() -> AbstractContextManager[None]:
    return patched(Roster, at=lambda self, address: None, admits=lambda self, address: True)


def forget_identities() -> AbstractContextManager[None]:
    def target(self: LocalCluster) -> ClusterTarget:
        return ClusterTarget([node.address for node in self.nodes.values()], self.id)

    return patched(LocalCluster, target=property(target))


def take_a_copy() -> AbstractContextManager[None]:
    return patched(identity, _runs_elsewhere=lambda *_: False)


def count_any_process() -> AbstractContextManager[None]:
    return patched(cluster, is_process_of=lambda node, status: True)


def start_anywhere() -> AbstractContextManager[None]:
    async def check_address(*_: object) -> None:
        pass

    return patched(group, check_address=check_address)


def believe_changed_settings() -> AbstractContextManager[None]:
    return patched(address_check, _settings_members=lambda *_: None)


def back_off_for_ever() -> AbstractContextManager[None]:
    """A client that has lost acknowledged batches sends the next batch again and again."""
    return patched(Session, _prove=Session._back_off)


def ask_again_for_what_is_final() -> AbstractContextManager[None]:
    """An error that every node would return is treated as if it left the outcome open."""
    unknown = {each: Reaction.UNKNOWN if found is Reaction.FINAL else found for each, found in REACTIONS.items()}
    return patched(routing, REACTIONS=unknown)


def abort_for_all() -> AbstractContextManager[None]:
    """A client that is closed ends the connection that it shares."""
    return patched(NodeConnection, abort=lambda self: self._link.abort())


def distrust_all() -> AbstractContextManager[None]:
    """An answer that one client must not trust ends the connection of all."""
    return patched(Link, _drop=lambda self, user, error: self.abort())


def share_for_ever() -> AbstractContextManager[None]:
    """A request that makes the node end the connection is sent again and again over the shared one."""
    return patched(pool, _BRIEF_MAX=1 << 62)


def keep_a_dead_link() -> AbstractContextManager[None]:
    """A client leaves a node that sends nothing, and joins the same link again."""
    return patched(Link, suspect=lambda self, since: None)


def keep_no_place() -> AbstractContextManager[None]:
    """A session may have as many unanswered questions as it likes."""
    return patched(Link, admits_question=lambda self, user: True)


def never_grow() -> AbstractContextManager[None]:
    """A full batch takes no further records, although it waits for the answers of a far leader."""
    return patched(OpenBatches, _next=lambda self, topic, batch, size: self._begin(topic))


def hold_many_objects() -> AbstractContextManager[None]:
    """Each append to a stream keeps the arguments and closures with which it could begin anew."""
    original = TopicAppends._begin

    def begin(self: TopicAppends, append: TopicAppend, timeout: float | None) -> TopicAppend | Held:
        begun = original(self, append, timeout)
        again = append.anew(append.waiter)
        kept = [lambda: self._begin(again, timeout), lambda: self._begin_late(again), lambda: append.abandon()]
        append.waiter.add_done_callback(lambda _: kept.clear())
        return begun

    return patched(TopicAppends, _begin=begin)


def keep_timeouts() -> AbstractContextManager[None]:
    """The timer of an append with a timeout of its own runs on after it is answered."""
    return patched(Sender, untime=lambda self, ticket: None)


def grow_commands() -> AbstractContextManager[None]:
    """Batches of commands grow as well, and so do the results that the nodes keep for retries."""
    return patched(unsent, COMMANDS=object())


def forget_the_first_copy() -> AbstractContextManager[None]:
    """The refusal of the last copy of a PLACE_GROUP counts for all copies."""
    original = Admin.place_group

    async def place_group(self: Admin, *streams: str, **options: Any) -> GroupInfo:
        try:
            return await original(self, *streams, **options)
        except OutcomeUnknownError as error:
            raise error.__cause__ or error from None

    return patched(Admin, place_group=place_group)


def number_all_groups_together() -> AbstractContextManager[None]:
    """A batch gets the next number of the client, and not that of its session."""
    numbers: dict[str, int] = {}

    def build(self: Session[Any], batch: OpenBatch[Any]) -> InFlightBatch[Any]:
        sequence = numbers["client"] = max(numbers.get("client", 0) + 1, self._next_sequence)
        sent = InFlightBatch(batch, Sequence(sequence), batch.build(self.id, Sequence(sequence)))
        self._next_sequence = Sequence(sequence + 1)
        batch.sent = sent
        self._unanswered.append(sent)
        self._unanswered_by_lane[batch.lane] = self._unanswered_by_lane.get(batch.lane, 0) + 1
        return sent

    return patched(Session, _build=build)


def ask_group_0() -> AbstractContextManager[None]:
    """The outcome of each token is asked for in group 0."""

    async def outcome(self: Groups, token: OutcomeToken, *, timeout: float | None = None) -> Outcome:
        return await self.group_0.appends.outcome(token, timeout=timeout)

    return patched(Groups, outcome=outcome)


def end_used_parts() -> AbstractContextManager[None]:
    """The parts for a group end although an append waits."""
    return patched(GroupParts, is_unused=True)


def trust_the_record_of_the_group() -> AbstractContextManager[None]:
    """A node names the addresses that the group has on record, where a moved member is not any more."""
    return patched(group.Group, addresses=property(lambda self: dict(self.membership.addresses)))


def do_not_wait_for_streams() -> AbstractContextManager[None]:
    """A stream that its group has not created yet is an error."""

    async def ask(self: StreamCalls, parts: GroupParts, request: RequestBody, *, seconds: float, **options: Any) -> Any:
        parts.router.start()
        return await parts.router.ask_any(request, seconds=seconds, **options)

    return patched(StreamCalls, ask=ask)


def slot_by_hash() -> AbstractContextManager[None]:
    """The slot of a key is computed by a function that differs between processes."""
    return everywhere(spreading.slot_of, lambda key, slots: hash(key) % slots)


def slot_by_lowest_bits() -> AbstractContextManager[None]:
    """The slot of a key is computed from the lowest bits of its checksum, which are linear in the bits of the key."""
    return everywhere(spreading.slot_of, lambda key, slots: (crc32c(key) & 4095) * slots // 4096)


def divide_a_numbered_batch() -> AbstractContextManager[None]:
    """A batch that is sent again takes only half of its records; the others get a batch of their own."""
    original = Session.lost

    def lost(self: Session[Any]) -> list[Completion[Any]]:
        for sent in self._unanswered:
            batch, values = sent.batch, Batch.decode(sent.payload, verify=False).values()
            if len(values) > 1 and not batch.attempt and batch.topic != COMMANDS:
                half = len(values) // 2
                rest: OpenBatch[Any] = OpenBatch(batch.topic)
                rest.values, rest.waiters = [bytes(value) for value in values[half:]], batch.waiters[half:]
                batch.waiters, batch.count = batch.waiters[:half], half
                sent.payload = encode_batch(
                    [bytes(value) for value in values[:half]],
                    kind=Kind.RECORDS,
                    topic=batch.topic,
                    session=self.id,
                    sequence=sent.sequence,
                )
                self._batches.put_back([rest])
        return original(self)

    return patched(Session, lost=lost)


def believe_a_lagging_node() -> AbstractContextManager[None]:
    """The applied state of one node decides that there is no such topic."""
    original = StreamRoutes._find_spread

    async def find(self: StreamRoutes, topic: str, *, is_stale: bool) -> bool:
        return is_stale and await original(self, topic, is_stale=True)

    return patched(StreamRoutes, _find_spread=find)


def go_by_the_first_key() -> AbstractContextManager[None]:
    """All records of an atomic append go to the stream of the first key."""
    original = StreamChoice.choose

    def choose(self: StreamChoice, keys: Any, size: int, **wishes: Any) -> int:
        return original(self, [next((key for key in keys if key is not None), None)], size, **wishes)

    return patched(StreamChoice, choose=choose)


def wake_without_order() -> AbstractContextManager[None]:
    """Appends that waited for a route begin in the reverse order."""
    original = StreamRoutes._find

    async def find(self: StreamRoutes, topic: str) -> None:
        await original(self, topic)
        self._waiting[topic] = dict(reversed(self._waiting[topic].items()))

    return patched(StreamRoutes, _find=find)


def pause_at_each_node() -> AbstractContextManager[None]:
    """A client pauses after each node that does not host a group, as after one that refuses a request."""
    original = LeaderFinder.failed

    def failed(self: LeaderFinder, address: str, error: ViewstampError, *, is_away: bool = False) -> None:
        original(self, address, error)

    return patched(LeaderFinder, failed=failed)


CLIENT_MUTANTS: dict[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        Mutant(
            "ask-anybody", "a client sends requests to nodes that its caller does not expect", ask_anybody, rule="§10a"
        ),
        Mutant(
            "forget-identities",
            "a command with --dir does not check which node answers",
            forget_identities,
            rule="§10a",
        ),
        Mutant(
            "do-not-wait-for-streams",
            "a stream that its group has not created yet is an unknown topic",
            do_not_wait_for_streams,
            rule="§4",
        ),
        Mutant("take-a-copy", "a command on a copy of a directory reaches the original", take_a_copy, rule="§10a"),
        Mutant(
            "count-any-process",
            "a start counts processes of other directories as RUNNING",
            count_any_process,
            rule="§10a",
        ),
        Mutant(
            "back-off-for-ever",
            "the batches of a session that lost acknowledged ones are rejected for ever",
            back_off_for_ever,
            rule="interval",
        ),
        Mutant(
            "ask-again-for-what-is-final",
            "a request that is wrong is sent to one node after the other",
            ask_again_for_what_is_final,
            rule="§10",
        ),
        Mutant(
            "abort-for-all",
            "a client that is closed ends the connection of clients that share it",
            abort_for_all,
            rule="§10",
        ),
        Mutant(
            "distrust-all",
            "a wrong answer to one client ends the connection of clients that share it",
            distrust_all,
            rule="§10",
        ),
        Mutant(
            "share-for-ever",
            "a request on which nodes end the connection is repeated on the shared connection",
            share_for_ever,
            rule="§10",
        ),
        Mutant("keep-a-dead-link", "a link to a dead node is used by the next client", keep_a_dead_link, rule="§10"),
        Mutant(
            "keep-no-place", "one session uses all waiting requests of a shared connection", keep_no_place, rule="§10"
        ),
        Mutant(
            "forget-the-first-copy",
            "a group that an earlier copy of the request may have placed counts as not placed",
            forget_the_first_copy,
            rule="§10",
        ),
        Mutant(
            "one-sequence-for-all-groups",
            "the batches of all groups of a client have one sequence",
            number_all_groups_together,
            rule="§10",
        ),
        Mutant("ask-group-0", "a token of another group is asked for at group 0", ask_group_0, rule="§10"),
        Mutant(
            "end-used-parts", "a client forgets a group in which one of its appends waits", end_used_parts, rule="§10"
        ),
        Mutant(
            "trust-the-record-of-the-group",
            "a node names the address that a moved member has in the log of another group than 0",
            trust_the_record_of_the_group,
            rule="§10a",
        ),
        Mutant("slot-by-hash", "the slot of a key differs between processes", slot_by_hash, rule="§10"),
        Mutant("slot-by-lowest-bits", "similar keys leave half of the streams empty", slot_by_lowest_bits, rule="§10"),
        Mutant(
            "divide-a-numbered-batch",
            "a batch is divided after it got its sequence",
            divide_a_numbered_batch,
            rule="§10",
        ),
        Mutant(
            "believe-a-lagging-node",
            "a node that lags decides that a topic does not exist",
            believe_a_lagging_node,
            rule="§10",
        ),
        Mutant(
            "go-by-the-first-key",
            "an atomic append with keys of several streams is written to one of them",
            go_by_the_first_key,
            rule="§10",
        ),
        Mutant(
            "wake-without-order",
            "appends that waited for the route of their topic are in another order",
            wake_without_order,
            rule="§10",
        ),
        Mutant(
            "hold-many-objects",
            "an append holds twice as many objects until it is answered",
            hold_many_objects,
            rule="§10",
        ),
        Mutant("keep-timeouts", "the timer of an append runs on after its answer", keep_timeouts, rule="§10"),
        Mutant("never-grow", "full batches for a far leader take no further records", never_grow, rule="§10"),
        Mutant("grow-commands", "batches of commands for a far leader grow", grow_commands, rule="§10"),
        Mutant(
            "start-anywhere",
            "a node starts at an address that is not the one in the membership",
            start_anywhere,
            rule="§10a",
        ),
        Mutant(
            "believe-changed-settings",
            "a node starts with settings that were changed and have another member elsewhere",
            believe_changed_settings,
            rule="§10a",
        ),
        Mutant(
            "pause-at-each-node",
            "a client pauses after each node that does not host the group that it looks for",
            pause_at_each_node,
            rule="§10",
        ),
    )
}
"""The mutants by name."""
