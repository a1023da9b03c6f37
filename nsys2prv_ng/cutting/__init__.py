"""Cuts a window of time, or ranks, out of a written trace."""
