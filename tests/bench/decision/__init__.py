"""Decision quality in closed loop: simulated route-days, the shipped rule and others on the same traffic.

    python -m tests.bench.decision --out build/bench-decision.json

Nine trajectories of the true tokens per step (`truth`), three rates of traffic, one simulated day each. `traffic` draws
all requests of a day and what goes wrong with readings before any rule sees them, so every rule decides on the same
requests. `drive` lets a rule's answers set the next minute's share of traffic. `score` holds the day against an oracle
that knows the truth of each minute, moves at once and pays nothing for it.
"""
