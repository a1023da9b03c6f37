"""Write all presets and filters, and their tables: `python -m cfgs.generate` (`--check` lists what differs)."""

from __future__ import annotations

import sys
from pathlib import Path

from cfgs.generate.files import make_files

FOLDER = Path(__file__).resolve().parents[1]


def main(arguments: list[str]) -> int:
    """Write the files, or compare them; return the exit code."""
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    wanted = make_files()
    present = {path.relative_to(FOLDER).as_posix() for path in (*FOLDER.glob("*/*.cfg"), *FOLDER.glob("filters/*.xml"))}
    files = {path: FOLDER / path for path in wanted}
    differ = [path for path, file in files.items() if not file.exists() or file.read_bytes() != wanted[path].encode()]
    surplus = sorted(present - set(wanted))
    if arguments:
        for path in differ:
            print(f"differs: {path}")
        for path in surplus:
            print(f"not declared: {path}")
        return 1 if differ or surplus else 0
    for path in differ:
        files[path].parent.mkdir(exist_ok=True)
        files[path].write_bytes(wanted[path].encode())
        print(f"wrote {path}")
    for path in surplus:
        (FOLDER / path).unlink()
        print(f"removed {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
