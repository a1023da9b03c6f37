"""Reads .pcf and .row files and trace headers."""
