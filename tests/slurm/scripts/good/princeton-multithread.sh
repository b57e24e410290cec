#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --mem-per-cpu=4G
#SBATCH --time=00:15:00
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
./omp_prog
