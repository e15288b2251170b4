"""Initial worlds for explorations that would otherwise be too deep: a few scripted steps, checked like all others."""

from __future__ import annotations

from tests.explore.member import Input, Member
from tests.explore.search import describe
from tests.explore.world import Broken, Step, World
from viewstamp.consensus.messages import Message
from viewstamp.ids import NodeId

__all__ = [
    "Script",
    "changing",
    "diverged",
    "halfway",
    "leading",
    "nothing",
    "outgrown",
    "replacing",
    "snapped",
    "unnamed",
]


class Script:
    """Takes scripted steps: inputs to members, and deliveries. Undelivered messages stay pending or are dropped."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.state = world.first()
        self.trace: list[str] = []
        self.heard: set[int] = set()
        """The delivered messages; a script delivers each once."""

    def do(self, me: str, word: str, number: int = 0, name: str = "") -> None:
        """Give a member an input.

        For example ``campaign``, ``write``, ``propose``, or ``crash`` with the number of writes that it keeps.
        """
        self._step(Step(self.world.names.index(NodeId(me)), Input(word, number, name)))

    def deliver(self, *, to: str, by: str | None = None, kind: type[Message] = Message) -> None:
        """Deliver the pending messages to a member, once each, in the order of their creation."""
        at = self.world.names.index(NodeId(to))
        for number in self.state.messages:
            message = self.world.messages.all[number]
            if number in self.heard:
                continue
            if message.target == to and by in (None, message.source) and isinstance(message, kind):
                self.heard.add(number)
                self._step(Step(at, Input("deliver", number)), is_needed=False)

    def deliver_next(self, *, to: str, by: str) -> None:
        """Deliver the oldest pending message from one member to another."""
        at = self.world.names.index(NodeId(to))
        for number in self.state.messages:
            message = self.world.messages.all[number]
            if number not in self.heard and message.target == to and message.source == by:
                self.heard.add(number)
                self._step(Step(at, Input("deliver", number)), is_needed=False)
                return

    def settle(self, *only: str) -> None:
        """Deliver and write among ``only`` until nothing changes any more."""
        while True:
            before = self.state
            for me in only:
                for other in only:
                    self.deliver(to=me, by=other)
                while self.member(me).queue:
                    self.do(me, "write")
            if self.state == before:
                return

    def elect(self, me: str, *others: str) -> None:
        """Make a member the leader of itself and ``others``."""
        self.do(me, "campaign")
        self.settle(me, *others)
        assert self.member(me).is_leading, f"{me} does not lead"

    def rest(self) -> None:
        """Restart all members from their written state and drop all pending messages. The bounds count from here."""
        for me in self.world.names:
            while self.member(me).queue:
                self.do(me, "write")
            self.do(me, "crash")
        self.forget()

    def forget(self) -> None:
        """Drop all pending messages. The bounds count from here."""
        self.state = self.state._replace(messages=(), crashes=0, changes=0)

    def member(self, me: str) -> Member:
        """Return a member in its current state."""
        return self.world.members.all[self.state.members[self.world.names.index(NodeId(me))]]

    def _step(self, step: Step, *, is_needed: bool = True) -> None:
        words = describe(self.world, self.state, step)
        follows = self.world.step(self.state, step)
        assert not isinstance(follows, Broken), f"{words}: {follows}"
        if follows is None:
            assert not is_needed, f"{words}: the step changes nothing"
            return
        self.state = follows
        self.trace.append(words)


def nothing(_: Script) -> None:
    """Begin with the first world, in which nothing has happened."""


def diverged(script: Script) -> None:
    """n1 alone has a record of term 1, n2 alone one of term 2: the beginning of figure 8 of the Raft paper."""
    diverge(script)
    script.rest()


def diverge(script: Script) -> None:
    """The same as ``diverged``, but n2 still leads."""
    script.elect("n1", "n2")
    script.do("n1", "propose")
    script.rest()
    script.elect("n2", "n3")
    script.do("n2", "propose")


def outgrown(script: Script) -> None:
    """n1 alone has two records of term 1: its log is the longest, but of an old term as soon as there is a new one."""
    script.elect("n1", "n2")
    script.do("n1", "propose")
    script.do("n1", "propose")
    script.rest()


def halfway(script: Script) -> None:
    """n1 has two records of term 1, n2 has the first; neither is committed. The next term begins behind n2's end."""
    script.elect("n1", "n2")
    script.do("n1", "propose")
    script.deliver(to="n2", by="n1")
    script.do("n1", "propose")
    script.rest()


def snapped(script: Script) -> None:
    """n1 alone has a record of term 1, n2 and n3 one of term 2, n2 only in a snapshot; its history is trimmed."""
    diverge(script)
    script.settle("n2", "n3")
    script.do("n2", "snapshot")
    script.rest()
    script.elect("n2", "n3")
    script.rest()


def replacing(script: Script) -> None:
    """n1 leads. n4 has caught up as a learner in n3's place, and is a voter beside n3 in n1's log only."""
    script.elect("n1", "n2", "n3")
    script.do("n1", "add", name="n4>n3")
    for _ in range(9):
        script.settle("n1", "n2", "n3", "n4")
        script.forget()
        script.do("n1", "tell")
        if script.member("n1").core.membership.is_joint:
            return
    raise AssertionError("n4 is not promoted")


def leading(script: Script) -> None:
    """n1 leads, and all other members follow it."""
    script.elect("n1", *script.world.names[1:])
    script.do("n1", "tell")
    script.settle(*script.world.names)
    script.forget()


def unnamed(script: Script) -> None:
    """n1 leads, and the others follow. The committed membership record names the disks of n1 and n2."""
    script.do("n1", "meet", name="n2")
    script.elect("n1", "n2", "n3")
    script.do("n1", "tell")
    script.settle("n1", "n2", "n3")
    script.forget()


def changing(script: Script) -> None:
    """The removal of n4 is in n1's log only. n2 leads the next term; n3 has voted for it and received nothing since."""
    script.elect("n1", "n2", "n3", "n4")
    script.do("n1", "tell")
    script.settle("n1", "n2", "n3", "n4")
    script.do("n1", "remove", name="n4")
    script.rest()
    script.do("n2", "campaign")
    for voter in ("n3", "n4"):
        script.deliver(to=voter, by="n2")
        script.deliver(to="n2", by=voter)
    script.settle("n2", "n4")
    script.forget()
