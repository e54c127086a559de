#!/bin/sh
# One task of an array of Slurm's jobs, which measures one shard of a sweep:
#   sbatch --array=1-8 tools/sweep_array.sh FOLDER SWEEP-OPTION...
# FOLDER is one that all nodes share. Each task writes FOLDER/IofN.sqlite; a task that Slurm starts
# again goes on with what it finds there. To start a few again yourself, say how many there were:
#   SHARDS=8 sbatch --array=3,5 tools/sweep_array.sh FOLDER SWEEP-OPTION...
# When all have ended:
#   tessera data merge sweep.sqlite FOLDER/*.sqlite
# TESSERA names the program where it is not on PATH.
set -eu
if [ $# -lt 2 ]; then
  echo "sweep_array.sh: expected FOLDER and the options of 'tessera sweep', got $# words" >&2
  exit 2
fi
if [ -z "${SLURM_ARRAY_TASK_ID:-}" ] || [ -z "${SLURM_ARRAY_TASK_COUNT:-}" ]; then
  echo "sweep_array.sh: SLURM_ARRAY_TASK_ID or SLURM_ARRAY_TASK_COUNT is not set; start it with" \
    "sbatch --array=1-N" >&2
  exit 2
fi
folder=$1
shift
shards=${SHARDS:-$SLURM_ARRAY_TASK_COUNT}
least=${SLURM_ARRAY_TASK_MIN:-1}
most=${SLURM_ARRAY_TASK_MAX:-$shards}
# With other numbers some tasks would be refused after others measured for hours, or all shards be
# measured as one.
if [ -z "${SHARDS:-}" ] && { [ "$least" != 1 ] || [ "$most" != "$shards" ]; }; then
  echo "sweep_array.sh: the array must be 1-N, got $shards tasks from $least to $most; to start a" \
    "few tasks of an array of N again, say SHARDS=N sbatch --array=3,5" >&2
  exit 2
fi
mkdir -p "$folder"
exec "${TESSERA:-tessera}" sweep "$@" --shard "$SLURM_ARRAY_TASK_ID/$shards" \
  --store "$folder/${SLURM_ARRAY_TASK_ID}of$shards.sqlite"
