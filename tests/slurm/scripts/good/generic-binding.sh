#!/bin/bash
#SBATCH --nodes=1 --ntasks=2 --cpus-per-task=2 --time=00:10:00 --mem=2G
# A list of masks that a loop builds ends with a comma.
masks=""
for mask in 0x3 0xc; do masks+="$mask,"; done
srun --cpus-per-task=2 --cpu-bind="mask_cpu:$masks" ./pair
srun --cpus-per-task=2 --cpu-bind=mask_cpu:0x3,0xc,verbose ./pair
srun --ntasks=1 --cpu-bind=map_cpu:0*4 ./single
