#!/bin/bash
# capture.sh NAME...: runs pairs of programs (a: with a cause, b: with its cure) on a machine with one GPU and nsys on the PATH: each alone for its true
# times, then under nsys. OUT (default: captures/) gets NAME-a.rank0.sqlite, NAME-b.rank0.sqlite and times.txt. Without names, all pairs of programs.json.
cd "$(dirname "$0")" || exit 1
export OUT=${OUT:-$PWD/captures} RANK=0 TOKENIZERS_PARALLELISM=false PYTHONUNBUFFERED=1
mkdir -p "$OUT"
describe() { python3 -c 'import json, sys; p = json.load(open("programs.json"))[sys.argv[1]]; print(p["capture"], p["trace"], p.get("options", ""))' "$1"; }
[ $# -gt 0 ] || set -- $(python3 -c 'import json; print(*json.load(open("programs.json")))')
for name in "$@"; do
  read -r CAPTURE trace options < <(describe "$name"); export CAPTURE
  window="--capture-range=cudaProfilerApi --capture-range-end=stop"; [ "$CAPTURE" = whole ] && window=
  for mode in a b; do
    report=$OUT/$name-$mode.rank0
    python3 "$name.py" $mode | grep TIME | sed "s/^/$name-$mode alone: /" >> "$OUT/times.txt"
    nsys profile --sample=none --cpuctxsw=none --force-overwrite=true $window --trace="$trace" $options -o "$report" python3 "$name.py" $mode |
      grep TIME | sed "s/^/$name-$mode nsys: /" >> "$OUT/times.txt"
    nsys export --type sqlite --include-json true --force-overwrite true -o "$report.sqlite" "$report.nsys-rep"
  done
done
