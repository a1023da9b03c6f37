"""The environment variables of launchers: those with the rank of a process, and all that may be read at all."""

from __future__ import annotations

import re

ALLOWED_ENVIRONMENT = re.compile(
    r"SLURM_(?!JWT)\w+|(OMPI_COMM_WORLD|PMI|PMIX|MV2_COMM_WORLD)_(\w+_)?(RANK|SIZE)|(LOCAL_|NODE_)?RANK|(LOCAL_)?WORLD_SIZE"
    r"|PALS_RANKID|(FLUX_TASK|JSM_NAMESPACE)_RANK|FLUX_JOB_SIZE|JSM_NAMESPACE_SIZE"
    r"|CUDA_VISIBLE_DEVICES|NSYS_HW_ID|NSYS_SYSTEM_ID"
)
"""The only variables that may be read from a captured environment, which can contain secrets."""

RANK_VARIABLES = {
    "RANK": ("WORLD_SIZE",),
    "OMPI_COMM_WORLD_RANK": ("OMPI_COMM_WORLD_SIZE",),
    "MV2_COMM_WORLD_RANK": ("MV2_COMM_WORLD_SIZE",),
    "PMI_RANK": ("PMI_SIZE",),
    "SLURM_PROCID": ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
    "PMIX_RANK": (),
    "PALS_RANKID": (),
    "FLUX_TASK_RANK": ("FLUX_JOB_SIZE",),
    "JSM_NAMESPACE_RANK": ("JSM_NAMESPACE_SIZE",),
}
"""Variables in which launchers store the rank of a process, by preference, each with those for the number of ranks.

What mpirun sets comes before SLURM_PROCID: in a batch script, its processes inherit the script's SLURM_PROCID, or that
of the daemon which started them. srun sets what it has of the others to the same rank. The last four are of PMIx, Cray
PALS, Flux and IBM JSM.
"""
LOCAL_RANK_VARIABLES = {
    "RANK": "LOCAL_RANK",
    "OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_RANK": "MV2_COMM_WORLD_LOCAL_RANK",
    "PMI_RANK": "MPI_LOCALRANKID",
    "SLURM_PROCID": "SLURM_LOCALID",
    "PALS_RANKID": "PALS_LOCAL_RANKID",
    "FLUX_TASK_RANK": "FLUX_TASK_LOCAL_ID",
    "JSM_NAMESPACE_RANK": "JSM_NAMESPACE_LOCAL_RANK",
}
"""The variable with the number of a process on its node, by that of its rank."""
