"""Bytes on connections and on disk. Pure: no sockets, files or clocks.

- ``batch``: the record batch, the unit of everything
- ``commands``: commands of actors inside a batch
- ``values``: arguments and results of commands
- ``staged``: what stands in the log about sinks
- ``names``: which names topics and sinks may have
- ``frame``: the frames of a connection and their kinds
- ``answers``: errors as they are packed and read, and what an OK must hold
- ``handshake``: HELLO and WELCOME, as both sides check them
- ``requests``: one dataclass for each request
- ``schema``: how such a dataclass is packed, read and checked
- ``identity_proof``: proofs of who a node is
- ``brief_repr``: values of others in error messages
"""
