"""What an age law is: schedules, their sums and their exact laws over ring positions. NumPy only."""
