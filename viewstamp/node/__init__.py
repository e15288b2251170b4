"""TODO-spec."""
