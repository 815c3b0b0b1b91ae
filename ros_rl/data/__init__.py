"""Episodes on disk: the log of a running episode (MCAP), LeRobot datasets v3.0, their check and repair."""
