"""Defaults of a translation that its options share. plan_trace.py imports numpy, which `--help` does not need."""

SHORTEST_LINE_NS = 100_000
"""Length (ns) of the shortest wait that gets a line."""
