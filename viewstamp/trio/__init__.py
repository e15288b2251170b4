"""Viewstamp for trio programs: the same client over trio's sockets, and a node hosted in a thread of its own.

Guarantees
  * **connect** and **open_node** are context managers with a nursery of their own. Leaving one ends all that it
    began. An exception of the body is raised unchanged, without an exception group around it.
  * **The same guarantees as on asyncio**: the rules of a client are the same code (``viewstamp/client``: the
    specification), which imports neither library. ``runtime.py`` gives it futures, timers and tasks, ``network.py``
    bytes, ``links.py`` the connections that clients share, ``items.py`` iterators, ``nursery.py`` a nursery in a
    context manager.
  * **Checkpoints**: every public async call is one, for cancellation and for scheduling. A record that ``read``
    yields is one for cancellation, and each batch of them one for scheduling.
  * **Cancelled is never swallowed.** An append that was cancelled before it was sent is never written; one that was
    sent may be committed. If the receipt arrived before the cancellation, the call returns it.
  * **Deadlines** are cancel scopes, or ``timeout=``. After a cancellation the caller has no information about the
    append. A timeout raises UnavailableError (nothing was written), or OutcomeUnknownError with a token to ask with.
  * **open_node** (``open_node.py``) runs the node on an asyncio loop of its own, so that a program that blocks trio for
    a second does not cost the group its leader. The two loops exchange one call for each write, never one for each
    record.

Assumptions
  * A client belongs to the ``trio.run`` in which it was opened, and to its thread.
  * Within a topic records stand in the order of the calls. Trio does not define the order in which
    it runs tasks that were started, or woken, together.

Internal errors
  * A defect of viewstamp in a task or a call of the client ends the client's nursery, as in any nursery: the body is
    cancelled, and the error is raised in a group. A defect in a connection ends only that connection, because other
    clients may share it. Lost connections and nodes that do not answer are no defects.

Not supported: ``local_cluster`` (its nodes are for asyncio programs; use ``viewstamp cluster start``), a
runtime for trio in guest mode.
"""

from viewstamp.trio.client import Client, connect
from viewstamp.trio.items import Items
from viewstamp.trio.open_node import EmbeddedNode, open_node

__all__ = ["Client", "EmbeddedNode", "Items", "connect", "open_node"]
