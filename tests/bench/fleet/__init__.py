"""A whole fleet in closed loop: what routes do changes the load, load changes L*, and L* decides about routes.

    python -m tests.bench.fleet --out build/bench-fleet.json

Three routes share two pools of four replicas for 30 days, day and night, with peaks. `model` says what a decode step
costs at which batch and which batch a pool then runs; `counts` draws a block's counts; `run` lets the shipped rule
decide every minute, against a line that it measures itself or against the model's own; `checks` looks for what must not
be: limit cycles, and switches that a peak of load alone brought about.
"""
