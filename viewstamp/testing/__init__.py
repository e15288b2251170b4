"""Testing your own actors: the pytest plugin that runs them in a simulated cluster that breaks."""
