"""viewstamp: a replicated log and replicated actors for async Python."""
