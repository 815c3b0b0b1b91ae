"""The `ros-rl` command."""
