"""Divides the difference of two runs, or of slow and usual steps of one, into parts, and names what changed."""
