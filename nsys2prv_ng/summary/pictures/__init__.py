"""What a page draws of a job: quantities over time, a typical step."""
