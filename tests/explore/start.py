"""Where an exploration begins when the whole way would be too long: a few steps by hand, checked like all others."""

from __future__ import annotations

from tests.explore.member import Input, Member
from tests.explore.search import describe
from tests.explore.world import Broken, Step, World
from viewstamp.consensus.messages import Message
from viewstamp.ids import NodeId

__all__ = ["Script", "changing", "diverged", "halfway", "leading", "nothing", "outgrown", "replacing", "snapped"]


class Script:
    """Steps by hand: who does what, who hears whom. What nobody delivers stays under way, or is dropped."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.state = world.first()
        self.trace: list[str] = []
        self.heard: set[int] = set()
        """What has been delivered: here nothing comes twice."""

    def do(self, me: str, word: str, number: int = 0, name: str = "") -> None:
        """Let something happen to a member: ``campaign``, ``write``, ``propose``, ``crash`` and how much it keeps."""
        self._step(Step(self.world.names.index(NodeId(me)), Input(word, number, name)))

    def deliver(self, *, to: str, by: str | None = None, kind: type[Message] = Message) -> None:
        """Deliver what is under way to a member, once each, in the order in which it came into the world."""
        at = self.world.names.index(NodeId(to))
        for number in self.state.messages:
            message = self.world.messages.all[number]
            if number in self.heard:
                continue
            if message.target == to and by in (None, message.source) and isinstance(message, kind):
                self.heard.add(number)
                self._step(Step(at, Input("deliver", number)), is_needed=False)

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
        """Make a member the leader, of ``others`` too."""
        self.do(me, "campaign")
        self.settle(me, *others)
        assert self.member(me).is_leading, f"{me} does not lead"

    def rest(self) -> None:
        """Start all members anew, with what they have written; drop all that is under way. Bounds count from here."""
        for me in self.world.names:
            while self.member(me).queue:
                self.do(me, "write")
            self.do(me, "crash")
        self.forget()

    def forget(self) -> None:
        """Drop all that is under way; bounds count from here."""
        self.state = self.state._replace(messages=(), crashes=0, changes=0)

    def member(self, me: str) -> Member:
        """Return a member as it is now."""
        return self.world.members.all[self.state.members[self.world.names.index(NodeId(me))]]

    def _step(self, step: Step, *, is_needed: bool = True) -> None:
        words = describe(self.world, self.state, step)
        follows = self.world.step(self.state, step)
        assert not isinstance(follows, Broken), f"{words}: {follows}"
        if follows is None:
            assert not is_needed, f"{words}: that does nothing"
            return
        self.state = follows
        self.trace.append(words)


def nothing(_: Script) -> None:
    """Begin where nothing has happened."""


def diverged(script: Script) -> None:
    """n1 has a record of term 1 alone, n2 one of term 2 alone: the beginning of figure 8 of the Raft paper."""
    diverge(script)
    script.rest()


def diverge(script: Script) -> None:
    """The same, but n2 leads yet."""
    script.elect("n1", "n2")
    script.do("n1", "propose")
    script.rest()
    script.elect("n2", "n3")
    script.do("n2", "propose")


def outgrown(script: Script) -> None:
    """n1 has two records of term 1 alone: its log is the longest, and of an old term as soon as there is another."""
    script.elect("n1", "n2")
    script.do("n1", "propose")
    script.do("n1", "propose")
    script.rest()


def halfway(script: Script) -> None:
    """n1 has two records of term 1, n2 the first of them, none is committed: the next term begins behind n2's end."""
    script.elect("n1", "n2")
    script.do("n1", "propose")
    script.deliver(to="n2", by="n1")
    script.do("n1", "propose")
    script.rest()


def snapped(script: Script) -> None:
    """n1 has a record of term 1 alone, n2 and n3 one of term 2: n2 in a snapshot only, and its history is trimmed."""
    diverge(script)
    script.settle("n2", "n3")
    script.do("n2", "snapshot")
    script.rest()
    script.elect("n2", "n3")
    script.rest()


def replacing(script: Script) -> None:
    """n1 leads; n4 has caught up as a learner in n3's place, and is a voter beside n3 in n1's log only."""
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
    """n1 leads, and all the others know it."""
    script.elect("n1", *script.world.names[1:])
    script.do("n1", "tell")
    script.settle(*script.world.names)
    script.forget()


def changing(script: Script) -> None:
    """The removal of n4 is in n1's log only; n2 leads the next term, n3 has voted for it and heard no more."""
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
