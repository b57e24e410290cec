#!/usr/bin/env bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=04:00:00
#SBATCH --container-image=nvcr.io/nvidia/pytorch:24.07-py3
set -euo pipefail
mounts="$PWD:/workspace"
if [[ -n "${EXTRA_MOUNTS:-}" ]]; then
  mounts+=",$EXTRA_MOUNTS"
fi
srun --container-mounts="$mounts" --mpi=pmix bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID; python train.py'
