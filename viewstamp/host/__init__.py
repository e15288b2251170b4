"""The access to the outside world: clock, disk, network, entropy, boot id.

All other packages reach the machine through a :class:`~viewstamp.host.interfaces.Host` that is passed in, never
through an import, so that a node runs unchanged on a real machine and in the simulator. The simulator makes all of
them from one seed.

=================  ============================================  =========================================
``interfaces``     the protocols, and what each call promises    imported by everything above
``clock``          ``RealClock``                                 simulated: ``sim.loop.SimulatedClock``
``disk``           ``RealDisk``: files, names, executors, locks  simulated: ``sim.disk.SimulatedDisk``
``executor``       ``ThreadExecutor``: one thread, or several    simulated: in ``sim.disk``
                   that take turns
``network``        ``RealNetwork``: TCP on asyncio               simulated: ``sim.network.SimulatedNetwork``
``tls``            ``Tls``: certificates, loaded again when      real only
                   their files change
``tls_stream``     ``TlsStream``: TLS over one connection        over either network
``tls_network``    ``TlsNetwork``: TLS around a network          around either network
``address``        an address as text: check, split, join        the same
``object_url``     the URL of a bucket as text: check, split     the same
``clock``, too     ``read_boot_id``: changes when the machine    simulated: in ``sim.world``
                   starts again, not when a process does
``chaos``          ``Chaos``: injects faults into a running      around a real network and a real disk
                   node of a local cluster
``forwarding``     ``ForwardingDisk``: forwards every call       the base of ``chaos`` and ``sim.recording``
``event_loop``     ``new_event_loop``: uvloop if it is           simulated: ``sim.loop``
                   installed
``logger``         ``Logger``, and ``JsonLogger`` of a process   simulated: in ``sim.world``
``attempts``       ``Attempts``: calls to a store of another     real only
                   machine: limits, pauses, circuit breaker
``blocking``       ``in_thread``: blocking calls that are        on the executor of the real or simulated loop
                   completed even if cancelled
``garbage``        removals that may fail, and are retried       the same, on either disk
``descriptors``    the limit of file descriptors of a process    real only
``freed_memory``   freed memory that a process keeps             real only
``private``        directories and files that only their owner   real only
                   may read
``conformance``    the required behaviours of both               run by tests against the real and the simulated
=================  ============================================  =========================================

Guarantees of a host
    * **Nothing blocks the event loop.** Connections and listeners never block. Disk calls do block. They are made in
      an *executor*, whose thread makes them in the order of the requests, or before the loop has work (recovery at
      start). Bulk work without a deadline uses ``open_async``: aiofiles, on the threads of the loop's executor.
    * **Written bytes are not durable, synced bytes are.** ``File.sync_data`` covers bytes inside the synced length,
      ``File.sync`` also the length, ``Disk.sync_directory`` the names. A power cut may lose any subset of all other
      bytes and names, in any order. The simulated disk does exactly that.
    * **A failure of the disk is final.** After the work of an executor has raised, it is not called again, and all
      later items fail with the same error. The reason is that after a failed sync the durable bytes are unknown,
      because the kernel may drop the failed pages. A second sync would succeed although they are lost.
    * **Errors are viewstamp's.** ``OSError`` of the disk becomes ``StorageError`` or ``StorageFullError`` here, and a
      bad listen address becomes ``ConfigError``. Only ``FileNotFoundError`` and ``FileExistsError`` of ``open``,
      and ``OSError`` of ``connect``, pass unchanged, because they are ordinary answers.
    * **A connection is a byte stream**: the received bytes are a prefix of the sent bytes, in order, in chunks of any
      size. It ends exactly once. The handler gets no bytes after the end, after ``close`` or after ``abort``. An
      orderly end does not mean that the other side has read everything.
    * **Queued bytes are counted** (``unsent_bytes``, ``drain``), and not limited here, because the owner limits them.

Assumptions
    * the network and the executors belong to the running event loop
    * synced bytes are on the device; a volatile cache of the device cannot be detected from here

Not supported
    * timeouts: use ``asyncio.timeout`` around a call; every coroutine here is safe to cancel
    * timers: use those of the event loop (``loop.call_later``), which the simulator simulates

This file has no code, so that ``viewstamp.host.interfaces`` can be imported without the other modules.
"""
