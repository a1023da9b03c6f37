"""Computes the numbers of a job from its opened reports."""
