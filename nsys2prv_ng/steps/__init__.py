"""Finds the steps of a program, by its NVTX ranges or by what its ranks repeat."""
