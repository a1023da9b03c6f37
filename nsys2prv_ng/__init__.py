"""Translate Nsight Systems reports into Paraver traces."""

__version__ = "0.1.0"
