"""Messages between GPUs, ranks and nodes, and pipelines that they make."""
