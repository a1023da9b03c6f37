"""The answer of a summary: what limits a job, where, what that costs, and what to try."""
