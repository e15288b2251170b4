"""The links of an event loop: which of them a client may share, and how one is opened for all that wait for it.

Clients share a link if they run on one event loop and agree on ``LinkRequest.key``: the network, the address, the node
that must answer there, the group, and the limits that decide when a link ends. The cluster's id is not in it, because
each client compares the id of the link that it joins with its own.

Cancellation, at each await
---------------------------
| a client is cancelled while it | then |
| --- | --- |
| waits for a link that another client opens | it is forgotten; the other client goes on |
| opens a link: connects, or waits for WELCOME | the connection is aborted; one of the clients that wait for the link \
opens it instead, with the whole ``connect_timeout`` |
| waits for an answer (``NodeConnection.ask``), request not yet taken by the link | the request is never sent |
| waits for an answer, request sent | the answer is dropped when it arrives; until then it counts as a question |
| waits for an append | as the package's docstring says: not sent yet, it never is; sent, it may be committed |

If opening fails, all clients that wait for the link get the same error at once. If each of them tried by itself, one
after the other, each attempt could take ``connect_timeout``. They do so only if the node refused the cluster id of the
client that opened the link, because the others may have another one.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from viewstamp.client.link import Link
from viewstamp.client.routing import Directories, ExpectedNode, copies
from viewstamp.client.runtime import Dialer, Future, Runtime
from viewstamp.errors import UnavailableError, ViewstampError, WrongClusterError
from viewstamp.ids import GroupId
from viewstamp.wire.access import Token

__all__ = ["LinkRequest", "Links"]


class LinkRequest(NamedTuple):
    """A client's wish for a link.

    Attributes:
      network: connects. Clients with equal networks (by ``==``) may share.
      address: of the node.
      cluster_id: of the client; "" = any cluster.
      expected: the node that has to answer; None = any node of the cluster.
      challenge: random bytes by which an expected node proves its identity.
      token: of the client; None = it has none. Its ``repr`` does not show the secret.
      directories: nodes whose data directories the client can read, and their incarnations.
      group: the group to which the requests belong.
      connect_timeout: seconds for the connection and the handshake together.
      silence: seconds after which a node that owes an answer and has sent nothing counts as dead.
      frame_bytes_max: the largest frame that the client takes.
      is_alone: whether the link must not be shared.
    """

    network: Dialer
    address: str
    cluster_id: str
    expected: ExpectedNode | None
    challenge: bytes
    token: Token | None
    directories: Directories
    group: GroupId
    connect_timeout: float
    silence: float
    frame_bytes_max: int
    is_alone: bool

    @property
    def key(self) -> Hashable:
        """Equal for clients that may share a link."""
        return (
            *(self.network, self.address, self.expected, self.token, self.directories, self.group),
            *(self.connect_timeout, self.silence, self.frame_bytes_max),
        )


class Links:
    """The open links of one event loop, and those that are being opened.

    Invariants:
      * a link is here from the end of its handshake until it ends
      * for each key at most one client opens a link; the others wait for it
    """

    def __init__(self, runtime: Runtime) -> None:
        """Begin empty. ``runtime`` is of the event loop, and has to outlive every client."""
        self._runtime = runtime
        self._open: dict[Hashable, list[Link]] = {}
        self._waiting: dict[Hashable, list[Future[None]]] = {}
        """Clients that wait for the link that another client opens."""

    async def find(self, runtime: Runtime, wanted: LinkRequest) -> Link:
        """Return an open link; the caller joins it at once. Cancellation: see the module's docstring.

        Args:
          runtime: of the client that asks.
          wanted: see :class:`LinkRequest`.

        Raises:
          UnavailableError: no node answers there within ``connect_timeout`` seconds.
          WrongClusterError, PeerError, FrameError: the server there is no node of the cluster.
          WrongNodeError: it is not the node that is expected.
        """
        if wanted.is_alone:
            return await self._dial(runtime, wanted)
        key = wanted.key
        while True:
            link = next((link for link in self._open.get(key, ()) if link.has_room), None)
            if link is not None:
                return link
            if key not in self._waiting:
                return await self._dial_for_all(runtime, wanted)
            opened: Future[None] = runtime.create_future()
            self._waiting[key].append(opened)
            try:
                await runtime.within(wanted.connect_timeout, opened)
            except TimeoutError:
                raise _no_answer(wanted) from None

    async def _dial_for_all(self, runtime: Runtime, wanted: LinkRequest) -> Link:
        key = wanted.key
        self._waiting[key] = []
        error: ViewstampError | None = None
        try:
            link = await self._dial(runtime, wanted)
            if link.doubt is None:
                self._open.setdefault(key, []).append(link)
            return link
        except WrongClusterError:
            raise
        except ViewstampError as failure:
            error = failure
            raise
        finally:
            for opened in self._waiting.pop(key):
                if opened.done():
                    continue
                if error is None:
                    opened.set_result(None)
                else:
                    opened.set_exception(copies(error)())

    async def _dial(self, runtime: Runtime, wanted: LinkRequest) -> Link:
        link = Link(
            self._runtime,
            wanted.address,
            frame_bytes_max=wanted.frame_bytes_max,
            silence=wanted.silence,
            on_end=lambda link: self._forget(wanted.key, link),
        )

        async def greet() -> None:
            await wanted.network.connect(wanted.address, link.accept)
            await link.greet(
                wanted.cluster_id,
                wanted.expected,
                wanted.challenge,
                token=wanted.token,
                directories=wanted.directories,
                group=wanted.group,
            )

        try:
            await runtime.within(wanted.connect_timeout, greet())
        except TimeoutError:
            link.abort()
            raise _no_answer(wanted) from None
        except OSError as error:
            link.abort()
            raise UnavailableError(
                f"cannot connect to {wanted.address}: {error.strerror or error}",
                remedy="check that the node runs and that the address is right",
            ) from error
        except BaseException:
            link.abort()
            raise
        if link.reason is not None:
            raise copies(link.reason)()
        return link

    def _forget(self, key: Hashable, link: Link) -> None:
        links = self._open.get(key, [])
        if link in links:
            links.remove(link)
            if not links:
                del self._open[key]


def _no_answer(wanted: LinkRequest) -> UnavailableError:
    return UnavailableError(
        f"{wanted.address} did not answer within {wanted.connect_timeout:g} s",
        remedy="check that the node runs and can be reached",
    )
