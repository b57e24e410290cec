#!/bin/bash
# expect: mask-misses-gpu:9 mask-reserved-cpu:9
#SBATCH --account=project_465000001
#SBATCH --partition=standard-g
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=1:00:00
srun --cpu-bind=mask_cpu:ff,ff00,ff0000,ff000000,ff00000000,ff0000000000,ff000000000000,ff00000000000000 bash -c 'ROCR_VISIBLE_DEVICES=$SLURM_LOCALID ./app'
