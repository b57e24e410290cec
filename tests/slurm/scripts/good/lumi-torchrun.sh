#!/bin/bash
#SBATCH --account=project_465000001
#SBATCH --partition=standard-g
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=56
#SBATCH --gpus-per-node=8
#SBATCH --mem=480G
#SBATCH --time=1-00:00:00

module purge
module use /appl/local/laifs/modules
module load lumi-aif-singularity-bindings

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT="1${SLURM_JOB_ID:0-4}"
export NCCL_SOCKET_IFNAME=hsn
export NCCL_NET_GDR_LEVEL=3
SIF=/appl/local/laifs/containers/torch.sif

srun --cpus-per-task=56 singularity run "$SIF" torchrun \
  --nnodes="$SLURM_NNODES" --nproc-per-node=8 \
  --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" \
  train.py --num-workers=7
