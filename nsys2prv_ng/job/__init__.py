"""Places the reports of a job on one clock and on rows, and cuts them to what the user chose."""
