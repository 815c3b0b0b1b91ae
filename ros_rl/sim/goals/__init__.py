"""Training environments whose goal pulls the robot away from where it is safest."""
