"""Describes in sentences what limits a job."""
