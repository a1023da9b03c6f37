"""Translates one job into one Paraver trace."""
