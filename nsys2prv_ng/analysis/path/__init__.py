"""The critical path: what a job had to wait for, one thing after the other."""
