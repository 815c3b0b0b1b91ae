"""How groups of rollouts become a gradient: small pure functions that `learning/grpo.py` calls."""
