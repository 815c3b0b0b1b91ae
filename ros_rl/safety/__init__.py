"""Filters between a policy and a robot that keep it inside its safe set."""
