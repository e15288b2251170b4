"""The checkers: each file states one property and looks for its violation."""
