"""Paraver presets, made of readable declarations: `python -m cfgs.generate` writes the .cfg files beside it."""
