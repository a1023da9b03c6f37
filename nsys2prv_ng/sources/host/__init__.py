"""Sources of what host threads do: calls of the operating system, time on cores, samples, OpenMP and OpenACC."""
