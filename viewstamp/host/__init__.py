"""The only doors to the outside world: clock, disk, network, entropy, boot id.

Everything above reaches the machine through one :class:`~viewstamp.host.interfaces.Host` that it is handed, never
through an import; so a node runs unchanged on a real machine and in the simulator, where all of them are made from
one seed.

=================  ============================================  =========================================
``interfaces``     the protocols, and what each call promises    imported by everything above
``clock``          ``RealClock``                                 simulated: ``sim.loop.SimulatedClock``
``disk``           ``RealDisk``: files, names, executors, locks  simulated: ``sim.disk.SimulatedDisk``
``executor``       ``ThreadExecutor``: one thread, or some in    simulated: in ``sim.disk``
                   turn
``network``        ``RealNetwork``: TCP on asyncio               simulated: ``sim.network.SimulatedNetwork``
``address``        an address as text: check, split, join        the same
``boot``           ``read_boot_id``: changes when the machine    simulated: in ``sim.world``
                   starts again, not when a process does
``chaos``          ``Chaos``: faults on purpose, obeyed by       around a real network and a real disk
                   a node of a local cluster
``forwarding``     ``ForwardingDisk``: passes every call on      the base of ``chaos`` and ``sim.recording``
``event_loop``     ``new_event_loop``: uvloop where there is     simulated: ``sim.loop``
                   one
``logger``         ``Logger``, and ``JsonLogger`` of a process   simulated: in ``sim.world``
``blocking``       ``in_thread``: blocking calls that end        on the executor of the real or simulated loop
``garbage``        removals that may fail, and are retried       the same, on either disk
``descriptors``    how many file descriptors a process may have  real only
``private``        directories and files that only their owner   real only
                   may read
``conformance``    the behaviours that both must show            run by tests against the real and the simulated
=================  ============================================  =========================================

What a host promises
    * **Nothing blocks the event loop.** Connections and listeners never block; disk calls do, and are made in a
      *executor*, a thread of their own in the order of asking, or before the loop has work (recovery at start). Bulk
      work that nobody waits for goes through ``open_async``: aiofiles, on the threads of the loop's executor.
    * **A write is not durable, a sync is.** ``File.sync_data`` covers bytes inside the synced length,
      ``File.sync`` also the length, ``Disk.sync_directory`` the names. Whatever is not covered may be lost in a
      power cut, any subset of it, in any order. The simulated disk does exactly that.
    * **A failure of the disk is final.** After an executor's work has raised, it never works again: it answers
      everything with the same error. A failed sync says nothing about what reached the device, and trying again
      would report success over lost pages.
    * **Errors are ours.** ``OSError`` of the disk becomes ``StorageError`` or ``StorageFullError`` at this seam; a
      bad listen address becomes ``ConfigError``. Only ``FileNotFoundError`` and ``FileExistsError`` of ``open``,
      and ``OSError`` of ``connect``, pass through: they are ordinary answers.
    * **A connection is a byte stream**: what arrives is a prefix of what was sent, in order, in chunks of any
      size. It ends exactly once, and nothing is heard after the end, after ``close`` or after ``abort``. An
      orderly end does not say that the other side has read anything.
    * **Bytes queued are counted** (``unsent_bytes``, ``drain``), never bounded here: the owner bounds them.

What it assumes
    * the event loop that runs is the one that the network and the executors belong to
    * the disk's sync tells the truth; whether the device has a volatile cache is outside our sight

What it deliberately lacks
    * encryption and authentication: a later wrapper around ``Network``, which is why handlers see only bytes
    * timeouts: ``asyncio.timeout`` around a call; every coroutine here is safe to cancel
    * timers: they are the event loop's (``loop.call_later``), and so simulated with it

No code stands here, so that importing ``viewstamp.host.interfaces`` costs nothing else.
"""
