"""Names the OS runtime calls in which a thread waits for another thread of its process."""

HANDS_OVER = ("pthread_cond_*wait", "pthread_join", "sem_wait", "sem_timedwait", "sem_clockwait")
"""Calls in which a thread waits for another thread."""
