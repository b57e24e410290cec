#!/bin/bash
#SBATCH -A ABC123
#SBATCH -J scaling
#SBATCH -o %x-%j.out
#SBATCH -t 00:30:00
#SBATCH -N 2
#SBATCH --gpu-srange=800-1600
module load rocm
cd "$MEMBERWORK/abc123"
srun -N2 -n16 -c7 --gpus-per-node=8 --gpu-bind=closest ./solver
