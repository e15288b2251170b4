"""viewstamp for trio programs: the same client, and a node hosted from a program without an asyncio loop."""
