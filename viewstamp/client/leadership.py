"""The leader as a client knows it: finding it, opening a session there, asking it. Holds no appends."""

from __future__ import annotations

from typing import Protocol

from viewstamp.client.connection import Link
from viewstamp.client.leader import LeaderSearch
from viewstamp.client.links import Links, again, closed_error
from viewstamp.client.options import Options
from viewstamp.client.refusals import ELSEWHERE
from viewstamp.client.shell import Future, Shell
from viewstamp.errors import (
    RequestError,
    StorageFullError,
    UnavailableError,
    ViewstampError,
    WrongNodeError,
)
from viewstamp.ids import SessionId
from viewstamp.wire.frame import Frame
from viewstamp.wire.requests import FrameKind

__all__ = ["Leadership", "Owner"]


class Owner(Protocol):
    """Who needs a leader: the client."""

    @property
    def has_work(self) -> bool:
        """Whether something waits to be sent or answered."""
        ...

    @property
    def has_session(self) -> bool:
        """Whether a session is open."""
        ...

    def on_session(self, session: SessionId) -> None:
        """Take note that a session was opened."""
        ...

    def on_leader(self) -> None:
        """Take note that there is a link to send to, and a session if there is work."""
        ...

    def on_left(self) -> None:
        """Take note that the link is not the leader's any more."""
        ...

    def on_hopeless(self, error: ViewstampError) -> None:
        """Take note that waiting helps nobody."""
        ...


class Leadership:
    """The link to the node that leads, as far as is known.

    Invariants:
      * ``link`` is None or was open when it was last looked at; ``leave`` is called for it when it ends
      * whoever waits for a leader is told: the link, an error, or by its own deadline
    """

    def __init__(self, shell: Shell, links: Links, search: LeaderSearch, options: Options, owner: Owner) -> None:
        self.link: Link | None = None
        self._shell = shell
        self._links = links
        self._search = search
        self._options = options
        self._owner = owner
        self._idle: Future[None] | None = None
        """What ``run`` waits for while nobody needs a leader."""
        self._waiters: list[Future[Link]] = []
        self._is_closed = False

    def need(self) -> None:
        """Look again whether a leader is needed."""
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def close(self) -> None:
        """Tell everybody who waits."""
        self._is_closed = True
        self.link = self._links.preferred = None
        self._fail(closed_error())

    async def run(self) -> None:
        """Find the leader, and open a session there, whenever somebody needs it. The client's one standing task."""
        while True:
            if not self._is_needed():
                self._idle = self._shell.create_future()
                await self._idle
                continue
            if self._search.last_error is not None:
                await self._shell.sleep(self._search.delay())
            try:
                await self._approach()
            except ViewstampError:
                # At every address answers one that is none of ours: waiting helps nobody.
                stranger = self._search.strangers
                if stranger is not None:
                    self._give_up(stranger)

    def _give_up(self, error: ViewstampError) -> None:
        """Fail all who wait for a leader, because waiting does not help."""
        self._owner.on_hopeless(error)
        self._fail(error)

    def _is_needed(self) -> bool:
        if self.link is None:
            return self._owner.has_work or bool(self._waiters)
        return not self._owner.has_session and self._owner.has_work

    async def _approach(self) -> None:
        """Take one step: connect to a node that may lead, or open a session with it."""
        link = self.link
        if link is None:
            address = self._search.next_address()
            try:
                link = await self._links.to(address)
            except ViewstampError as error:
                self._search.failed(address, error, is_away=isinstance(error, UnavailableError))
                if isinstance(error, WrongNodeError) and not self._links.admits(address):
                    self._give_up(error)  # A node that was met says that the leader is none of the expected nodes.
                raise
            self.link = self._links.preferred = link
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(link)
            self._waiters = []
        if not self._owner.has_session and self._owner.has_work:
            await self._open_session(link)
        self._owner.on_leader()

    async def _open_session(self, link: Link) -> None:
        try:
            frame = await link.ask(FrameKind.OPEN_SESSION, {}, timeout=self._options.silence)
        except TimeoutError:
            self._links.suspect(link)
            return
        except ViewstampError as error:
            self.leave(link, error)
            if isinstance(error, RequestError | StorageFullError):
                self._owner.on_hopeless(error)
            raise
        # A session is the cluster's and not the connection's: it is good even if the leader was left meanwhile.
        link.has_led = True
        self._owner.on_session(SessionId(frame.body["session"]))
        self._search.succeeded()

    def leave(self, link: Link, error: ViewstampError) -> None:
        """Give up a leader that is none, or is gone. What it owes goes to the next one."""
        if self.link is link:
            self.link = self._links.preferred = None
            self._search.failed(link.address, error, is_away=link.is_silent)
            self._owner.on_left()
            self.need()

    def _fail(self, error: ViewstampError) -> None:
        fresh = again(error)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(fresh())
        self._waiters = []

    async def _wait(self, seconds: float) -> Link:
        """Return a link to the node that leads as far as is known. Raises TimeoutError."""
        if self.link is not None:
            return self.link
        waiter: Future[Link] = self._shell.create_future()
        self._waiters.append(waiter)
        self.need()
        try:
            return await self._shell.within(seconds, waiter)
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    async def ask(self, kind: FrameKind, body: dict[str, object], *, deadline: float) -> Frame:
        """Ask the leader, wherever it goes, until it answers. For requests that may be carried out twice.

        Args:
          kind: of the request.
          body: of the request, without id.
          deadline: on the shell's clock.

        Raises:
          UnavailableError: not carried out.
          OutcomeUnknownError: it may have been carried out; ask again.
          RequestError, StorageFullError: what the leader answered.
        """
        time = self._shell.time
        reason: BaseException | None = None
        is_doubtful = False
        while True:
            seconds = deadline - time()
            try:
                if seconds <= 0:
                    raise TimeoutError
                link = await self._wait(seconds)
            except TimeoutError:
                why = f"no leader has answered: {reason or self._search.last_error or 'none was found'}"
                raise self._links.unanswered(why, is_unknown=is_doubtful) from reason
            try:
                frame = await link.ask(kind, body, timeout=min(self._options.silence, max(0.0, deadline - time())))
            except TimeoutError:
                reason, is_doubtful = UnavailableError(f"{link.address} did not answer in time"), True
                self._links.suspect(link)
            except (RequestError, StorageFullError):
                raise
            except ViewstampError as error:
                if self._is_closed:
                    raise closed_error() from error
                is_later = isinstance(error, UnavailableError) and not isinstance(error, ELSEWHERE)
                if is_later or reason is None or isinstance(reason, ELSEWHERE):
                    reason = error  # What stands in the way says more than who does not lead.
                # A node that refused says so; of one that was lost, or failed, nothing is known.
                is_doubtful = is_doubtful or not (link.is_open and isinstance(error, UnavailableError))
                if is_later and link.has_led:
                    self._search.failed(link.address, error)
                    await self._shell.sleep(min(self._search.delay(), seconds))
                else:
                    self.leave(link, error)
            else:
                link.has_led = True
                self._search.succeeded()
                return frame
