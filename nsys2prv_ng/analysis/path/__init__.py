"""Finds the critical path of a job: the chain of operations, calls and code that determines how long the job takes."""
