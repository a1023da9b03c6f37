"""Limits of the machine, parallel work, progress, and compilation with numba."""
