"""Training: the loop, a run's directory, evaluation, and what a person watching sees."""
