"""Bytes on connections and on disk. Pure: no sockets, files or clocks.

- ``batch``: the record batch, the unit of everything
- ``columns``: columns of batches, cut and joined
- ``archiving``: the records about runs of archived records
- ``commands``: commands of actors inside a batch
- ``values``: arguments and results of commands
- ``staged``: the records of the log about sinks
- ``ordering``: the records of the log about the order of streams, and the reports of its leaders
- ``placing``: the records of the log about groups
- ``spreading``: the record that creates a spread topic, the names of its streams, and its slots
- ``names``: the rules for names of topics and sinks
- ``frame``: the frames of a connection and their kinds
- ``answers``: errors as bytes, and the required content of an OK
- ``spread_actors``: the slots and the owners of instances of spread actors, and the requests about them
- ``handshake``: HELLO and WELCOME, as both sides check them
- ``requests``: one dataclass for each request; the table of all requests
- ``sink_requests``: those about sinks
- ``group_requests``: those about groups
- ``spread_requests``: those about spread topics
- ``ordered_requests``: that of ordered appends
- ``archive_requests``: those about the archive
- ``token_requests``: those about tokens and the audit log
- ``copy_requests``: those about copies of log and snapshots
- ``peer_requests``: those that members send to each other
- ``schema``: how such a dataclass is packed, read and checked
- ``access``: tokens, roles, and the right that a request needs
- ``identity_proof``: proofs of a node's identity
- ``brief_repr``: foreign values in error messages
"""
