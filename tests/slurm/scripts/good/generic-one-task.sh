#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=16
#SBATCH --time=02:00:00 --mem=32G
# One task on each node has all CPUs of the job there.
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
srun ./hybrid input.toml
