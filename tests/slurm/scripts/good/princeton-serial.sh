#!/bin/bash
#SBATCH --job-name=py-job        # a short name
#SBATCH --nodes=1                # node count
#SBATCH --ntasks=1               # total number of tasks
#SBATCH --cpus-per-task=1        # cores of the task
#SBATCH --mem-per-cpu=4G         # memory of a core
#SBATCH --time=00:05:00          # HH:MM:SS
#SBATCH --mail-type=begin
#SBATCH --mail-user=someone@princeton.edu

module purge
module load anaconda3/2024.6
conda activate ml-env

python myscript.py
