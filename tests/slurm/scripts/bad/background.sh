#!/bin/bash
# expect: steps-in-turn:8 background-without-wait:9 signal-not-to-shell:6
#SBATCH --ntasks=2
#SBATCH --mem=4G
#SBATCH --time=1:00:00
#SBATCH --signal=USR1@60
trap 'touch stop' USR1
srun -n1 ./a &
srun -n1 ./b &
