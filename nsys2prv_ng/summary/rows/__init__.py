"""Rows of data that a text, or a page, has on the numbers of a summary: sums, orders and labels, but no layout."""
