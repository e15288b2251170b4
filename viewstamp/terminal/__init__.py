"""What commands read from a terminal or a pipe, and what they print there.

Promises
  * Results go to stdout; progress and notes go to stderr.
  * Input is read in bounded memory, and a slow pipe does not block the event loop.

The pieces: ``output.py`` prints tables and JSON; ``show.py`` shows progress; ``lines.py`` reads lines; ``bulk.py``
appends them, several chunks at a time; ``loop.py`` runs a coroutine until it ends or the user interrupts it;
``flags.py`` says how a command has to be typed.
"""
