#!/bin/bash
#SBATCH --job-name=one
#SBATCH --account=abc@h100
#SBATCH -C h100
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=24
#SBATCH --hint=nomultithread
#SBATCH --qos=qos_gpu_h100-dev
#SBATCH --time=02:00:00
module purge
module load arch/h100
python script.py
