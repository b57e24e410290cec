#!/bin/bash
#SBATCH -A m0000_g
#SBATCH -C gpu
#SBATCH -q debug
#SBATCH -t 30
#SBATCH -N 1
srun -n 4 -c 32 --cpu_bind=cores --gpus-per-task=1 --gpu-bind=none python train.py
