"""Simulation: MuJoCo models of robots in worlds, tasks, cameras, many copies at once."""
