"""Plays a job forward again, as a graph of dependencies, with and without changes: what would a change save?"""
