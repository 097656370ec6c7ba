"""Compare the compiled engine with pysim on many random designs.

Usage: python scripts/engine_fuzz.py [--designs 3000] [--seed 0] [--statements 16]

A fault of compiled code is a crash, not an exception, so batches of seeds run in child processes.
The exit status is 1 if any design differs or crashes; the seeds are printed.
"""

import argparse
import subprocess
import sys
import time
import warnings

BATCH = 25


def check(first: int, count: int, statements: int) -> int:
    """Check seeds ``first ..`` in this process; returns the number that differ."""
    from npulse.sim.engine.fuzz import Mismatch, RandomDesign, check_design

    warnings.simplefilter("ignore")  # a generator writes what a person would be warned of
    wrong = 0
    for seed in range(first, first + count):
        print(f"seed {seed}", flush=True)
        try:
            check_design(RandomDesign(seed, 1 + seed % statements))
        except Mismatch as mismatch:
            print(f"WRONG seed {seed}: {mismatch}", flush=True)
            wrong += 1
    return wrong


def batches(designs: int, seed: int, statements: int) -> int:
    """Run batches in children; returns the number of designs that differ or crash."""
    wrong, started = 0, time.perf_counter()
    for first in range(seed, seed + designs, BATCH):
        count = min(BATCH, seed + designs - first)
        command = [sys.executable, __file__, "--child", "--seed", str(first)]
        command += ["--designs", str(count), "--statements", str(statements)]
        child = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = child.stdout.splitlines()
        bad = [line for line in lines if line.startswith("WRONG")]
        if child.returncode not in (0, 1):
            bad.append(f"CRASH in {lines[-1] if lines else first}: {child.stderr[-500:]}")
        wrong += len(bad)
        print(*bad, sep="\n", end="\n" if bad else "")
        done = first + count - seed
        print(f"{done} designs, {wrong} wrong, {time.perf_counter() - started:.0f} s", flush=True)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--designs", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--statements", type=int, default=16)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    run = check if arguments.child else batches
    if arguments.child:
        return min(run(arguments.seed, arguments.designs, arguments.statements), 1)
    return min(run(arguments.designs, arguments.seed, arguments.statements), 1)


if __name__ == "__main__":
    sys.exit(main())
