#!/bin/bash
# capture.sh SET...: run the program of each set under nsys and export its reports: SET.rankN.sqlite, in the current folder.
# The sets d2-* need two GPUs, all others one. Each is a program with a planted cause of lost time, or its twin without it.
here=$(cd "$(dirname "$0")" && pwd)
traced="--trace=cuda,nvtx,osrt,cublas --sample=none --cpuctxsw=none --cuda-memory-usage=true --force-overwrite=true
    --capture-range=cudaProfilerApi --capture-range-end=stop"
port=29510

one_rank() { # SET PROGRAM CAUSE
    RANK=0 nsys profile $traced -o "$1.rank0" python3 "$here/$2" "$1" "$3"
}

two_ranks() { # SET CAUSE
    port=$((port + 1))
    for rank in 0 1; do
        RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            nsys profile --session-new="rank$rank" $traced -o "$1.rank$rank" python3 "$here/transformer.py" "$1" "$2" &
    done
    wait
}

for set in "$@"; do
    case $set in
        d2-base | d2-base-again) two_ranks "$set" none ;;
        d2-late | d2-host) two_ranks "$set" "${set#d2-}" ;;
        d2-slow-net) NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_IB_DISABLE=1 two_ranks "$set" none ;;
        s-base | s-base-again) one_rank "$set" transformer.py none ;;
        s-pageable | s-launch | s-launch-graph | s-fp32) one_rank "$set" transformer.py "${set#s-}" ;;
        p-planted | p-planted-again) one_rank "$set" conv_net.py augment ;;
        p-base | p-base-again) one_rank "$set" conv_net.py none ;;
        *) echo "no such set: $set" && exit 2 ;;
    esac
    for report in "$set".rank?.nsys-rep; do
        nsys export --type sqlite --include-json true --force-overwrite true -o "${report%.nsys-rep}.sqlite" "$report"
    done
done
