#!/bin/bash
#SBATCH --account=def-someuser
#SBATCH --time=02:00:00
#SBATCH --ntasks=8
#SBATCH --mem-per-cpu=1G
parallel --jobs "$SLURM_NTASKS" ./work {} ::: {1..100}
