"""Starts the program under nsys, as a script of its own: with the environment that was kept back from the report.

    python -I -S start_program.py FOLDER SIGNALS COMMAND...

FOLDER/environment has the whole environment, as NAME=value with NUL between, and is removed. FOLDER/program gets the
process id. SIGNALS are those that nsys ignores and the program does not. This process becomes the program.
"""

import os
import signal
import sys

folder, signals, *command = sys.argv[1:]
for number in (signal.SIGPIPE, signal.SIGXFSZ, *map(int, filter(None, signals.split(",")))):
    signal.signal(number, signal.SIG_DFL)
if os.getsid(0) != os.getpid():  # a group of its own, to be ended as a whole; some versions of nsys make a session
    os.setpgid(0, 0)
with open(f"{folder}/environment", "rb") as file:  # noqa: PTH123 (imports little: it delays the program)
    environment = dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if entry)
os.unlink(f"{folder}/environment")  # noqa: PTH108
# nsys has added variables of its own. Python may add LC_CTYPE.
own = {name: value for name, value in os.environb.items() if name != b"LC_CTYPE" or name in environment}
with open(f"{folder}/new", "w") as file:  # noqa: PTH123
    file.write(str(os.getpid()))
os.rename(f"{folder}/new", f"{folder}/program")  # noqa: PTH104
try:
    os.execvpe(command[0], command, {**environment, **own})
except OSError as error:
    print(f"nsys2prv-ng: error: {command[0]}: cannot be started: {error.strerror}", file=sys.stderr)
    sys.exit(127 if isinstance(error, FileNotFoundError) else 126)
