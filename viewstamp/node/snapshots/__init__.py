"""Snapshots of a member: taking, storing, choosing and fetching them.

| file | owns | does not depend on |
| --- | --- | --- |
| ``policy`` | the time of each snapshot, and the part of the log that is deleted after it | bytes of files |
| ``store`` | the snapshot files of a directory, each whole or absent | the time and reason of a snapshot |
| ``choice`` | the base of the log among the stored snapshots, and the ones to delete: pure functions | files |
| ``file`` | the bytes of one snapshot file | the directory |
| ``transfer`` | fetching a leader's snapshot | installing it |
"""
