"""ros2 launch ros_rl tabletop.launch.py [key:=value ...]; add --show-args to list the arguments."""

from ros_rl.bringup import launch_description


def generate_launch_description():
    """Called by `ros2 launch`."""
    return launch_description("tabletop")
