"""Thin ROS 2 lifecycle nodes over the packages below; no algorithm lives here."""
