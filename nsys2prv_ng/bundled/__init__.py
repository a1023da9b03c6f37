"""Presets and the job script that come with the program."""
