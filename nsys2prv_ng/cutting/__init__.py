"""Cuts a window of time, and ranks, out of a trace that is written."""
