"""Devices by which people, and scripts in their place, command a robot."""
