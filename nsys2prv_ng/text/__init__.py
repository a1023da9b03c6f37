"""Formats tables, numbers, times and names for people."""
