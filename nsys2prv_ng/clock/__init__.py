"""Clocks: which reports share one, and how they are brought onto one time line."""
