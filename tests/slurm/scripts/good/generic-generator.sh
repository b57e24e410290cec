#!/bin/bash
#SBATCH --ntasks=1
#SBATCH --mem=1G
#SBATCH --time=00:10:00
# Writes one script for each case and submits it.
case "${1:-all}" in
  all) cases="a b c" ;;
  [a-c]) cases=$1 ;;
  *) echo "usage: $0 [all|a|b|c]" >&2; exit 2 ;;
esac
for name in $cases; do
  cat >"job-$name.sh" <<END
#!/bin/bash
#SBATCH --job-name=$name
#SBATCH --time=1:00:00
srun ./sim $name
END
  sbatch "job-$name.sh"
done
