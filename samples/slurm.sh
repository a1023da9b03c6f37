#!/bin/bash
# Profiles a Slurm job with Nsight Systems and translates all of its reports into one Paraver trace.
# Printed by `nsys2prv-ng slurm`. Set what follows, then: sbatch slurm.sh
#SBATCH --job-name=profile
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=00:30:00
#SBATCH --output=%x-%j.out
# So many seconds before the time limit the program is ended and nsys writes its reports. Large ones need more.
#SBATCH --signal=B:TERM@120

# ==== What to set =====================================================================================================

# Where the ranks of PyTorch meet: on the first node, which runs this script.
export MASTER_ADDR=${MASTER_ADDR:-$(uname -n)} MASTER_PORT=${MASTER_PORT:-$((20000 + ${SLURM_JOB_ID:-0} % 10000))}
# What each task runs.
COMMAND=(python train.py)
# rank: each task is a rank and has a report. node: each task starts the ranks of its node, which share a report.
REPORT_PER=rank
# yes: profile only from cudaProfilerStart() to cudaProfilerStop().
CAPTURE_RANGE=no
# Options of nsys for all tasks, and for the first of each node alone: of these, what does not work there is left out.
PROFILE=(--trace="cuda,nvtx,osrt,mpi" --sample=none --cpuctxsw=none)
PROFILE_OF_NODE=(--gpu-metrics-devices=all --nic-metrics=true)
# Modules to load, and the virtual environment of nsys2prv-ng.
MODULES=()
VENV=
# A container with nsys and the program: options of srun, or a command that starts each task.
#   SRUN_OPTIONS=(--container-image=IMAGE --container-mounts="$PWD" --container-workdir="$PWD")
#   PREFIX=(apptainer exec --nv IMAGE.sif)
SRUN_OPTIONS=()
PREFIX=()
# yes: translate in a job of its own, also if this one is killed at its time limit or loses a node.
DEPENDENT=no
DEPENDENT_OPTIONS=(--time=01:00:00 --cpus-per-task=4)
# Options of nsys2prv-ng.
TRANSLATE_OPTIONS=()

# ==== What each task does =============================================================================================

# shellcheck disable=SC2016 # the tasks expand it
TASK='
if [ "$REPORT_PER" = rank ]; then
    export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
fi
profile=()
while [ "$1" != -- ]; do profile+=("$1"); shift; done
shift
# Only one nsys on a node can sample its GPUs. Where that is not permitted it does not start the program, so try first.
if [ "$SLURM_LOCALID" = 0 ] && [ -n "$NODE_OPTIONS" ]; then
    trial=$(mktemp -d)
    for option in $NODE_OPTIONS; do
        # The second is what older versions call it.
        for name in "$option" "${option/--gpu-metrics-devices=/--gpu-metrics-device=}"; do
            if nsys profile --trace=none --sample=none --cpuctxsw=none --force-overwrite=true \
                "--output=$trial/trial" "$name" true >"$trial/log" 2>&1; then
                profile+=("$name")
                continue 2
            fi
        done
        echo "$(uname -n): profiling without $option: $(tr -s "\n" " " <"$trial/log" | cut -c 1-300)" >&2
    done
    rm -rf "$trial"
fi
exec nsys profile "${profile[@]}" "--output=$REPORTS/profile_%q{SLURM_PROCID}" "$@"
'

# ==== The job =========================================================================================================

say() { echo "profile: $*" >&2; }

