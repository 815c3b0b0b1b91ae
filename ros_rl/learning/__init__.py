"""Training and evaluation: one file per algorithm."""
