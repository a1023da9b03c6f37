"""What Paraver asks of a trace and of its cfgs, checked more strictly than it does itself."""
