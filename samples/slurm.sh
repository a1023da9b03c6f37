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
REPORTS=@REPORTS@ # a folder that all nodes see
# Where the ranks of PyTorch meet
export MASTER_ADDR=${MASTER_ADDR:-$(uname -n)} MASTER_PORT=${MASTER_PORT:-$((20000 + SLURM_JOB_ID % 10000))}
@BEFORE@
# For the options see nsys2prv-ng run-rank --help. If a rank fails, the others have ten minutes to end.
srun --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --kill-on-bad-exit=0 --wait=600 \
    @RUN@ --output "$REPORTS" \
    -- @COMMAND@
status=$?

@AFTER@
exit "$status" # of the program: 143 at the time limit
