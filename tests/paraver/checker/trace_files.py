"""A small sound trace, written by hand, and how to break it."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from pathlib import Path

PRV = """\
#Paraver (08/10/2024 at 12:34):1000_ns:2(2,1):1:2(2:1,1:2),1
c:1:1:2:1:2
1:1:1:1:1:0:100:1
2:1:1:1:1:10:9600:1
2:2:1:1:2:20:9600:2:9700:123456789012
3:1:1:1:1:30:30:3:1:2:1:40:50:4096:-1
# a remark
2:2:1:1:2:60:9600:0:9700:-5
2:1:1:1:1:90:9600:2
2:1:1:1:1:95:9600:0:9600:0
1:1:1:1:1:100:200:2
1:3:1:2:1:150:1000:0
"""

PCF = """\
DEFAULT_OPTIONS

LEVEL               THREAD

DEFAULT_SEMANTIC
THREAD_FUNC         State As Is

STATES
0    Idle
1    Running
2    Waiting

STATES_COLOR
0    {117,195,255}
1    {0,0,255}
2\t{255,0,0}

# ranges
EVENT_TYPE
0    9600    Range
VALUES
0      End
1      first [x]
2      zweite Häl*fte

EVENT_TYPE
9    9700    Bytes
0    9701    More bytes
PRECISION 2
"""

ROW = """\
LEVEL CPU SIZE 3
1.1
1.2
2.1

LEVEL NODE SIZE 2
alpha
beta
LEVEL THREAD SIZE 3
main
#2
main
LEVEL TASK SIZE 2
rank 0
rank 1
LEVEL APPL SIZE 1
app
LEVEL WORKLOAD SIZE 1
all
LEVEL SYSTEM SIZE 1
system
"""


@dataclass
class TraceFiles:
    """Lines of the three files, numbered from 1 as in messages; `lines[2:2]` and the like edit as in any list."""

    prv: list[str] = field(default_factory=lambda: ["", *PRV.splitlines()])
    pcf: list[str] = field(default_factory=lambda: ["", *PCF.splitlines()])
    row: list[str] = field(default_factory=lambda: ["", *ROW.splitlines()])

    def replace(self, file: str, line: int, *new: str) -> TraceFiles:
        """Replace a line by any number of lines."""
        getattr(self, file)[line : line + 1] = new
        return self

    def write(self, folder: Path) -> Path:
        """Write t.prv, t.pcf and t.row; return the path of the first."""
        for name in ("prv", "pcf", "row"):
            text = "".join(f"{line}\n" for line in getattr(self, name)[1:])
            (folder / f"t.{name}").write_bytes(text.encode("utf-8", "surrogateescape"))
        return folder / "t.prv"


def compress(prv: Path, member_bytes: int) -> Path:
    """Write t.prv.gz beside t.prv, as concatenated gzip members of `member_bytes` uncompressed bytes each."""
    data = prv.read_bytes()
    target = prv.with_name("t.prv.gz")
    target.write_bytes(b"".join(gzip.compress(data[i : i + member_bytes]) for i in range(0, len(data), member_bytes)))
    return target
