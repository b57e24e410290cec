#!/bin/bash
#SBATCH --job-name=multi_gpu
#SBATCH --account=abc@v100
#SBATCH -C v100-32g
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=10
#SBATCH --hint=nomultithread
#SBATCH --time=20:00:00
#SBATCH --output=multi_gpu%j.out
#SBATCH --error=multi_gpu%j.out

cd "${SLURM_SUBMIT_DIR}"
module purge
module load pytorch-gpu/py3/2.4.0
set -x
srun --cpus-per-task=10 python -u train.py
