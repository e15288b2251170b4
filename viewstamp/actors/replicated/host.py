"""``ActorHost``: all instances of all replicated actors of one member, and the operations on them."""

from __future__ import annotations

import struct
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any
from zlib import crc32

from viewstamp.actors.replicated.actor import Moment, ReplicatedActor
from viewstamp.actors.replicated.changes import CHANGES_BYTES_MAX, Change, Changes, describe_command
from viewstamp.actors.replicated.cut import FORMAT, ActorCut, read_pieces
from viewstamp.actors.replicated.definition import check_constructor
from viewstamp.actors.replicated.digest import (
    CHAIN_MASK,
    CREDIT,
    MULTIPLIER,
    TRAIL_MAX,
    derive_lineage,
    fingerprint,
)
from viewstamp.actors.replicated.hosted import MACHINE_FAILURES, Hosted, Instance
from viewstamp.errors import CommandError, CorruptionError, OutdatedCodeError, RequestError, UnknownActorError
from viewstamp.ids import GROUP_0, GroupId
from viewstamp.wire.batch import HEADER_SIZE, Batch
from viewstamp.wire.checksum import crc32c
from viewstamp.wire.commands import (
    NO_RESULT,
    Command,
    decode_arguments,
    decode_commands,
    encode_failure,
    encode_result,
    encode_too_large,
)
from viewstamp.wire.resharding import PackedInstance
from viewstamp.wire.values import PACK_ERRORS, make_packer

__all__ = ["RESULT_BYTES_MAX", "ActorHost", "Prepared"]

RESULT_BYTES_MAX = 1024 * 1024
"""The default limit of the packed result, or error, of one command or query, in bytes."""
_SMALL_RESULT = 256
"""Results up to this size in bytes are never dropped, because the error would not be shorter."""
_RESULTS_IN_BATCH = 16
"""The limit for the results of one batch together, as a multiple of the limit for one result."""

_PLACE = struct.Struct("<Qq")
_CHAIN = struct.Struct("<Q")
_NOWHERE = -1
"""The index during an imagined first command, for a query of an instance that does not exist."""
_SMALL = 4096
"""States up to this size in bytes share one packer with one buffer."""
_NAME_MAX = 100


