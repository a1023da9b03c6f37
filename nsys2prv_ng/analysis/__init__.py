"""Sweeps over intervals: what follows from the events of a row or a device taken together."""
