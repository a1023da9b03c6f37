"""Sources of NVTX ranges, marks and names, on the host and on the GPU.

- `events`: the rows of NVTX_EVENTS as events, with their texts, domains and categories
- `names`: the names in texts, without the numbers that make each text unique
- `nvtx`: the source of ranges and marks on host threads, and of nsys's samples of Python, which are marks
- `nvtx_on_gpu`: the source of ranges on the streams that they launched work on
"""
