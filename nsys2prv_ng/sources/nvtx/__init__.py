"""Sources of NVTX ranges, marks and names, on the host and on the GPU.

- `events`: the rows of NVTX_EVENTS as events, with their texts, domains and categories
- `names`: the names in texts, without the numbers that make each text unique
- `flops`: the floating-point operations of PyTorch's operators, from the shapes in texts
- `nvtx`: the sources of ranges and marks on host threads, with nsys's samples of Python, which are marks, and of ranges
  on the streams that they launched work on
"""
