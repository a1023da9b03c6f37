"""The first numbers of a job, as text and as JSON."""
