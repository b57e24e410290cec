#!/bin/bash
#SBATCH --account=project_465000001
#SBATCH --partition=small-g
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus-per-node=1
#SBATCH --cpus-per-task=7
#SBATCH --mem-per-gpu=60G
#SBATCH --time=02:00:00
#SBATCH -o logs/%j.out
#SBATCH -e logs/%j.err

export MIOPEN_USER_DB_PATH=$(mktemp -d)
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" python train.py --workers 7
