"""Measures the times for the efficiencies of GPUs and hosts, in the whole run, in each step and in NVTX ranges."""
