#!/bin/bash
#SBATCH --account=training
#SBATCH --partition=booster
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=48
#SBATCH --gres=gpu:4
#SBATCH --time=06:00:00
#SBATCH --threads-per-core=1
#SBATCH --output=%j.out

source env/activate.sh
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
export CUDA_VISIBLE_DEVICES=0,1,2,3
MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)i"
export MASTER_ADDR
export MASTER_PORT=29500
export NCCL_SOCKET_IFNAME=ib0 GLOO_SOCKET_IFNAME=ib0

srun --cpu-bind=none bash -c "torchrun \
  --nnodes=$SLURM_NNODES --nproc_per_node=gpu \
  --rdzv_backend=c10d --rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT \
  --rdzv_conf=is_host=\$(if ((SLURM_NODEID)); then echo 0; else echo 1; fi) \
  train.py"
