#!/bin/bash
# Profiles a Slurm job with Nsight Systems and translates all of its reports into one Paraver trace.
# `nsys2prv-ng slurm` printed this script. Adapt the settings below, then run: sbatch slurm.sh
#SBATCH --job-name=profile
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=00:30:00
#SBATCH --output=%x-%j.out
# 120 seconds before the time limit, the program is ended and nsys writes its reports. Large reports need more time.
#SBATCH --signal=B:TERM@120

# ==== Settings ========================================================================================================

# The ranks of PyTorch meet on the first node, which runs this script.
export MASTER_ADDR=${MASTER_ADDR:-$(uname -n)} MASTER_PORT=${MASTER_PORT:-$((20000 + ${SLURM_JOB_ID:-0} % 10000))}
# The command that each task runs.
COMMAND=(python train.py)
# rank: each task is a rank and writes a report. node: each task starts all ranks of its node, which share a report.
REPORT_PER=rank
# yes: profile only from cudaProfilerStart() to cudaProfilerStop().
CAPTURE_RANGE=no
# Or: seconds after the start of the program at which the profile begins, and its length; empty for all of the program.
DELAY=
DURATION=
# Options of nsys for all tasks, and more options for the first task of each node. An option of the latter that does not
# work on a node is dropped there. For Python: --python-sampling=true --python-sampling-frequency=1000 shows its functions,
# python-gil in --trace which threads wait for its lock. For other programs: --sample=process-tree --backtrace=dwarf.
PROFILE=(--trace="cuda,nvtx,osrt,mpi" --sample=none --cpuctxsw=none)
PROFILE_OF_NODE=(--gpu-metrics-devices=all --nic-metrics=lf)
# Modules to load, and the virtual environment that has nsys2prv-ng.
MODULES=()
VENV=
# A container with nsys and the program: either options of srun, or a command that starts each task.
#   SRUN_OPTIONS=(--container-image=IMAGE --container-mounts="$PWD" --container-workdir="$PWD")
#   PREFIX=(apptainer exec --nv IMAGE.sif)
SRUN_OPTIONS=()
PREFIX=()
# yes: translate in a second job, which runs even if this one is killed at its time limit or loses a node.
DEPENDENT=no
DEPENDENT_OPTIONS=(--time=01:00:00 --cpus-per-task=4)
# yes: translate on all nodes of the job, by this number of Dask workers on each (pip install 'nsys2prv-ng[cluster]').
DASK=no
DASK_WORKERS=8
# Options of nsys2prv-ng.
TRANSLATE_OPTIONS=()

# ==== Each task =======================================================================================================

# shellcheck disable=SC2016 # the tasks expand it
TASK='
if [ "$REPORT_PER" = rank ]; then
    export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
fi
profile=() waits=no
while [ "$1" != -- ]; do
    case $1 in -d* | --duration*) waits=yes ;; esac
    profile+=("$1")
    shift
