#!/usr/bin/env python3
#SBATCH --ntasks=1
#SBATCH --time=10
#SBATCH --mem=2G
import os
x = {"a": 'it$s', "b": os.environ.get("HOME")}
print(f"hello {x}")
