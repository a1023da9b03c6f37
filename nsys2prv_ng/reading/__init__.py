"""Reads the reports of a job in parallel, or loads what was read, and lists their events as columns."""
