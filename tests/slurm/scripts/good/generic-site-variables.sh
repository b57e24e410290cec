#!/bin/bash
#SBATCH --time=01:00:00 --mem=8G --export=all,RUN=7
set -eu
# The site sets PROJWORK and VSC_SCRATCH, the user exports HF_TOKEN, and bash knows OSTYPE.
cd "$PROJWORK/$USER"
cp -r inputs "$VSC_SCRATCH/run-$RUN"
coproc FEED { ./feed --token "$HF_TOKEN"; }
./consume --system "$OSTYPE" <&"${FEED[0]}"
wait "$FEED_PID"
