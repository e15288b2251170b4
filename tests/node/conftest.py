"""Runs the node tests on asyncio's own loop in debug mode, and fails a test that leaves an unhandled error."""

from tests.loop_errors import loop_errors as loop_errors
