"""Puts the clocks of all nodes on one time line and estimates the error."""
