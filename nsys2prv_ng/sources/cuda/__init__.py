"""CUDA calls, and what they run on the GPU."""
