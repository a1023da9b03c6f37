"""Matches operations over ranks (collectives and messages) from the parts that ranks have in them, over all reports."""
