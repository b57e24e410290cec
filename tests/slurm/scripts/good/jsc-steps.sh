#!/bin/bash
#SBATCH --account=chem
#SBATCH --nodes=1
#SBATCH --ntasks=4
#SBATCH --cpus-per-task=12
#SBATCH --time=1:00:00
for i in 1 2 3 4; do
  srun --exact --ntasks=1 --cpus-per-task=12 ./sim "case$i" >"case$i.log" 2>&1 &
done
wait
