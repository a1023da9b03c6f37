"""Makes the sections of the page of a summary. A function returns None if the job has nothing to show there."""
