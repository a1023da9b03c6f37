"""Finds how long ranks waited for each other, how certain each wait is, and why ranks were late."""
