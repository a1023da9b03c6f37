"""Opens the reports of a job: reads them in parallel and places them on rows and on one clock."""
