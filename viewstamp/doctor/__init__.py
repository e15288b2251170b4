"""Finds out what is wrong with a cluster from what its nodes report. Pure: the caller asks the nodes.

The pieces: ``status.py`` puts the nodes' reports together; ``report.py`` has the values, ``findings.py`` turns them
into sentences with remedies, and ``clocks.py`` does so for clocks and log time.
"""
