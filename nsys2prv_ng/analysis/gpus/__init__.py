"""Measures what GPUs did over time, their metrics, and what the host did while they were idle."""
