#!/bin/bash
# expect: launcher-per-task:9 workers-and-gpus:9 launcher-without-rendezvous:9 launcher-on-one-node:10
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --mem=64G
#SBATCH --time=1:00:00
srun -c 8 torchrun --nnodes=2 --nproc-per-node=8 train.py
torchrun --nnodes=2 --nproc-per-node=4 train.py
