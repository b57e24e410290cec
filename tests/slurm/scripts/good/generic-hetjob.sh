#!/bin/bash
#SBATCH --job-name=coupled
#SBATCH --time=01:00:00
#SBATCH --nodes=1 --ntasks=4 --mem=8G
#SBATCH hetjob
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4
srun ./ocean : ./atmosphere
