#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --gpus-per-node=4
#SBATCH --time=02:00:00
nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
head=${nodes[0]}
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
port=6379
srun --nodes=1 --ntasks=1 -w "$head" ray start --head --port=$port --num-cpus "${SLURM_CPUS_PER_TASK}" --block &
for ((i = 1; i < SLURM_JOB_NUM_NODES; i++)); do
  srun --nodes=1 --ntasks=1 -w "${nodes[$i]}" ray start --address "$head:$port" --block &
done
python -u driver.py
