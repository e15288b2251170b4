"""Snapshots of a member: taking, storing, choosing and fetching them.

| file | owns | knows nothing of |
| --- | --- | --- |
| ``policy`` | when a snapshot is taken, and what of the log it lets go | bytes of files |
| ``store`` | the snapshot files of a directory, each whole or not there | when and why |
| ``choice`` | which stored snapshot is the base of the log, and which are dropped: pure functions | files |
| ``file`` | the bytes of one snapshot file | the directory |
| ``transfer`` | fetching a leader's snapshot | installing it |
"""
