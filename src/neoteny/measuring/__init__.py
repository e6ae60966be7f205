"""Measuring plasticity during a run, and saying what the measures show."""