# Modules and environments may use variables that are not set.
set +u
if [ ${#MODULES[@]} -gt 0 ]; then module load "${MODULES[@]}"; fi
# shellcheck disable=SC1091
if [ -n "$VENV" ]; then source "$VENV/bin/activate"; fi
set -u

if [ -z "${SLURM_JOB_ID-}" ]; then
    say "not in a job; submit this script with sbatch"
    exit 2
fi
if ! command -v nsys2prv-ng >/dev/null; then
    say "no nsys2prv-ng here: set VENV or MODULES at the top of the script"
    exit 2
fi
# A folder that all nodes see. "${array[@]+...}": empty arrays count as not set before bash 4.4.
REPORTS=${2-$PWD/profile-$SLURM_JOB_ID}
mkdir -p "$REPORTS" || exit
launch=(srun ${SRUN_OPTIONS[@]+"${SRUN_OPTIONS[@]}"})

use_nsys_of_container() {
    local command=(env)
    if [ ${#SRUN_OPTIONS[@]} -gt 0 ]; then command=("${launch[@]}" --overlap --nodes=1 --ntasks=1); fi
    command+=(${PREFIX[@]+"${PREFIX[@]}"} nsys)
    export NSYS_HOME=$REPORTS/nsys
    mkdir -p "$NSYS_HOME"
    printf '#!/bin/bash\nexec %s "$@"\n' "$(printf '%q ' "${command[@]}")" >"$NSYS_HOME/nsys"
    chmod +x "$NSYS_HOME/nsys"
}

translate() {
    local reports=("$REPORTS"/profile_*.nsys-rep)
    if [ ! -e "${reports[0]}" ]; then
        say "no report in $REPORTS; see what nsys says above"
        return 1
    fi
    if [ ${#SRUN_OPTIONS[@]} -gt 0 ] || [ ${#PREFIX[@]} -gt 0 ]; then use_nsys_of_container; fi
    nsys2prv-ng translate "${reports[@]}" "$REPORTS/trace.prv" --force --summary "$REPORTS/summary.json" --overview \
        ${TRANSLATE_OPTIONS[@]+"${TRANSLATE_OPTIONS[@]}"}
}

submit_translation() {
    local name options=(--nodes=1 --ntasks=1 ${SLURM_JOB_ACCOUNT:+"--account=$SLURM_JOB_ACCOUNT"})
    options+=("--dependency=afterany:$SLURM_JOB_ID" --job-name=translate "--output=$REPORTS/translate.out")
    options+=(${DEPENDENT_OPTIONS[@]+"${DEPENDENT_OPTIONS[@]}"})
    cp "$0" "$REPORTS/job.sh" || return
    (
        # What Slurm says of this job must not be taken for wishes of the other.
        for name in "${!SLURM_@}"; do if [ "$name" != SLURM_CONF ]; then unset "$name"; fi; done
        sbatch "${options[@]}" --wrap="bash $(printf '%q ' "$REPORTS/job.sh" translate "$REPORTS")"
    )
}

if [ "${1-}" = translate ]; then
    translate
    exit
fi

# Submitted before the program starts, so that it runs whatever ends this job.
if [ "$DEPENDENT" = yes ] && ! submit_translation; then
    say "no job can be submitted from here: translating in this one"
    DEPENDENT=no
fi

# --kill=none: where a capture ends before the program, the program goes on.
profile=(${PROFILE[@]+"${PROFILE[@]}"} --kill=none --force-overwrite=true)
if [ "$CAPTURE_RANGE" = yes ]; then profile+=(--capture-range=cudaProfilerApi --capture-range-end=stop); fi
export REPORTS REPORT_PER NODE_OPTIONS="${PROFILE_OF_NODE[*]-}"

# nsys ends in order at a SIGTERM. It must go to the tasks: srun kills them if it is sent one.
trap 'say "the time limit is near, ending the program"; scancel --signal=TERM "$SLURM_JOB_ID"' TERM
# When a rank has failed the others get 10 minutes, to end or to write their reports.
"${launch[@]}" --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --kill-on-bad-exit=0 --wait=600 \
    ${PREFIX[@]+"${PREFIX[@]}"} bash -c "$TASK" task "${profile[@]}" -- "${COMMAND[@]}" &
step=$!
wait "$step"
status=$?
while kill -0 "$step" 2>/dev/null; do # it was the signal that ended the wait
    wait "$step"
    status=$?
done
trap - TERM
if [ "$status" -ne 0 ]; then say "srun ended with exit code $status"; fi

if [ "$DEPENDENT" != yes ]; then translate || exit; fi
exit "$status"
