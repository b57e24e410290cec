#!/bin/bash
#SBATCH --partition=gpu
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=8
#SBATCH --mem=32G
#SBATCH --time=1-12
#SBATCH --array=0-9%3
#SBATCH --output=logs/%x_%A_%a.log
lrs=(0.1 0.03 0.01 0.003 0.001 3e-4 1e-4 3e-5 1e-5 3e-6)
lr=${lrs[$SLURM_ARRAY_TASK_ID]}
export WANDB_API_KEY=$(cat ~/.wandb_key)
apptainer exec --nv image.sif python train.py --lr "$lr" --num_workers 8 |& tee "run-$SLURM_ARRAY_TASK_ID.txt"
