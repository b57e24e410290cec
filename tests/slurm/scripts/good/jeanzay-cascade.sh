#!/bin/bash
#SBATCH --job-name=cascade
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=40
#SBATCH --hint=nomultithread
#SBATCH --time=01:00:00
#SBATCH --dependency=afterok:123456
set -e
srun ./first
next=$(sbatch --parsable --dependency=afterok:"$SLURM_JOB_ID" second.sh)
echo "then $next"
