"""Kernels: their time, slow modes."""
