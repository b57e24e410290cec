#!/bin/bash
# expect: gpus-per-task-isolates:12 rank-in-batch-shell:10 master-addr-localhost:9 secret-in-clear:11 too-many-workers:12
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=64G
#SBATCH --time=1:00:00
export MASTER_ADDR=localhost
export RANK=$SLURM_PROCID
export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567
srun -c 4 python train.py --num_workers 16
