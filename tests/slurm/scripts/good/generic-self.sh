#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4 --time=00:20:00 --mem=16G
# Starts itself once for each task, so that each one reads its own rank.
if [[ -z ${SLURM_STEP_ID:-} ]]; then
  exec srun "$0" "$@"
fi
export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
./worker --rank "$RANK"
