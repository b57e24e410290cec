#!/bin/bash
#SBATCH --qos=shared
#SBATCH --constraint=gpu
#SBATCH --account=m0000_g
#SBATCH --ntasks=1
#SBATCH --gpus=1
#SBATCH --cpus-per-task=32
#SBATCH --time=0:30:00
#SBATCH --image=docker:nvcr.io/nvidia/pytorch:24.01-py3

srun --cpus-per-task=32 shifter python train.py
