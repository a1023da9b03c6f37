"""Lays out tables once for the terminal, Markdown and pages."""
