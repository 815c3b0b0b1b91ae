"""The classes that act for a bundle, by the name in its policy.yaml."""

import importlib
from pathlib import Path

from ros_rl.errors import unknown
from ros_rl.policies.bundle import Bundle, check_fits, load_bundle
from ros_rl.policies.extras import check_installed
from ros_rl.policies.interface import Policy
from ros_rl.robots.spec import RobotSpec

# Imported only when used: a learned actor brings in torch, a scripted one Pinocchio.
ACTORS = {
    "arm_circle": "ros_rl.policies.scripted.arm_circle:ArmCircle",
    "arm_pick_place": "ros_rl.policies.scripted.arm_pick_place:ArmPickPlace",
    "autosafe": "ros_rl.policies.learned:AutoSafePolicy",
    "cartpole_lqr": "ros_rl.policies.scripted.cartpole_lqr:CartpoleLqr",
    "lerobot": "ros_rl.policies.lerobot:LeRobotPolicy",
    "playback": "ros_rl.policies.scripted.playback:Playback",
    "quadrotor_pd": "ros_rl.policies.scripted.quadrotor_pd:QuadrotorPd",
    "quadruped_gait": "ros_rl.policies.scripted.quadruped_gait:QuadrupedGait",
    "quadruped_recovery": "ros_rl.policies.quadruped_recovery:QuadrupedRecovery",
    "quadruped_walk": "ros_rl.policies.quadruped_walk:QuadrupedWalk",
    "remote": "ros_rl.policies.remote:RemotePolicy",
    "tabletop": "ros_rl.policies.scripted.tabletop_expert:TabletopExpert",
    "vla": "ros_rl.policies.vla:VlaPolicy",
}


def load_policy(bundle: Bundle | str | Path, robot: RobotSpec) -> Policy:
    """Makes a policy that is ready to act on a robot.

    Args:
        bundle: a bundle, the name of one that ships, or a path to its folder.
        robot: the robot it shall command.

    Raises:
        UserError: the bundle is damaged, made for another robot, names an actor that does not exist, or needs a package that is not
            installed.
    """
    if not isinstance(bundle, Bundle):
        bundle = load_bundle(bundle)
    check_fits(bundle, robot)
    if bundle.actor not in ACTORS:
        raise unknown(f"actor in bundle '{bundle.name}'", bundle.actor, ACTORS)
    check_installed(bundle)
    module, name = ACTORS[bundle.actor].split(":")
    policy: Policy = getattr(importlib.import_module(module), name)(bundle, robot)
    return policy
