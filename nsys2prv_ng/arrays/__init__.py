"""Types of columns, and rows that are compared by one integer."""
