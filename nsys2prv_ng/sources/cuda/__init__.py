"""Sources of CUDA calls and of the operations that they run on GPUs."""
