"""A ROS 2 control stack for learned robot policies: one data path for simulation, real robots and training."""

__version__ = "0.1.0"
