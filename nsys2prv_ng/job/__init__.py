"""Opens the reports of a job: reads them in parallel, and places them on one clock and on rows."""
