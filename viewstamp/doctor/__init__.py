"""Finds the problems of a cluster from the statuses of its nodes. Pure: the caller asks the nodes.

The pieces: ``status.py`` combines the nodes' statuses; ``report.py`` has the values; ``findings.py`` turns them into
sentences with remedies; ``clocks.py`` does so for clocks and log time, ``security.py`` for certificates,
``archive.py`` for the store of archived records, ``groups.py`` for the groups beside group 0.
"""
