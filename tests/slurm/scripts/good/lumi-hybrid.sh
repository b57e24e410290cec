#!/bin/bash -l
#SBATCH --account=project_465000001
#SBATCH --partition=standard-g
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=12:00:00

masks="mask_cpu:7e000000000000,7e00000000000000"
masks="$masks,7e0000,7e000000"
masks="$masks,7e,7e00"
masks="$masks,7e00000000,7e0000000000"
export OMP_NUM_THREADS=6
srun --cpu-bind="$masks" bash -c 'ROCR_VISIBLE_DEVICES=$SLURM_LOCALID exec ./solver'
