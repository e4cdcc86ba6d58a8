"""Fuzzing: random and damaged input must end in a result or in one of our own errors.

`make fuzz TARGET=load RUNS=1000000` runs one target. `test_fuzz.py` runs all of them for a short time.

- `choices`: turn bytes into choices, and damage bytes and JSON values.
- `targets`: what is fuzzed; one module for each target.
- `fits`: remember fitted estimators, so that a target whose input hardly varies is not slow.
- `engine`: run a target many times, in a process of its own, within limits of time and memory.
- `coverage_guided`: run a target with atheris, which looks for input that reaches new code.
"""
