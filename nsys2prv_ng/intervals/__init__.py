"""Sweeps over intervals: nesting, overlaps, windows, lanes and step functions."""
