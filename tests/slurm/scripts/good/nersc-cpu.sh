#!/bin/bash
#SBATCH --qos=regular
#SBATCH --time=60
#SBATCH --nodes=2
#SBATCH --constraint=cpu
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append

on_time() {
  echo "time is nearly over"
  scontrol requeue "$SLURM_JOB_ID"
}
trap on_time USR1
srun -n 64 -c 8 --cpu-bind=cores ./a.out &
wait
