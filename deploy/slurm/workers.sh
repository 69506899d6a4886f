#!/bin/sh
# Workers of a study under Slurm: sbatch --array=1-8 deploy/slurm/workers.sh tcp://HOST:8786
# Each job of the array is one worker, and does one run at a time. docs/studies-on-many-machines.md says more.
#SBATCH --job-name=kai-solver-worker
#SBATCH --cpus-per-task=4
#SBATCH --mem=16G
#SBATCH --time=08:00:00
set -eu
# Without a nanny Slurm is what watches over the worker: a signal for the job reaches it, and nothing starts it again.
exec dask worker "$1" --no-nanny --nthreads 1 --memory-limit 0 --no-dashboard --local-directory "${TMPDIR:-/tmp}"
