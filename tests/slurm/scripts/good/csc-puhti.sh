#!/bin/bash
#SBATCH --job-name=example
#SBATCH --account=project_2000001
#SBATCH --partition=gpu
#SBATCH --time=02:00:00
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=10
#SBATCH --mem-per-cpu=8000
#SBATCH --gres=gpu:v100:1,nvme:100

module load pytorch/2.4
tar xf data.tar -C "$LOCAL_SCRATCH"
srun --cpus-per-task=10 python3 train.py --data="$LOCAL_SCRATCH" --num_workers=10
