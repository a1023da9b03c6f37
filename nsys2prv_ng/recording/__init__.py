"""Records a program with nsys: one rank of a job, or a program on one machine."""
