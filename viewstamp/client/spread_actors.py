"""A client's calls about spread actors: actors whose instances are spread over groups by their keys."""

from __future__ import annotations

from collections.abc import Sequence

from viewstamp.client.admin import Admin
from viewstamp.client.checks import as_text, as_whole
from viewstamp.client.router import Router
from viewstamp.wire.spread_actors import ListSpreadActors, SpreadActor, SpreadActorOverGroups

__all__ = ["SpreadActorCalls"]


class SpreadActorCalls:
    """Spreads actors over groups, and lists them, in group 0."""

    def __init__(self, router: Router, admin: Admin) -> None:
        self._router = router
        self._admin = admin

    async def spread_actor(self, name: str, *, groups: Sequence[int] = (), timeout: float | None = None) -> SpreadActor:
        """Spread the instances of an actor over groups, by their keys. Returns when the record is committed.

        It has to be done before the first command of the actor, and it is for ever: an instance cannot move. The nodes
        that host the groups have to run the actor's class, as all nodes. The same call again finds the same. Cancelled:
        the actor may be spread all the same.

        Example::

            spread = await client.spread_actor("account")
            print(spread.groups, spread.group_of("anna"))

        Args:
          name: the name under which the nodes run the actor.
          groups: the ids of the groups, each once; () = all that are established.
          timeout: seconds from now; None = the client's default.

        Raises:
          UnknownActorError: the nodes do not run such an actor.
          RequestError: the actor has an instance already, or is spread over other groups; no group is established, or a
            named one is not; or a member runs a release without spread actors, or acknowledges
            before it syncs.
          UnavailableError: not spread; there is no leader, or a member does not answer.
          OutcomeUnknownError: it may have been spread (``token`` is None); call again, which is harmless.
        """
        request = SpreadActorOverGroups(
            name=as_text(name, "the name of an actor"),
            groups=[as_whole(group, "the id of a group") for group in groups],
        )
        frame = await self._admin.ask_leader(request, "the actor is not spread", timeout=timeout)
        return SpreadActor.read(frame.body["actor"])

    async def list_spread_actors(self, *, stale: bool = False, timeout: float | None = None) -> list[SpreadActor]:
        """List the actors that are spread over groups, in the order in which they were spread.

        Linearizable by default; ``stale`` = as any one node has them, which may lack the newest.

        Raises:
          UnavailableError: no node answered in time.
        """
        frame = await self._router.ask(ListSpreadActors(stale=stale), timeout)
        return [SpreadActor.read(each) for each in frame.body["actors"]]
