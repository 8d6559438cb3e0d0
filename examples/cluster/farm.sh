#!/bin/sh
# A farm as a Slurm array: sbatch farm.sh. Each task compiles one of four parts of kernels.jsonl. When all tasks are
# complete, run `cujit farm merge parts -o kernels.pack`.
#SBATCH --job-name=kernels
#SBATCH --array=1-4
#SBATCH --cpus-per-task=4
#SBATCH --requeue
set -eu
exec cujit farm shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" kernels.jsonl --into parts
