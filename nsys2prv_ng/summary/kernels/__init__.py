"""Kernels: their time, slow modes, FLOPs."""
