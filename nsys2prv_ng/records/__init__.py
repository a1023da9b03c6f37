"""Neutral trace records in columns: sort, merge, clip, store."""
