"""Plans of many runs, and launching them on cores or on a cluster."""
