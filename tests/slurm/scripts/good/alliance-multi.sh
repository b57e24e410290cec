#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gres=gpu:p100:2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=3
#SBATCH --mem=24G
#SBATCH --time=0-00:30
#SBATCH --output=%N-%j.out

module load StdEnv/2023 python/3.11
srun -c "$SLURM_CPUS_PER_TASK" -N "$SLURM_NNODES" -n "$SLURM_NNODES" ./config_env.sh
export MASTER_ADDR=$(hostname)
export TORCH_NCCL_ASYNC_ERROR_HANDLING=1
srun -c "$SLURM_CPUS_PER_TASK" python train.py --init_method "tcp://$MASTER_ADDR:3456" --world_size "$SLURM_NTASKS"
