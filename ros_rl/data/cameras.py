"""Which cameras can be recorded, and how large their images are."""

from collections.abc import Sequence
from pathlib import Path

from ros_rl.errors import unknown
from ros_rl.robots.spec import Camera, RobotSpec


def recorded_cameras(spec: RobotSpec, scene: str | Path | None, names: Sequence[str] | None = None) -> list[Camera]:
    """Returns cameras with their sizes.

    Args:
        spec: the robot.
        scene: name or path of the world that it is simulated in, whose cameras count too; None for a real robot.
        names: which; None: all but those that are optional.

    Raises:
        UserError: there is no such camera, or no such world.
    """
    if scene is None:
        known = {camera.name: camera for camera in spec.cameras}
    else:
        from ros_rl.sim.build import cameras_in  # the computer of a real robot need not be able to simulate

        known = cameras_in(spec, scene)
    for name in names or ():
        if name not in known:
            raise unknown(f"camera of {spec.name}" + (f" in {scene}" if scene else ""), name, known)
    return [camera for camera in known.values() if not camera.optional] if names is None else [known[name] for name in names]
