"""What Paraver makes of a trace with a .cfg, computed without Paraver, for tests of presets."""
