"""The sections of the page of a summary: each module makes some of them; none where a job has nothing to show there."""
