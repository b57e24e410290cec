#!/bin/bash
#SBATCH --time=00:30:00 --mem=4G
##SBATCH --qos=debug
# #SBATCH --gpus-per-node=1
#xSBATCH --mail-type=END
#_SBATCH --exclusive
# SBATCH-style lines that begin with two hashes are switched off.
module load gcc
# #SBATCH --array=1-4
./simulate input.toml
