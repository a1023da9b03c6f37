"""The numbers of a job, as dataclasses: their fields are the keys of the JSON."""
