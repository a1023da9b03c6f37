"""Stages of a pipeline, and their bubble."""
