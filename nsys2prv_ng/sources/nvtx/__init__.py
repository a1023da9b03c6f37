"""NVTX ranges, marks and names, on the host and on the GPU."""
