#!/bin/bash
#SBATCH --ntasks=1 --mem=1G --time=00:10:00
# Writes its scripts with echo and with a template in quotes, one for each seed.
template='#!/bin/bash
#SBATCH --job-name=seed-@SEED@
#SBATCH --time=1:00:00 --mem=2G
srun ./sim --seed @SEED@
'
for seed in 1 2 3; do
  echo "#!/bin/bash
#SBATCH --job-name=check-$seed
#SBATCH --time=5 --mem=1G
./check $seed" >"check-$seed.sh"
  sbatch "check-$seed.sh"
  printf '%s' "${template//@SEED@/$seed}" | sbatch
done
