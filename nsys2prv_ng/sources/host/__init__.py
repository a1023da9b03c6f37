"""Calls and samples of host threads."""
