"""The node graphs as plain data; `ros2 launch` and `ros-rl up` both start what is written here."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ros_rl.errors import UserError, unknown
from ros_rl.nodes.parameters import NODES, Parameter, Value
from ros_rl.policies.bundle import check_fits, load_bundle
from ros_rl.robots.spec import load_robot
from ros_rl.sim.task import Task, load_task

if TYPE_CHECKING:
    from launch import LaunchDescription

# What a bring-up starts unless told otherwise: robot, tasks and namespace.
BRINGUPS: Mapping[str, Mapping[str, str]] = {
    "cartpole": {"robot": "cartpole", "tasks": "cartpole_balance"},
    "arm": {"robot": "arm", "tasks": "put_red_block_in_bowl,stack_red_on_blue,push_button"},
    "quadruped": {"robot": "quadruped", "tasks": "quadruped_trot"},
    "quadrotor": {"robot": "quadrotor", "tasks": "quadrotor_hover"},
}

_OWN = (
    Parameter("mode", "sim", "sim: MuJoCo. robot: a real robot behind ros2_control.", choices=("sim", "robot")),
    Parameter("robot", "", "Robot by name, or a path to its robot.yaml; empty: the bring-up's own."),
    Parameter("tasks", [""], "Tasks by name, in turn; 'none': no task, only the services act; empty: the bring-up's own."),
    Parameter("policy", "", "Policy bundle by name or path; empty: the one that the first task names."),
    Parameter("namespace", "", "Namespace of the nodes; empty: the bring-up's name."),
    Parameter("composed", False, "Run all nodes in one process."),
    Parameter("use_sim_time", "auto", "Whether nodes take their time from /clock; auto: in simulation.", choices=("auto", "true", "false")),
)
_FORWARDED = (
    "seed",
    "lockstep",
    "rate_factor",
    "control_rate",
    "cameras",
    "scene",
    "max_age",
    "stop_after",
    "command",
    "command_timeout",
    "instruction",
    "filter",
    "episodes",
    "pause",
    "controller",
    "command_interface",
    "joint_states_topic",
    "imu_topic",
    "odometry_topic",
    "connect_timeout",
    "publish_clock",
)


def _node_parameter(name: str) -> Parameter:
    return next(parameter for table in NODES.values() for parameter in table if parameter.name == name)


ARGUMENTS: dict[str, Parameter] = {parameter.name: parameter for parameter in _OWN} | {name: _node_parameter(name) for name in _FORWARDED}


@dataclass(frozen=True)
class NodeDescription:
    """One node to start: the executable of this package, and its parameters."""

    executable: str
    parameters: Mapping[str, Value]


@dataclass(frozen=True)
class Graph:
    """A node graph: what `ros-rl up` and `ros2 launch` start."""

    bringup: str
    namespace: str
    nodes: tuple[NodeDescription, ...]
    composed: bool


def read_words(words: Sequence[str]) -> dict[str, str]:
    """Reads ``key:=value`` words.

    Raises:
        UserError: a word has another form, a key is unknown or there twice.
    """
    given: dict[str, str] = {}
    for word in words:
        key, separator, value = word.partition(":=")
        if not separator:
            raise UserError(f"'{word}' is no argument, write key:=value")
        if key not in ARGUMENTS:
            raise unknown("argument", key, ARGUMENTS)
        if key in given:
            raise UserError(f"the argument {key} is there twice")
        given[key] = value
    return given


def graph(bringup: str, given: Mapping[str, str]) -> Graph:
    """Returns the nodes of a bring-up.

    Args:
        bringup: its name.
        given: arguments as text; those not given have the default of the bring-up or of the parameter.

    Raises:
        UserError: an argument, robot, task or policy is unknown or does not fit the others.
    """
    if bringup not in BRINGUPS:
        raise unknown("bring-up", bringup, BRINGUPS)
    for key in given:
        if key not in ARGUMENTS:
            raise unknown("argument", key, ARGUMENTS)
    values: dict[str, Any] = {name: parameter.default for name, parameter in ARGUMENTS.items()}
    values |= {key: ARGUMENTS[key].parse(text) for key, text in given.items()}
    robot = load_robot(values["robot"] or BRINGUPS[bringup]["robot"])
    tasks = _tasks(bringup, robot.name, values["tasks"])
    simulated = values["mode"] == "sim"
    if simulated:
        _same("scene", tasks)
    policy = values["policy"] or _same("policy", tasks)
    if not policy:
        raise UserError("without a task, name the policy:=")
    control_rate = values["control_rate"] or robot.control_rate
    bundle = load_bundle(policy)
    check_fits(bundle, replace(robot, control_rate=control_rate))
    if bundle.spec.privileged and not simulated:
        raise UserError(f"policy '{policy}' reads simulator state, so it runs in mode:=sim only; name another policy:=")
    sim_time = values["use_sim_time"] == "true" or (values["use_sim_time"] == "auto" and simulated)
    shared = {
        **{name: values[name] for name in ARGUMENTS if name not in {parameter.name for parameter in _OWN}},
        "robot": values["robot"] or BRINGUPS[bringup]["robot"],
        "backend": "mujoco" if simulated else "ros2_control",
        "task": str(tasks[0].path) if tasks and simulated else "",
        "tasks": [str(task.path) for task in tasks] if simulated and tasks else [""],
        "policy": str(policy),
    }
    if tasks and "command" not in given:
        shared["command"] = list(tasks[0].command)
    if tasks and not simulated and "instruction" not in given:
        shared["instruction"] = tasks[0].instruction
    nodes = tuple(
        NodeDescription(name, {p.name: shared[p.name] for p in NODES[name] if p.name in shared} | {"use_sim_time": sim_time})
        for name in ("hardware_node", "safety_node", "policy_node", "task_node")
    )
    return Graph(bringup, _namespace(values["namespace"] or bringup), nodes, values["composed"])


def _namespace(name: str) -> str:
    if not re.fullmatch(r"/?[A-Za-z_]\w*(/[A-Za-z_]\w*)*/?", name, re.ASCII):
        raise UserError(f"namespace '{name}' is not letters, digits and _ that begin with a letter, with / between")
    return "/" + name.strip("/")


def _tasks(bringup: str, robot: str, names: Sequence[str]) -> list[Task]:
    names = [name for name in names if name] or BRINGUPS[bringup]["tasks"].split(",")
    if list(names) == ["none"]:
        return []
    tasks = [load_task(name) for name in names]
    for task in tasks:
        if task.robot != robot:
            raise UserError(f"task '{task.name}' is for the robot '{task.robot}', this bring-up runs '{robot}'")
    return tasks


def _same(key: str, tasks: Sequence[Task]) -> str:
    """Returns the scene or policy that all tasks of one run share; empty without tasks."""
    found = {getattr(task, key): task.name for task in tasks}
    if len(found) > 1:
        raise UserError(f"one run has one {key}: " + ", ".join(f"task '{name}' names '{value}'" for value, name in found.items()))
    return next(iter(found), "")


def launch_description(bringup: str) -> "LaunchDescription":
    """Returns what a file in launch/ hands to `ros2 launch`: the graph of a bring-up, with its arguments declared."""
    from launch import LaunchDescription
    from launch.actions import DeclareLaunchArgument, EmitEvent, LogInfo, OpaqueFunction, RegisterEventHandler
    from launch.event_handlers import OnProcessExit
    from launch.events import Shutdown
    from launch_ros.actions import Node

    def start(context: Any) -> list[Any]:
        given = {key: text for key, text in context.launch_configurations.items() if key in ARGUMENTS and text != ""}
        asked = [word.split(":=")[0] for word in context.argv if ":=" in word]
        for key in asked:
            if key not in ARGUMENTS:
                raise unknown("argument", key, ARGUMENTS)
        described = graph(bringup, given)
        actions: list[Any] = []
        for description in processes(described):
            node = Node(
                package="ros_rl",
                executable=description.executable,
                namespace=described.namespace,
                parameters=[dict(description.parameters)],
                output="screen",
            )

            def ended(event: Any, _: Any, name: str = description.executable) -> list[Any]:
                if ends_the_graph(name, event.returncode):
                    return [EmitEvent(event=Shutdown(reason=f"{name} ended"))]
                return [LogInfo(msg=f"{name} ended with {event.returncode}; the guard holds the robot")]

            actions += [node, RegisterEventHandler(OnProcessExit(target_action=node, on_exit=ended))]
        return actions

    declared = [
        DeclareLaunchArgument(name, default_value="", description=f"{parameter.description} ({parameter.expected()})")
        for name, parameter in ARGUMENTS.items()
    ]
    return LaunchDescription([*declared, OpaqueFunction(function=start)])


def processes(described: Graph) -> tuple[NodeDescription, ...]:
    """Returns one description for each process: the nodes, or the single node that composes them."""
    if not described.composed:
        return described.nodes
    merged = {f"{node.executable}.{name}": value for node in described.nodes for name, value in node.parameters.items()}
    return (NodeDescription("composed_node", merged),)


def ends_the_graph(executable: str, code: int | None) -> bool:
    """Whether the end of a process ends the graph: without the robot's process nothing is left to run, and with bad input
    nothing has begun. When any other process dies, the guard holds the robot and the rest stays up.
    """
    return executable in ("hardware_node", "composed_node") or code in (0, 2)


def launch_file(bringup: str) -> Path:
    """Returns the file in launch/ of a bring-up."""
    from ros_rl.paths import share_dir

    return share_dir() / "launch" / f"{bringup}.launch.py"
