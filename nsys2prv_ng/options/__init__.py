"""The options of all calls and commands."""
