"""Pages that people send each other: a summary or a comparison as one HTML file that needs nothing else.

`charts/` makes pictures of numbers and knows no job; templates/ holds the text around them.
"""
