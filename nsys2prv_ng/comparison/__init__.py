"""Compares runs: which is faster, where, and whether the difference is significant."""
