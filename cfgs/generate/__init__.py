"""Declares Paraver presets in readable form: `python -m cfgs.generate` writes the .cfg files beside this folder."""
