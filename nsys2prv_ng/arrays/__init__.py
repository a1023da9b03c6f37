"""Types of columns, and comparison of rows by one integer."""
