"""Sections of the page of a comparison."""