class ActorHost:
    """Applies commands, answers queries, keeps the newest changes, and makes cuts. Never awaits; one thread only.

    The package's docstring is the specification. After an exception of :meth:`apply` the host must not be used again.
    """

    def __init__(
        self,
        classes: Mapping[str, type[ReplicatedActor]],
        *,
        changes_bytes_max: int = CHANGES_BYTES_MAX,
        result_bytes_max: int = RESULT_BYTES_MAX,
    ) -> None:
        """Create a host for classes, by the names that callers use.

        Args:
          classes: name to class.
          changes_bytes_max: the size of the newest changes that are kept for watchers.
          result_bytes_max: the limit of a query's result on this member. The limit for commands comes with their batch.

        Raises:
          TypeError: a class is not a ``ReplicatedActor``, or its ``__init__`` has parameters without defaults.
          ValueError: a name is empty or too long.
        """
        self._group: GroupId = GROUP_0
        self._classes = dict(classes)
        for name, cls in self._classes.items():
            _check(name, cls)
        self._changes_bytes_max = changes_bytes_max
        self._result_bytes_max = result_bytes_max
        self._pack_small = make_packer()
        self.chain = 0
        """A 64-bit checksum of all applied batches and results; comparable between members of equal ``lineage``."""
        self.lineage = 0
        """A 64-bit checksum of the code in use and the index since which it is in use (``digest.py``)."""
        self._trail: deque[tuple[int, list[int]]] = deque()
        """For each of the newest batches, the index of its first command, and one checksum for each command."""
        self._trailed = 0
        """The number of these commands."""
        self._changes = Changes()
        self._adopt(self._prepare_empty())
        self._cut: ActorCut | None = None
        self._cuts = 0
        self.on_change: Callable[[int], None] | None = None
        """Called after each batch with the index after it, to wake watchers."""

    def enter(self, group: GroupId) -> None:
        """Take the commands from the log of another group than 0, before the first one of them."""
        self._group = self._moment.group = group

    # Commands.

    def decode(self, batch: Batch) -> list[Command]:
        """Decode the commands of a batch. The caller may keep the list from :meth:`check` to :meth:`apply`, once.

        Raises:
          RequestError, FrameError: its records are not commands.
        """
        return decode_commands(*batch.column())

    def check(self, commands: Iterable[Command]) -> None:
        """Check that this member's code can apply these commands. A leader does so before they enter the log.

        Raises:
          UnknownActorError: no such actor or command, or it takes other arguments; the message lists the known ones.
          RequestError: the caller's class is newer than this member's.
        """
        known: set[tuple[str, int, str, int]] = set()
        for actor, _, version, method, arguments, named in commands:
            call = actor, version, method, len(arguments)
            if call in known and not named:
                continue
            hosted = self._named(actor)
            if version > hosted.version:
                raise RequestError(
                    f"the caller uses version {version} of {actor}, but this node runs version {hosted.version}",
                    remedy="upgrade the nodes before their callers",
                )
            hosted.interface.check(method, arguments, named, query=False)
            if not named:
                known.add(call)

    def apply(self, batch: Batch, commands: list[Command]) -> list[bytes]:
        """Apply a committed batch and return the packed results, one for each command.

        The ``first_position`` of a batch of commands is the limit of each result in bytes, set by the leader that
        accepted the batch; 0 = no limit, in logs of older releases. It is in the batch so that every member, at every
        replay and with any settings, decides the same. A command whose result is over the limit has changed the state;
        its result is replaced by an error.

        Raises:
          OutdatedCodeError: this member's code does not know one of the commands, or cannot read a state. The node
            stops; with newer code it continues from here.
          BaseException: one of ``MACHINE_FAILURES``, or not an ``Exception``: a command failed because of this process.
            The node stops.
        """
        moment = self._moment
        moment.log_time = batch.log_time
        limit = int(batch.first_position) or sys.maxsize
        all_hosted, era, pack_small = self._hosted, self._era, self._pack_small
        cut = None if self._cut is None or self._cut.is_closed else self._cut
        self._begin_batch(batch)
        total = crc32(_CHAIN.pack(self.chain))
        touched: list[Hosted] = []
        totals: list[int] = []
        results: list[bytes] = []
        # The hot path: frequent steps are written out here, rare ones are methods.
        for index, command in enumerate(commands, batch.first_index):
            name, key, version, method, arguments, named = command
            hosted = all_hosted.get(name)
            function = None if hosted is None else hosted.commands.get(method)
            if hosted is None or function is None or version > hosted.log_version:
                function = self._begin_era(index, command)
                hosted, era, total = all_hosted[name], self._era, 0
                touched, totals = [], []
            moment.index, moment.version = index, version
            instance = hosted.instances.get(key)
            if instance is None:
                actor = None
            else:
                if cut is not None and instance.cut != cut.number:
                    cut.capture(hosted, instance)
                actor = instance.actor
                if actor is None:
                    actor = hosted.wake(instance)
            try:
                if actor is None:
                    instance = self._create(hosted, key)
                    actor = instance.actor
                value = function(actor, *arguments, **named) if named else function(actor, *arguments)
                if value is None:
                    data = result = NO_RESULT
                else:
                    try:
                        data = result = pack_small([value])
                    except PACK_ERRORS:
                        data = result = encode_result(value)  # Raises, with a message that gives the reason.
                    if len(data) > limit:
                        data = result = encode_too_large(f"{name}.{method}()", len(data), limit, "a result")
            except MACHINE_FAILURES as error:
                error.add_note(f"raised by {describe_command(command)} at index {index}, as no result of it")
                raise
            except Exception as error:
                data = result = _failure(error, limit)
            if instance is not None and actor is not None:
                credit = instance.credit + CREDIT
                if credit >= instance.size or instance.era != era:
                    is_plain = hosted.has_plain_state
                    try:
                        if is_plain and instance.size < _SMALL:
                            state = pack_small(actor.__dict__)
                        else:
                            state = hosted.pack_state(actor)
                    except PACK_ERRORS as error:
                        data = result = _failure(hosted.unpackable(actor.__dict__) if is_plain else error, limit)
                    else:
                        data = result + state
                        instance.size = len(state)
                        instance.credit = 0
                        instance.era = era
                else:
                    instance.credit = credit
            if not hosted.applied:
                touched.append(hosted)
            hosted.applied.append(data)
            total = crc32(data, total)
            totals.append(total)
            results.append(result)
        moment.index = moment.version = 0
        self._end_batch(touched)
        self._follow(batch.end - len(totals), totals)
        if sum(map(len, results)) > _RESULTS_IN_BATCH * limit:
            results = _within(commands, results, _RESULTS_IN_BATCH * limit)
        self._changes.add(batch, results)
        if self.on_change is not None:
            self.on_change(batch.end)
        return results

    def _begin_batch(self, batch: Batch) -> None:
        """Include the batch itself in the chain: its index, log time and body."""
        view = memoryview(batch.buffer)[HEADER_SIZE:]
        place = _PLACE.pack(batch.first_index, batch.log_time)
        body = crc32(view, crc32(place)) << 32 | crc32c(view, crc32c(place))
        self.chain = (self.chain * MULTIPLIER + body) & CHAIN_MASK

    def _end_batch(self, touched: Iterable[Hosted]) -> None:
        """Include the results and states of the batch in the checksums of their names, and these in the chain."""
        for hosted in touched:
            data = b"".join(hosted.applied)
            hosted.applied.clear()
            hosted.low = crc32c(data, hosted.low)
            hosted.high = crc32(data, hosted.high)
            self.chain = (self.chain * MULTIPLIER + (hosted.high << 32 | hosted.low)) & CHAIN_MASK

    def _follow(self, first_index: int, totals: list[int]) -> None:
        trail = self._trail
        trail.append((first_index, totals))
        self._trailed += len(totals)
        while self._trailed - len(trail[0][1]) >= TRAIL_MAX:
            self._trailed -= len(trail.popleft()[1])

    def _forget_trail(self) -> None:
        self._trail.clear()
        self._trailed = 0

    def _begin_era(self, index: int, command: Command) -> Callable[..., Any]:
        """Start chain and credits anew for a command with a higher version than any before. Returns its function.

        Raises:
          OutdatedCodeError: this member's code does not know the command.
        """
        hosted = self._hosted.get(command.actor)
        function = None if hosted is None else hosted.commands.get(command.method)
        if hosted is None or function is None or command.version > hosted.version:
            raise self._outdated(index, command)
        self._raise_version(hosted, command.version, index)
        return function

    def _raise_version(self, hosted: Hosted, version: int, index: int) -> None:
        hosted.log_version = version
        self._era = index
        self.lineage = derive_lineage(self._fingerprint(), index)
        self.chain = 0
        for each in self._hosted.values():
            each.low = each.high = 0
            each.applied.clear()
        self._forget_trail()  # Its checksums may have been computed with other code.

    def _create(self, hosted: Hosted, key: str) -> Instance:
        instance = Instance(key, hosted.fresh(key), None, 0)
        instance.cut = self._cuts
        hosted.add(instance)
        return instance

    # Instances that change their group (``viewstamp.fork``).

    def keep(self, name: str, is_kept: Callable[[str], bool], *, end: int) -> int:
        """Remove the instances of an actor whose keys are not kept; return their number. Closes an open cut.

        The changes before ``end`` are dropped, because those of an instance that comes from another group are not here.
        """
        if self._cut is not None:
            self._cut.close()  # It identifies its instances by their number.
        self._changes = Changes(self._changes_bytes_max, end=end)
        hosted = self._hosted.get(name)
        if hosted is None:
            return 0  # Without its code this member has no instance.
        kept = [instance for instance in hosted.order if is_kept(instance.key)]
        removed = len(hosted.order) - len(kept)
        hosted.order = kept
        hosted.instances = {instance.key: instance for instance in kept}
        return removed

    def take(self, batch: Batch, name: str, version: int, instances: Sequence[PackedInstance]) -> None:
        """Add the instances of a committed batch, asleep.

        Args:
          batch: the batch that has them.
          name: the actor.
          version: the highest version of a command in the logs that they come from.
          instances: the instances.

        Raises:
          OutdatedCodeError: this member's code does not have the actor, or has an older version.
          CorruptionError: one of them exists already.
        """
        hosted = self._hosted.get(name)
        newest = max([version, *(each.version for each in instances)])
        if hosted is None or newest > hosted.version:
            known = _listed(self._hosted) if hosted is None else f"version {hosted.version} of it"
            raise OutdatedCodeError(
                f"the log holds instances of actor {name!r} of version {newest} at index {batch.first_index}, but this"
                f" node's code has {known}",
                remedy="upgrade this node's code, or add the actor's class to its settings, and start it again",
            )
        if version > hosted.log_version:
            self._raise_version(hosted, version, batch.first_index)
        self._begin_batch(batch)
        self._moment.log_time = batch.log_time
        for each in instances:
            if each.key in hosted.instances:
                raise CorruptionError(
                    f"{batch!r} has {name}[{each.key!r}], which this group has already",
                    expected="an instance of another group",
                    found="one of this group",
                    remedy="stop the node, keep its files, and report this as a bug",
                )
            instance = Instance(each.key, None, each.state, each.version)
            instance.cut = self._cuts
            hosted.add(instance)
        self._changes = Changes(self._changes_bytes_max, end=int(batch.end))

    def _fingerprint(self) -> bytes:
        return fingerprint((name, each.version) for name, each in self._hosted.items() if each.log_version)

    def _outdated(self, index: int, command: Command) -> OutdatedCodeError:
        hosted = self._hosted.get(command.actor)
        if hosted is None:
            what = f"no actor {command.actor!r}, only {_listed(self._hosted)}"
        elif command.version > hosted.version:
            what = f"version {hosted.version} of the actor, but the command needs version {command.version}"
        else:
            what = f"no command {command.method!r} of the actor, only {_listed(hosted.commands)}"
        return OutdatedCodeError(
            f"the log holds {describe_command(command)} at index {index}, but this node's code has {what}",
            remedy="upgrade this node's code and start it again",
        )

    # Queries.

    def query(self, name: str, key: str, method: str, arguments: bytes) -> bytes:
        """Run a query and return its packed result; an exception of the query is a result too.

        An instance that no command has created yet is created for this query only.

        Raises:
          UnknownActorError: no such actor or query, or it takes other arguments.
          RequestError: the arguments are not packed arguments, or the result cannot be packed. A result over
            ``result_bytes_max`` is dropped and replaced by an error.
          OutdatedCodeError: the class cannot read the state of a snapshot.
        """
        hosted = self._named(name)
        positional, named = decode_arguments(arguments)
        hosted.interface.check(method, positional, named, query=True)
        instance = hosted.instances.get(key)
        actor = hosted.wake(instance) if instance is not None else None
        try:
            if actor is None:
                actor = self._imagine(hosted, key)
            value = hosted.queries[method](actor, *positional, **named)
        except Exception as error:
            return _failure(error, self._result_bytes_max)
        result = encode_result(value)
        if len(result) > self._result_bytes_max:
            return encode_too_large(f"{name}.{method}()", len(result), self._result_bytes_max, "a result")
        return result

    def _imagine(self, hosted: Hosted, key: str) -> ReplicatedActor:
        """Create an instance as a first command would, for one query, because its constructor may draw ids."""
        self._moment.index, self._moment.version = _NOWHERE, hosted.version
        try:
            return hosted.fresh(key)
        finally:
            self._moment.index = self._moment.version = 0

    def describe(self, name: str) -> dict[str, Any]:
        """Return the actor's interface, for the response to DESCRIBE_ACTOR, under the name that callers use.

        Raises:
          UnknownActorError: no such actor.
        """
        return {**self._named(name).interface.to_wire(), "name": name}

    def count_instances(self, name: str) -> int:
        """Return the number of instances of an actor; 0 also if this member's code does not have it."""
        hosted = self._hosted.get(name)
        return 0 if hosted is None else len(hosted.order)

    def has_instance(self, name: str, key: str) -> bool:
        """Return whether an instance exists."""
        hosted = self._hosted.get(name)
        return hosted is not None and key in hosted.instances

    def status(self) -> dict[str, dict[str, Any]]:
        """Return the rows of :meth:`list`, by the actors' names."""
        return {each.pop("name"): each for each in self.list()}

    def _named(self, name: str) -> Hosted:
        hosted = self._hosted.get(name)
        if hosted is None:
            others = f"only {_listed(self._hosted)}" if self._hosted else "and no other one"
            raise UnknownActorError(
                f"this node has no actor {name!r}, {others}",
                remedy="correct the name, or add [actors] NAME = MODULE:CLASS to the settings of every node",
            )
        return hosted

    # Compared between members, and shown to watchers.

    @property
    def trail(self) -> list[tuple[int, int]]:
        """Pairs of an index and the checksum of the chain up to this command, oldest first.

        They are of the newest commands of this lineage, at most 65,536. Checksums that differ once differ ever after.
        """
        rows = [row for first, totals in self._trail for row in enumerate(totals, first)]
        return rows[-TRAIL_MAX:]

    def describe_index(self, index: int) -> str:
        """Return the command at ``index``, for example ``inventory['k'].reserve('A-17', 2)``; "" = no longer kept."""
        return self._changes.describe(index)

    def changes(self, name: str, key: str | None, index: int) -> tuple[list[Change], int]:
        """Return changes of an actor, or of one instance, from ``index`` on, and the index to ask from next.

        ``index`` 0 = from now on. One call returns a limited number; ask again until nothing is returned and the next
        index stays the same.

        Raises:
          UnknownActorError: no such actor.
          TrimmedError: the changes are no longer kept; ``first`` is the first kept index.
        """
        self._named(name)
        return self._changes.read(index, name, key)

    def digest(self) -> bytes:
        """Return a digest of all states: equal on members that run the same code and applied the same log. Slow."""
        whole = blake2b(digest_size=16)
        for name, hosted in sorted(self._hosted.items()):
            for instance in hosted.order:
                actor = instance.actor
                packed = hosted.pack_state(hosted.revive(instance) if actor is None else actor)
                whole.update(b"%r %r %d " % (name.encode(), instance.key.encode(), len(packed)) + packed)
        return whole.digest()

    def state_sum(self, name: str) -> bytes:
        """Return a checksum of the states of all instances of an actor, in any order and of any number of hosts. Slow.

        It is the sum, modulo 2^128, of a digest of each instance's key and packed state. So the sum over the groups of
        a spread actor is that of one group with all the instances.
        """
        total = 0
        hosted = self._named(name)
        for instance in hosted.order:
            actor = instance.actor
            packed = hosted.pack_state(hosted.revive(instance) if actor is None else actor)
            key = instance.key.encode()
            digest = blake2b(b"%d %b %b" % (len(key), key, packed), digest_size=16).digest()
            total += int.from_bytes(digest, "little")
        return (total % (1 << 128)).to_bytes(16, "little")

    # Cuts.

    def begin_cut(self) -> ActorCut:
        """Begin a cut of the present state; takes time proportional to the number of names. Only one cut at a time.

        The caller must close the cut, also after its last piece.
        """
        assert self._cut is None or self._cut.is_closed, "one cut at a time"
        self._cuts += 1
        head = {
            "format": FORMAT,
            "end": self._changes.end,
            "log_time": self._moment.log_time,
            "chain": self.chain,
            "era": self._era,
            "lineage": self.lineage,
            "fingerprint": self._fingerprint(),
            "actors": {
                name: [each.log_version, each.low, each.high, len(each.order)] for name, each in self._hosted.items()
            },
        }
        self._cut = ActorCut(self._cuts, head, self._hosted.values())
        return self._cut

    def prepare(self, pieces: Iterable[bytes]) -> Prepared:
        """Build a state from the pieces of a cut, without touching the present one. May run on any thread.

        Instances are asleep until their first use. One of each name is built at once, to find out here if a class
        cannot read its states.

        Raises:
          CorruptionError: the pieces are not a cut.
          OutdatedCodeError: they hold an actor, or a version, that this member's code does not know.
        """
        image = read_pieces(pieces)
        head = image.head
        prepared = self._prepare_empty()
        try:
            for name, (log_version, low, high, _) in head["actors"].items():
                instances = image.instances[name]
                hosted = prepared.hosted.get(name)
                if hosted is None and not log_version and not instances:
                    continue  # It was never called. The version alone does not prove that: calls by name carry 0.
                newest = max([log_version, *(each.version for each in instances)])
                if hosted is None or newest > hosted.version:
                    known = _listed(prepared.hosted) if hosted is None else f"version {hosted.version} of it"
                    raise OutdatedCodeError(
                        f"the snapshot holds actor {name!r} of version {newest}, but this node's code has {known}",
                        remedy="upgrade this node's code, or add the actor's class to its settings, and start it again",
                    )
                hosted.log_version, hosted.low, hosted.high = log_version, low, high
                for instance in instances:
                    hosted.add(instance)
                if hosted.order:
                    hosted.revive(hosted.order[0])
            code = fingerprint((name, each.version) for name, each in prepared.hosted.items() if each.log_version)
            lineage = head["lineage"]
            if code != head["fingerprint"]:
                lineage = derive_lineage(code, head["end"], lineage)
            prepared.chain, prepared.era, prepared.lineage = head["chain"], head["era"], lineage
            prepared.end, prepared.log_time = head["end"], head["log_time"]
        except (
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            ArithmeticError,
            AssertionError,
            RequestError,
        ) as error:
            raise CorruptionError(f"the pieces are not a snapshot of actors: {error!r}") from error
        return prepared

    def adopt(self, prepared: Prepared) -> None:
        """Replace the state by one that :meth:`prepare` built; each can be used once. Closes an open cut."""
        if self._cut is not None:
            self._cut.close()
        self._adopt(prepared)

    def _prepare_empty(self) -> Prepared:
        moment = Moment(self._group)
        hosted = {name: Hosted(name, cls, moment) for name, cls in self._classes.items()}
        return Prepared(moment, hosted)

    def _adopt(self, prepared: Prepared) -> None:
        self._moment = prepared.moment
        self._moment.log_time = prepared.log_time
        self._hosted = prepared.hosted
        self.chain = prepared.chain
        self._era, self.lineage = prepared.era, prepared.lineage
        self._forget_trail()
        self._changes = Changes(self._changes_bytes_max, end=prepared.end)

    def list(self) -> list[dict[str, Any]]:
        """Return for each actor: name, class, version, instances (their number), digest (hex)."""
        return [
            {
                "name": name,
                "class": hosted.cls.__qualname__,
                "version": hosted.version,
                "instances": len(hosted.order),
                "digest": f"{hosted.high << 32 | hosted.low:016x}",
            }
            for name, hosted in self._hosted.items()
        ]


