"""Defines the numbers of a job as dataclasses, whose fields are the keys of the JSON."""
