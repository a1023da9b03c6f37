"""Writes self-contained HTML pages of summaries and comparisons, as people send them to each other.

`charts.py` draws numbers and depends on no job; `templates/` contains the text around the charts.
"""
