#!/bin/bash
# expect: misspelt-directive:3 duplicate-option:5 memory-without-unit:6 late-directive:9 slurm-variable-not-set:10 missing-srun:11
# SBATCH --exclusive
#SBATCH --ntasks=4
#SBATCH --ntasks=8
#SBATCH --mem=16
#SBATCH --time=1:00:00
module load python
#SBATCH --cpus-per-task=8
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
python train.py