done
shift
# Only one nsys per node can sample its GPUs. Where that is not permitted, nsys does not start the program: try first.
if [ "$SLURM_LOCALID" = 0 ] && [ -n "$NODE_OPTIONS" ]; then
    trial=$(mktemp -d)
    for option in $NODE_OPTIONS; do
        case $option in # what other versions of nsys call it
        --gpu-metrics-devices=*) other=${option/devices=/device=} ;;
        --nic-metrics=lf) other=--nic-metrics=true ;;
        --nic-metrics=true) other=--nic-metrics=lf ;;
        *) other= ;;
        esac
        for name in "$option" $other; do
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
profile+=("--output=$REPORTS/profile_%q{SLURM_PROCID}")
if [ "$waits" = no ]; then exec nsys profile "${profile[@]}" "$@"; fi
# With a duration, nsys ends before the program. Slurm kills what a task leaves running, so the task waits. Its two shells
# survive signals; nsys and the program do not inherit the traps.
place=$(mktemp -d) || exit
trap : HUP INT USR1 USR2
ending=no
trap "ending=yes" TERM
# Slurm sends a SIGTERM to the task alone, or to all processes (SignalChildrenProcesses): then this one ends. nsys must get
# exactly one: a second one loses the report. With --kill=none, nsys passes none to the program.
passed=no
sleep 1000000 >/dev/null 2>&1 &
witness=$!
pass() {
    if [ "$ending$passed" != yesno ]; then return; fi
    passed=yes
    sleep 1
    if ! kill -0 "$witness" 2>/dev/null; then return; fi
    kill -TERM "$nsys" 2>/dev/null
    if [ -s "$place/pids" ]; then
        read -r _ program <"$place/pids"
        kill -TERM "$program" 2>/dev/null
    fi
}
# Commands in the background would ignore SIGINT, and read nothing.
(trap - INT QUIT && exec nsys profile "${profile[@]}" bash -c "
    trap : HUP INT USR1 USR2 TERM
    (echo \$\$ \$BASHPID >\"\$0/pids\" && exec \"\$@\")
    code=\$?
    echo \$code >\"\$0/code\"
    exit \$code
" "$place" "$@") <&0 &
nsys=$!
while kill -0 "$nsys" 2>/dev/null; do # a signal ends the wait, not nsys
    wait "$nsys"
    code=$?
    pass
done
if [ -s "$place/pids" ]; then # else nsys did not start the program
    read -r shell _ <"$place/pids"
    # Near the time limit, a program that does not end must leave time for the translation. torchrun takes 30 seconds.
    patience=60
    while [ ! -s "$place/code" ] && [ "$patience" -gt 0 ] && kill -0 "$shell" 2>/dev/null; do
        # Where nothing reaps orphans, a killed process stays.
        if grep -qs "^State:.*zombie" "/proc/$shell/status"; then break; fi
        sleep 1
        pass
        if [ "$ending" = yes ]; then patience=$((patience - 1)); fi
    done
    if [ -s "$place/code" ]; then
        read -r of_program <"$place/code"
        if [ "$of_program" -ne 0 ]; then code=$of_program; fi
    elif [ "$patience" -eq 0 ]; then
        code=143
    else
        code=137
    fi
fi
kill "$witness" 2>/dev/null
rm -rf "$place"
exit "$code"
'

# ==== The job =========================================================================================================

say() { echo "profile: $*" >&2; }

# Modules and environments may use unset variables.
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
    say "nsys2prv-ng not found: set VENV or MODULES at the top of the script"
    exit 2
fi
# All nodes must see this folder. "${array[@]+...}": before bash 4.4, empty arrays count as unset.
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
        say "no report in $REPORTS; see the messages of nsys above"
        return 1
    fi
    if [ ${#SRUN_OPTIONS[@]} -gt 0 ] || [ ${#PREFIX[@]} -gt 0 ]; then use_nsys_of_container; fi
    local cluster=()
    if [ "$DASK" = yes ]; then start_dask && cluster=(--dask "$REPORTS/scheduler.json"); fi
    nsys2prv-ng translate "${reports[@]}" "$REPORTS/trace.prv" --force --stats "$REPORTS/stats.json" \
        ${cluster[@]+"${cluster[@]}"} ${TRANSLATE_OPTIONS[@]+"${TRANSLATE_OPTIONS[@]}"}
    local status=$?
    # The summary covers the steps after the warm-up, the trace all of the capture: each reads the reports. The log ends
    # with the summary; `nsys2prv-ng compare` takes its JSON.
    if [ "$status" -eq 0 ]; then
        nsys2prv-ng summary "${reports[@]}" --quiet --save "$REPORTS/summary.json" --html "$REPORTS/summary.html" \
            ${cluster[@]+"${cluster[@]}"} || say "no summary; the trace is complete"
    fi
    if [ ${#cluster[@]} -gt 0 ]; then stop_dask; fi
    return "$status"
}

# The scheduler runs here, the workers on all nodes. Each uses a core, and memory that nsys2prv-ng limits itself.
start_dask() {
    if ! command -v dask >/dev/null; then
        say "dask not found: translating on this node alone"
        return 1
    fi
    rm -f "$REPORTS/scheduler.json"
    dask scheduler --scheduler-file "$REPORTS/scheduler.json" --port 0 --no-dashboard >>"$REPORTS/dask.log" 2>&1 &
    scheduler=$!
    srun --overlap --nodes="${SLURM_NNODES:-1}" --ntasks="${SLURM_NNODES:-1}" --cpus-per-task="$DASK_WORKERS" \
        dask worker --scheduler-file "$REPORTS/scheduler.json" --nworkers "$DASK_WORKERS" --nthreads 1 \
        --memory-limit 0 --no-dashboard --local-directory "${TMPDIR:-/tmp}" >>"$REPORTS/dask.log" 2>&1 &
    workers=$!
    for _ in {1..120}; do
        sleep 0.5
        if ! kill -0 "$workers" 2>/dev/null; then break; fi
        if [ -e "$REPORTS/scheduler.json" ]; then return; fi
    done
    say "Dask does not start (see $REPORTS/dask.log): translating on this node alone"
    stop_dask
    return 1
}

stop_dask() {
    kill "$workers" "$scheduler" 2>/dev/null
    wait "$workers" "$scheduler" 2>/dev/null
    rm -f "$REPORTS/scheduler.json"
}

submit_translation() {
    local name options=(--nodes=1 --ntasks=1 ${SLURM_JOB_ACCOUNT:+"--account=$SLURM_JOB_ACCOUNT"})
    options+=("--dependency=afterany:$SLURM_JOB_ID" --job-name=translate "--output=$REPORTS/translate.out")
    options+=(${DEPENDENT_OPTIONS[@]+"${DEPENDENT_OPTIONS[@]}"})
    if [ "$DASK" = yes ]; then
        options+=("--nodes=$SLURM_NNODES" "--ntasks=$SLURM_NNODES" "--cpus-per-task=$DASK_WORKERS")
    fi
    cp "$0" "$REPORTS/job.sh" || return
    (
        # sbatch would take Slurm's variables of this job as options for the other.
        for name in "${!SLURM_@}"; do if [ "$name" != SLURM_CONF ]; then unset "$name"; fi; done
        sbatch "${options[@]}" --wrap="bash $(printf '%q ' "$REPORTS/job.sh" translate "$REPORTS")"
    )
}

if [ "${1-}" = translate ]; then
    translate
    exit
fi

# Submitted before the program starts, so that it runs no matter how this job ends.
if [ "$DEPENDENT" = yes ] && ! submit_translation; then
    say "jobs cannot be submitted from here: translating in this one"
    DEPENDENT=no
fi

# --kill=none: if the capture ends before the program, the program continues. After a duration, the task waits for it.
profile=(${PROFILE[@]+"${PROFILE[@]}"} --kill=none --force-overwrite=true)
if [ "$CAPTURE_RANGE" = yes ]; then profile+=(--capture-range=cudaProfilerApi --capture-range-end=stop); fi
if [ -n "$DELAY" ]; then profile+=("--delay=$DELAY"); fi
if [ -n "$DURATION" ]; then profile+=("--duration=$DURATION"); fi
export REPORTS REPORT_PER NODE_OPTIONS="${PROFILE_OF_NODE[*]-}"

# A SIGTERM makes nsys write its report and end. It must go to the tasks: if srun receives it, it kills them.
trap 'say "the time limit is near, ending the program"; scancel --signal=TERM "$SLURM_JOB_ID"' TERM
# After a rank fails, the others have 10 minutes to end and to write their reports.
"${launch[@]}" --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" --kill-on-bad-exit=0 --wait=600 \
    ${PREFIX[@]+"${PREFIX[@]}"} bash -c "$TASK" task "${profile[@]}" -- "${COMMAND[@]}" &
step=$!
wait "$step"
status=$?
while kill -0 "$step" 2>/dev/null; do # the signal has ended the wait, not the step
    wait "$step"
    status=$?
done
trap - TERM
if [ "$status" -ne 0 ]; then say "srun ended with exit code $status"; fi

if [ "$DEPENDENT" != yes ]; then translate || exit; fi
exit "$status"
