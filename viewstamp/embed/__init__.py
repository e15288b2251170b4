"""Viewstamp inside a program: ``open_node``, ``connect``, ``local_cluster``.

The only package that imports settings, node, streams, actors and clients together. Guarantees:

  * **open_node** runs one member in a thread and an event loop of its own (uvloop where there is one): a service
    that blocks its loop for a second does not cost the cluster its leader. Between the two loops goes one hand-off
    for each batch, in each direction, never one for each record. ``thread=False`` runs it in the caller's loop.
  * **connect** needs no node: it is the thin client, with a real network under it.
  * **local_cluster** is made of real nodes with real disks and sockets, in a temporary directory.
  * **run_node** is the process that ``viewstamp node run`` starts: until SIGTERM, or until a part of the node fails.
  * **Actors** are given as classes (``actors={"inventory": Inventory}``) or named in the settings (``[actors]``), and
    imported from there before anything starts; an error in one is a ConfigError that names it.

The modules: ``open_node`` and ``node_thread``, which ``viewstamp.trio`` shares; ``connect``; ``local_cluster``;
``run_node``; ``service_manager`` reports to systemd; ``compose`` builds a node from settings; ``actor_classes`` imports
actors; ``bridge`` is the network between a program and the node inside it.

The package itself imports none of them, because the process of a node needs no client. ``viewstamp`` has the public
names.

Invariants
  * A context that has been left, or whose entering failed or was cancelled, leaves no thread, socket or lock.
  * A node that has failed is not restarted here: it answers nothing, and ``EmbeddedNode.failure`` has the reason.
"""
