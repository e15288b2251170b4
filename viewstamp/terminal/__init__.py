"""Terminal input and output of the commands.

Promises
  * Results go to stdout; progress and messages go to stderr.
  * Input is read in bounded memory, and a slow pipe does not block the event loop.

The pieces: ``output.py`` prints tables and JSON; ``show.py`` shows a spinner or a line; ``progress.py`` shows how many
bytes of long work are done; ``lines.py`` reads lines; ``bulk.py``
appends them, several chunks at a time; ``loop.py`` runs a coroutine until it ends or the user interrupts it;
``flags.py`` builds the command lines in messages; ``number_words.py`` has the numbers that a person types as words.
"""
