"""Answers questions about the GPUs and ranks of a job: activity, gaps and their causes."""
