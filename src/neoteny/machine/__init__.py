"""The machine a run is on: compiled programs, memory, threads, signals."""
