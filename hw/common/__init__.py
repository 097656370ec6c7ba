"""Small control parts that every core shares: FIFOs, counters, loop nests."""
