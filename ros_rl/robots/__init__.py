"""What a robot is: its joints, limits and frames, and its kinematics and dynamics."""
