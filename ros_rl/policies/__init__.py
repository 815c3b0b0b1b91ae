"""Policies: from observations to chunks of actions."""
