"""Robots as the stack drives them: the `Robot` protocol, its backends, and the guard before every one of them."""