@dataclass(slots=True)
class Prepared:
    """A state of a host that is not in use yet."""

    moment: Moment
    hosted: dict[str, Hosted]
    chain: int = 0
    era: int = 0
    lineage: int = 0
    end: int = 1
    log_time: int = 0


def _check(name: str, cls: type[ReplicatedActor]) -> None:
    if not name or len(name) > _NAME_MAX:
        raise ValueError(f"the name of an actor must have 1 to {_NAME_MAX} characters, not {name!r:.120}")
    if not (isinstance(cls, type) and issubclass(cls, ReplicatedActor)):
        raise TypeError(f"actor {name!r}: {cls!r} is not a class derived from viewstamp.ReplicatedActor")
    check_constructor(cls)


def _failure(error: Exception, limit: int) -> bytes:
    """Return the result that represents an exception, of about ``limit`` bytes at most."""
    kind = str(error.kind) if isinstance(error, CommandError) else type(error).__name__
    try:
        text = str(error)
    except Exception as defect:
        # The actor's code raised it, or a number is too long to print. It must not stop all members at each replay.
        text = f"its text raises {type(defect).__name__}"
    return encode_failure(_cut(kind, limit // 8), _cut(text, limit // 8))


def _cut(text: str, characters: int) -> str:
    """Return the first ``characters`` characters of a text; each packs into at most 10 bytes, usually into one."""
    return text if len(text) <= characters else f"{text[:characters]}... ({len(text):,} characters)"


def _within(commands: Iterable[Command], results: list[bytes], limit: int) -> list[bytes]:
    """Return the results of a batch; those beyond ``limit`` bytes in total are replaced by errors."""
    kept, left = [], limit
    for command, result in zip(commands, results, strict=True):
        size = len(result)
        if size > left and size > _SMALL_RESULT:
            call = f"{command.actor}.{command.method}()"
            result = encode_too_large(call, size, limit, "all results of its batch")
        left -= len(result)
        kept.append(result)
    return kept


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
