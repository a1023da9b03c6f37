"""Puts the clocks of all nodes on one timeline and estimates the error."""
