"""Scripted policies: controllers and experts written by hand, shipped as bundles like learned ones."""
