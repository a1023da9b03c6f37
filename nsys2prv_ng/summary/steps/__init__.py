"""Slow steps beside the usual ones."""
