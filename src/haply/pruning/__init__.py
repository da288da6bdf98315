"""HOW NOT TO ASK: row intervals that decide most pairs unseen, certified bounds for the rest, and the counters."""
