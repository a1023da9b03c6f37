"""An evaluator of .cfg files: computes without Paraver what Paraver shows of a trace, for tests of presets."""
