"""The Nsight Systems side: find nsys, export, open exports, read columns and metadata. Knows nothing of Paraver."""
