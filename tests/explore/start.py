"""Where an exploration begins when the whole way would be too long: a few steps by hand, checked like all others."""

from __future__ import annotations

from tests.explore.search import describe
from tests.explore.world import Broken, Step, World
from viewstamp.consensus.messages import Message
from viewstamp.ids import NodeId

__all__ = ["STARTS", "Script"]


class Script:
    """Steps by hand: who does what, who hears whom. What nobody delivers stays under way, or is dropped."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.state = world.first()
        self.trace: list[str] = []

    def do(self, me: str, *what: str | int) -> None:
        """Let something happen to a member: ``campaign``, ``write``, ``propose``, ``crash`` and how much it keeps."""
        self._step(Step(self.world.names.index(NodeId(me)), what))  # type: ignore[arg-type]

    def deliver(self, *, to: str, by: str | None = None, kind: type[Message] = Message) -> None:
        """Deliver what is under way to a member, once each, in the order in which it came into the world."""
        at = self.world.names.index(NodeId(to))
        for number in self.state.messages:
            message = self.world.messages.all[number]
            if message.target == to and by in (None, message.source) and isinstance(message, kind):
                self._step(Step(at, ("deliver", number)), is_needed=False)

    def settle(self, *only: str) -> None:
        """Deliver and write among ``only`` until nothing changes any more."""
        while True:
            before = self.state
            for me in only:
                for other in only:
                    self.deliver(to=me, by=other)
                while self.world.members.all[self.state.members[self.world.names.index(NodeId(me))]].queue:
                    self.do(me, "write")
            if self.state == before:
                return

    def elect(self, me: str, *others: str) -> None:
        """Make a member the leader, of ``others`` too."""
        self.do(me, "campaign")
        self.settle(me, *others)
        member = self.world.members.all[self.state.members[self.world.names.index(NodeId(me))]]
        assert member.is_leading, f"{me} does not lead"

    def lose(self) -> None:
        """Drop all that is under way."""
        self.state = self.state._replace(messages=())

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
    script.elect("n1", "n2")
    script.do("n1", "propose")
    script.do("n1", "write")
    script.lose()
    script.do("n2", "campaign")
    script.settle("n2", "n3")
    script.do("n2", "propose")
    script.do("n2", "write")
    script.lose()


STARTS = {"nothing": nothing, "diverged": diverged}
