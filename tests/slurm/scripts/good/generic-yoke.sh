#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --mem=200G
#SBATCH --time=08:00:00
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
yoke run ./train --epochs 90
