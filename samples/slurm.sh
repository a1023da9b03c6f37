#!/bin/bash
# Records every rank of a job with Nsight Systems and prints where the time goes. Printed by: nsys2prv-ng slurm
#SBATCH --job-name=profile
#SBATCH --nodes=@NODES@
#SBATCH --ntasks-per-node=@TASKS@
#SBATCH --gpus-per-node=@GPUS@
#SBATCH --cpus-per-task=@CORES@
#SBATCH --time=@TIME@
#SBATCH --output=%x-%j.out
# 120 s before the time limit, run-rank ends the program and keeps the reports. Give large reports more time.
#SBATCH --signal=USR1@120
@SBATCH@
@SETUP@
# A folder that all nodes see, and where the ranks of PyTorch meet
export DIR=@DIR@
export MASTER_ADDR=${MASTER_ADDR:-$(uname -n)} MASTER_PORT=${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 10000))}
@BEFORE@
# nsys2prv-ng run-rank --help explains the options. If a rank fails, the others have ten minutes to end.
srun --cpus-per-task=@CORES@ --kill-on-bad-exit=0 --wait=600 \
    @RUN@ --output "$DIR" \
    -- @COMMAND@
status=$?

@AFTER@
exit "$status" # of the program: 143 at the time limit
