#!/bin/bash
#SBATCH --account=project_2000001
#SBATCH --partition=gpumedium
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=128
#SBATCH --gres=gpu:a100:4
#SBATCH --time=6:00:00
#SBATCH --mem=0

export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
export MASTER_ADDR=$(hostname -i)
srun --cpus-per-task=128 bash -c 'accelerate launch --num_processes=8 --num_machines=2 \
  --machine_rank=$SLURM_NODEID --main_process_ip=$MASTER_ADDR --main_process_port=$MASTER_PORT train.py'
