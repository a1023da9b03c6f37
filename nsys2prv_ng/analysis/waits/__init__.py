"""Waits over ranks: who waits for whom, how certain that is, and why ranks were late."""
