"""NVTX ranges: their time on hosts and on GPUs, and what GPUs use meanwhile."""
