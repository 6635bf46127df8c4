"""A small real project: the demo, and the base of the tests' settings."""
