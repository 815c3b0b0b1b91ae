"""The node graphs as plain data; `ros2 launch` and `ros-rl up` both start what is written here."""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ros_rl.errors import UserError, unknown
from ros_rl.hardware.servo_bus import check_port, check_servos, check_timeout
from ros_rl.nodes.environment import BAD_INPUT, LAUNCHER
from ros_rl.nodes.parameters import DEVICES, MOVE_EVERY_JOINT, NODES, SERVO_BUS, Parameter, Value
from ros_rl.paths import find, share_dir
from ros_rl.policies.bundle import Bundle, check_fits, load_bundle
from ros_rl.policies.extras import check_installed
from ros_rl.robots.spec import RobotSpec, load_robot
from ros_rl.safety.filters import make_filter
from ros_rl.safety.prior import load_prior
from ros_rl.safety.recovery import PARAMETER, RecoverySettings, check_patience, load_recovery
from ros_rl.sim.task import SCENE_FILES, Task, load_task
from ros_rl.teleop.joy import read_mapping
from ros_rl.teleop.leader import read_calibration
from ros_rl.teleop.mapping import check_tool
from ros_rl.teleop.twist import check_release
from ros_rl.web.server import check_can_serve

if TYPE_CHECKING:
    from launch.launch_description import LaunchDescription


@dataclass(frozen=True)
class Bringup:
    """What a bring-up starts unless told otherwise: a robot and its tasks, in turn. Another robot does those that are for it.

    The policies of `plain_task` read no simulator state, so they run on a real robot as well. `policy` does all `tasks`, and any of
    them alone; empty: each task names its own, as those do that are not among `tasks`. It was trained in simulation: on a robot it has to
    be named.
    """

    robot: str
    tasks: tuple[str, ...]
    plain_task: str
    policy: str = ""


BRINGUPS: Mapping[str, Bringup] = {
    "cartpole": Bringup("cartpole", ("cartpole_balance",), "cartpole_balance"),
    "arm": Bringup("arm", ("put_red_block_in_bowl", "stack_red_on_blue", "push_button"), "arm_circle"),
    "tabletop": Bringup(
        "arm",
        ("press_button:green", "press_button:yellow", "open_drawer", "close_drawer", "slide:left", "turn_knob:clockwise"),
        "arm_circle",
        "tabletop_vla",
    ),
    "quadruped": Bringup("quadruped", ("quadruped_walk",), "quadruped_walk"),
    "quadrotor": Bringup("quadrotor", ("quadrotor_hover",), "quadrotor_hover"),
}


def bringup_named(name: str) -> Bringup:
    """Returns a bring-up.

    Raises:
        UserError: there is none of that name; lists those that are.
    """
    if name not in BRINGUPS:
        raise unknown("bring-up", name, BRINGUPS)
    return BRINGUPS[name]


def bringup_for(name: str) -> tuple[str, str]:
    """Returns the name of a bring-up and of the robot that it starts, for the name of a bring-up or of a robot that ships.

    Raises:
        UserError: there is neither of that name, or no bring-up has a task for the robot; lists the names that there are.
    """
    if name in BRINGUPS:
        return name, BRINGUPS[name].robot
    robots = {robot: bringup for bringup in BRINGUPS for robot in _robots(bringup)}
    if name not in robots:
        raise unknown("robot", name, {*robots, *BRINGUPS})
    return robots[name], name


def tasks_for(bringup: str, robot: str) -> tuple[str, ...]:
    """Returns the names of those tasks of a bring-up that are for a robot.

    Raises:
        UserError: none is, or there is no such bring-up; names the robots that have tasks there, and where this one has.
    """
    found = tuple(name for name in bringup_named(bringup).tasks if robot in load_task(name).robots)
    if not found:
        others = [other for other in BRINGUPS if robot in _robots(other)]
        mend = f"'{robot}' has some in bring-up '{others[0]}'" if others else "name tasks:=, or tasks:=none and a policy:="
        raise UserError(f"bring-up '{bringup}' has no task for robot '{robot}' (it has for: {', '.join(_robots(bringup))}); {mend}")
    return found


def _robots(bringup: str) -> list[str]:
    """Returns the robots that a bring-up has tasks for."""
    return sorted({robot for name in BRINGUPS[bringup].tasks for robot in load_task(name).robots})


_OWN = (
    Parameter(
        "mode",
        "sim",
        "sim: MuJoCo. robot: a real robot, behind ros2_control or, with servo_port:=, on a servo bus.",
        choices=("sim", "robot"),
    ),
    Parameter("robot", "", "Robot by name, or a path to its robot.yaml; empty: the bring-up's own."),
    Parameter("tasks", [""], "Tasks by name, in turn; 'none': no task, only the services act; empty: those of the bring-up for the robot."),
    Parameter(
        "policy",
        "",
        "Policy bundle by name or path; empty: the bring-up's own for its tasks, else the one that the tasks name; none: only a device "
        "commands.",
    ),
    Parameter("namespace", "", "Namespace of the nodes; empty: the bring-up's name."),
    Parameter("composed", False, "Run all nodes in one process; page and recorder keep their own."),
    Parameter("web", False, "Serve a page that shows the robot, to this machine only."),
    Parameter("teleop", "none", "Device with which a person can take the robot over from the policy.", choices=("none", *DEVICES)),
    Parameter("use_sim_time", "auto", "Whether nodes take their time from /clock; auto: in simulation.", choices=("auto", "true", "false")),
)
# A real robot does not wait for an answer, nor run at another speed.
SIM_ONLY = ("lockstep", "rate_factor", "scene", "cameras", "episodes", "pause", "publish_clock", "viewer")
CONTROLLER_ONLY = ("controller", "command_interface", "joint_states_topic", "imu_topic", "odometry_topic", "connect_timeout")
SERVOS_ONLY = tuple(parameter.name for parameter in SERVO_BUS)
ROBOT_ONLY = (*CONTROLLER_ONLY, *SERVOS_ONLY)
ROBOT_PROCESSES = ("hardware_node", "composed_node")  # the robot is in one of them
_RECOVERY = PARAMETER.rstrip("_")  # the parameter itself, and those that begin with it
NO_POLICY = "none"
_WEB = "web_node"
_TELEOP = "teleop_node"
_RECORDER = "recorder_node"
_APART = (_WEB, _RECORDER)  # never in the process of the robot: what they do must not hold up its control loop
_LAUNCHED = ("hardware_node", "safety_node", "policy_node", "task_node", _TELEOP, _RECORDER, _WEB)
_FAST_DDS = ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE", "FASTDDS_BUILTIN_TRANSPORTS")
_SHARED_MEMORY = 256 * 1024**2  # bytes that must be free: a container may have 64 MB in all
COMMIT_PATIENCE = 300.0  # s that a recorder has to write what it has recorded; what it has not done then stays a log
_GIVEN = ("autostart", "backend", "task", "device")  # parameters that the graph settles, not whoever starts it


def _arguments() -> dict[str, Parameter]:
    """Returns the arguments by name: the bring-ups' own, then the parameters of the nodes."""
    own = {parameter.name: parameter for parameter in _OWN}
    forwarded = {parameter.name: parameter for node in _LAUNCHED for parameter in NODES[node] if parameter.name not in _GIVEN}
    return own | {name: parameter for name, parameter in forwarded.items() if name not in own}


ARGUMENTS = _arguments()
TELEOP_ONLY, RECORDER_ONLY = (
    {p.name for p in NODES[own]} - {p.name for name in _LAUNCHED if name not in (own, _WEB) for p in NODES[name]}
    for own in (_TELEOP, _RECORDER)
)


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
        UserError: a word has another form, or a key is there twice.
    """
    given: dict[str, str] = {}
    for word in words:
        key, separator, value = word.partition(":=")
        if not separator:
            raise UserError(f"'{word}' is no argument, write key:=value")
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
    chosen = bringup_named(bringup)
    for key in given:
        if key not in ARGUMENTS:
            raise unknown("argument", key, ARGUMENTS)
    values: dict[str, Any] = {name: parameter.default for name, parameter in ARGUMENTS.items()}
    values |= {key: ARGUMENTS[key].parse(text) for key, text in given.items()}
    if values["teleop"] == "browser":  # the page is the device
        if not values["web"] and "web" in given:
            raise UserError("teleop:=browser is a page, which web:=false keeps from being served; leave it out")
        values["web"] = True
    _check_effects(given, values)
    values["robot"] = values["robot"] or chosen.robot
    robot = load_robot(values["robot"], values["control_rate"])
    if values["servo_port"]:
        check_servos(robot)
        check_timeout(values["servo_timeout"], values["max_age"])
    named = [name for name in values["tasks"] if name]
    tasks = _tasks(named or tasks_for(bringup, robot.name), robot.name)
    simulated = values["mode"] == "sim"
    if chosen.policy and not values["policy"] and (not named or {t.path for t in tasks} <= {load_task(name).path for name in chosen.tasks}):
        if not simulated:
            raise UserError(
                f"the policy of bring-up '{bringup}' was trained in simulation only; on a robot name policy:={chosen.policy} or another one"
            )
        values["policy"] = chosen.policy
    if simulated:
        _same("scene", tasks)
        if tasks and "scene" in given:
            raise UserError("scene is for tasks:=none; a task brings its own scene")
        if chosen.policy and not tasks and "scene" not in given:
            values["scene"] = load_task(chosen.tasks[0]).scene  # in which the policy was trained
    policy, playing, demonstrator = _actors(values, robot, tasks, simulated)
    scene = (tasks[0].scene if tasks else values["scene"]) if simulated else None
    shared = {
        **values,
        "backend": "mujoco" if simulated else "servo_bus" if values["servo_port"] else "ros2_control",
        "task": str(tasks[0].path) if tasks and simulated else "",
        "tasks": [str(task.path) for task in tasks] if simulated and tasks else [""],
        "policy": policy,
        "device": values["teleop"],
        "demonstrator": demonstrator,
        "cameras": _cameras(values, robot, scene, playing),
    }
    if values["filter"] == "recovery" and not simulated:
        shared["max_age"] = _imu_age(values, given)
    if tasks and simulated and "command" not in given:  # a real robot stands until it is told to walk
        shared["command"] = list(tasks[0].command)
    if tasks and not simulated and "instruction" not in given:
        shared["instruction"] = tasks[0].instruction
    left_out = {
        _WEB: not values["web"],
        _TELEOP: values["teleop"] == "none",
        _RECORDER: not values["dataset"],
        "policy_node": policy == NO_POLICY,
    }
    sim_time = values["use_sim_time"] == "true" or (values["use_sim_time"] == "auto" and simulated)
    nodes = tuple(
        # Page and recorder go by what comes; /clock would wake them a hundred times a second for nothing.
        NodeDescription(
            name, {p.name: shared[p.name] for p in NODES[name] if p.name in shared} | {"use_sim_time": sim_time and name not in _APART}
        )
        for name in _LAUNCHED
        if not left_out.get(name)
    )
    return Graph(bringup, _namespace(values["namespace"] or bringup), nodes, values["composed"])


def _imu_age(values: Mapping[str, Any], given: Mapping[str, str]) -> float:
    """Returns the greatest age of what the hardware node reads, s: an older attitude would come with the stamp of newer joint states."""
    limit = float(values["recovery_imu_timeout"])
    if "max_age" in given and values["max_age"] > limit:
        raise UserError(f"max_age must be at most recovery_imu_timeout, {limit:g} s, with filter:=recovery, got {values['max_age']:g}")
    return min(limit, float(values["max_age"]))


def _check_effects(given: Mapping[str, str], values: Mapping[str, Any]) -> None:
    """Refuses arguments that would have no effect beside the others."""
    simulated = values["mode"] == "sim"
    for key in given:
        if key in (ROBOT_ONLY if simulated else SIM_ONLY) and not (key == "cameras" and values["dataset"]):
            raise UserError(f"{key} has no effect in mode:={values['mode']}; leave it out")
        if key in CONTROLLER_ONLY and values["servo_port"]:
            raise UserError(f"{key} has no effect beside servo_port:=; leave one of them out")
        if key in SERVOS_ONLY and not values["servo_port"]:
            raise UserError(f"{key} has no effect without a servo_port:=; leave it out")
        if key == "web_port" and not values["web"]:
            raise UserError("web_port has no effect without web:=true; leave it out")
        if key in TELEOP_ONLY and values["teleop"] == "none":
            raise UserError(f"{key} has no effect without teleop:=; leave it out")
        if key.startswith(_RECOVERY) and values["filter"] != "recovery":
            raise UserError(f"{key} has no effect without filter:=recovery; leave it out")
        if key in RECORDER_ONLY and not values["dataset"]:
            raise UserError(f"{key} has no effect without dataset:=; leave it out")


def _actors(values: Mapping[str, Any], robot: RobotSpec, tasks: Sequence[Task], simulated: bool) -> tuple[str, dict[str, Bundle], str]:
    """Returns the policy, the bundles that play, by what they are, and what a scripted demonstrator would play. All fit the robot."""
    policy, playing = values["policy"] or _same("policy", tasks), {}
    if not policy:
        raise UserError("without a task, name the policy:=")
    if policy != NO_POLICY:
        playing["policy"] = _playable("policy", policy, robot, simulated)
    if values["filter"] == "recovery":
        load_recovery(robot, values["recovery"], RecoverySettings.of(values))
        if not values["lockstep"]:
            check_patience(robot, values["recovery_imu_timeout"])
    elif values["filter"] != "none":
        prior = values["prior"] or values["robot"]
        make_filter(values["filter"], robot, prior, values["outside"])  # refuses here what the node would refuse
        if policy != NO_POLICY:
            _check_prior(playing["policy"], values["filter"], prior)
    demonstrator = values["demonstrator"] or policy
    if demonstrator == NO_POLICY:
        demonstrator = _same("policy", tasks) if values["teleop"] == "scripted" else ""
    if policy == NO_POLICY and robot.floating_base and values["teleop"] not in ("none", *MOVE_EVERY_JOINT):
        raise UserError(f"teleop:={values['teleop']} tells a policy of '{robot.name}' where to go; without one nothing moves its joints")
    _check_device(values, robot)
    if values["teleop"] == "scripted":
        if not demonstrator:
            raise UserError("without a task and a policy, name the demonstrator:=")
        playing["demonstrator"] = _playable("demonstrator", demonstrator, robot, simulated)
    return str(policy), playing, str(demonstrator)


def _playable(what: str, name: str, robot: RobotSpec, simulated: bool) -> Bundle:
    """Returns the bundle of a policy or demonstrator; refuses one that cannot play here."""
    bundle = load_bundle(name)
    check_fits(bundle, robot)
    check_installed(bundle)
    if bundle.spec.privileged and not simulated:
        raise UserError(f"{what} '{name}' reads simulator state, so it runs in mode:=sim only; name another {what}:=")
    return bundle


def _cameras(values: Mapping[str, Any], robot: RobotSpec, scene: str | Path | None, playing: Mapping[str, Bundle]) -> list[str]:
    """Returns the cameras to use: those named, or else those that whoever plays reads, and all where a dataset is recorded.

    Refuses a camera that does not exist, a dataset of something else, and a simulation that would keep a camera from its policy or give
    it images of another size.
    """
    given = [name for name in values["cameras"] if name]
    named = [] if given == ["none"] else given
    if scene is not None:
        find("scene", SCENE_FILES, scene)
    if not (named or values["dataset"] or any(bundle.spec.cameras for bundle in playing.values())):
        return [""]  # without a look at the scene, which takes MuJoCo
    from ros_rl.data.cameras import recorded_cameras

    cameras = recorded_cameras(robot, scene, named if given or not values["dataset"] else None)
    reads = _reads(robot, scene, playing) if scene is not None else []
    if given and (missing := [(what, name) for what, name in reads if name not in named]):
        what, name = missing[0]
        raise UserError(f"the {what} reads the camera '{name}', which cameras:= does not name; add it or leave cameras:= out")
    known = {camera.name for camera in cameras}
    cameras += recorded_cameras(robot, scene, list(dict.fromkeys(name for _, name in reads if name not in known)))
    if not values["dataset"]:
        return [camera.name for camera in cameras] or [""]
    from ros_rl.data.dataset import read_info
    from ros_rl.data.features import DatasetSpec
    from ros_rl.data.layout import INFO

    root = Path(values["dataset"]).expanduser()
    if (root / INFO).exists():
        DatasetSpec.from_info(read_info(root)).require_same(DatasetSpec.of(robot, values["fps"], cameras), root)
    return [camera.name for camera in cameras] or [""]


def _reads(robot: RobotSpec, scene: str | Path, playing: Mapping[str, Bundle]) -> list[tuple[str, str]]:
    """Returns who reads which camera; refuses a scene that does not have it at the size that is read."""
    from ros_rl.sim.build import cameras_in  # the computer of a real robot need not be able to simulate

    mend = "name another policy:=, or other tasks:= or another scene:="
    known, reads = cameras_in(robot, scene), []
    for what, bundle in playing.items():
        shapes = {key.name: key.shape for key in bundle.spec.observation}
        for name in bundle.spec.cameras:
            shape = shapes[f"images.{name}"]
            wanted = f"the {what} '{bundle.name}' reads the camera '{name}' at {'×'.join(map(str, shape[1::-1]))}"
            if name not in known:
                raise UserError(f"{wanted}, the scene '{scene}' has {', '.join(known) or 'none'}; {mend}")
            camera = known[name]
            if shape != (camera.height, camera.width, 3):
                raise UserError(f"{wanted}, in the scene '{scene}' it has {camera.width}×{camera.height}; {mend}")
            reads.append((what, name))
    return reads


def _check_device(values: Mapping[str, Any], robot: RobotSpec) -> None:
    """Refuses here what the teleoperation node would refuse of the files that it is given."""
    if values["teleop"] not in ("none", *MOVE_EVERY_JOINT) and not robot.floating_base:
        check_tool(robot, values["workspace"])
    if values["teleop"] == "joy":
        read_mapping(values["joy_mapping"], robot.read_urdf().links)
    elif values["teleop"] == "twist":
        check_release(values["on_release"])
    elif values["teleop"] == "leader":
        if not values["calibration"]:
            raise UserError("teleop:=leader needs the calibration:= of the leader arm")
        read_calibration(Path(values["calibration"]), robot)


def _check_prior(bundle: Bundle, safety_filter: str, prior: str) -> None:
    """Refuses a filter with another safe prior than the policy was trained with: it would cut what training held to be safe."""
    trained = bundle.parameters.get("prior")
    if not isinstance(trained, dict):
        return
    digest = load_prior(prior).digest()
    if digest != trained.get("digest"):
        raise UserError(
            f"policy '{bundle.name}' was trained with the safe prior {trained.get('digest')}, filter:={safety_filter} would use {digest} "
            f"of '{prior}'; give prior:= the bundle's folder"
        )


def _namespace(name: str) -> str:
    if not re.fullmatch(r"/?[A-Za-z_]\w*(/[A-Za-z_]\w*)*/?", name, re.ASCII):
        raise UserError(f"namespace '{name}' is not letters, digits and _ that begin with a letter, with / between")
    return "/" + name.strip("/")


def _tasks(names: Sequence[str], robot: str) -> list[Task]:
    if list(names) == ["none"]:
        return []
    return [load_task(name, robot) for name in names]


def _same(key: str, tasks: Sequence[Task]) -> str:
    """Returns the scene or policy that all tasks of one run share; empty without tasks."""
    found = {getattr(task, key): task.name for task in tasks}
    if len(found) > 1:
        raise UserError(f"one run has one {key}: " + ", ".join(f"task '{name}' names '{value}'" for value, name in found.items()))
    return next(iter(found), "")


def launch_description(bringup: str) -> "LaunchDescription":
    """Returns what a file in launch/ hands to `ros2 launch`: the graph of a bring-up, with its arguments declared."""
    from launch.actions import DeclareLaunchArgument, EmitEvent, LogInfo, OpaqueFunction, RegisterEventHandler
    from launch.event_handlers import OnProcessExit
    from launch.events import Shutdown
    from launch.launch_description import LaunchDescription
    from launch_ros.actions import Node

    def start(context: Any) -> list[Any]:
        asked = dict(word.split(":=", 1) for word in context.argv if ":=" in word)  # names that were not declared among them
        declared = {key: text for key, text in context.launch_configurations.items() if key in ARGUMENTS}
        described = graph(bringup, {key: text for key, text in (asked | declared).items() if text != ""})
        check_machine(described)
        actions: list[Any] = []
        for description in processes(described):
            node = Node(
                package="ros_rl",
                executable=description.executable,
                namespace=described.namespace,
                parameters=[dict(description.parameters)],
                additional_env=environment(description),
                output="screen",
                sigterm_timeout=str(COMMIT_PATIENCE if description.executable == _RECORDER else 5.0),
            )

            def ended(event: Any, context: Any, name: str = description.executable) -> list[Any]:
                if context.is_shutdown:
                    return []
                if ends_the_graph(name, event.returncode):
                    return [EmitEvent(event=Shutdown(reason=f"{name} ended"))]
                return [LogInfo(msg=obituary(name, event.returncode))]

            actions += [node, RegisterEventHandler(OnProcessExit(target_action=node, on_exit=ended))]
        return actions

    declared = [
        DeclareLaunchArgument(name, default_value="", description=f"{parameter.description} ({parameter.expected()})")
        for name, parameter in ARGUMENTS.items()
    ]
    return LaunchDescription([*declared, OpaqueFunction(function=start)])


def check_machine(described: Graph, terminal: bool = False) -> None:
    """Checks what the windows, devices and ports of a graph need, before anything is started.

    A robot that runs should not end for want of one.

    Args:
        described: the graph.
        terminal: whether a keyboard may have the terminal of whoever starts the graph.

    Raises:
        UserError: the page's port is taken or viser is missing, there is no display for MuJoCo's viewer, the servo bus has
            no port that can be used, or a keyboard would have no terminal.
    """
    for node in described.nodes:
        if node.parameters.get("device") == "keyboard" and not (terminal and not described.composed):
            mend = f"leave out teleop:= and run 'ros-rl teleop keyboard {described.bringup}' in a second terminal"
            raise UserError(f"teleop:=keyboard has no terminal of its own in a graph; {mend}")
        if node.executable == _WEB:
            port = node.parameters["web_port"]
            assert isinstance(port, int)
            check_can_serve(port)
        if node.parameters.get("servo_port"):
            check_port(str(node.parameters["servo_port"]))
        if node.parameters.get("viewer"):
            from ros_rl.sim.viewer import check_display  # the computer of a real robot need not be able to simulate

            check_display()


def processes(described: Graph) -> tuple[NodeDescription, ...]:
    """Returns one description for each process: the nodes, or the single node that composes all that may share one."""
    if not described.composed:
        return described.nodes
    together = [node for node in described.nodes if node.executable not in _APART]
    merged = {f"{node.executable}.{name}": value for node in together for name, value in node.parameters.items()}
    return (NodeDescription("composed_node", merged), *(node for node in described.nodes if node.executable in _APART))


def environment(description: NodeDescription) -> dict[str, str]:
    """Returns the variables that a process is started with besides those of its launcher.

    A process that publishes images gets memory to share that several fit into, where nobody has configured Fast DDS otherwise and
    there is room for it: many are lost without.
    """
    variables = {LAUNCHER: str(os.getpid())}
    cameras = any(description.parameters.get(f"{prefix}cameras") not in (None, [""]) for prefix in ("", "hardware_node."))
    if cameras and description.executable in ROBOT_PROCESSES and not any(name in os.environ for name in _FAST_DDS):
        with suppress(OSError):
            if shutil.disk_usage("/dev/shm").free > _SHARED_MEMORY:
                variables[_FAST_DDS[0]] = str(share_dir() / "launch/large_images.xml")
    return variables


def ends_the_graph(executable: str, code: int | None) -> bool:
    """Whether the end of a process ends the graph: without the robot's process nothing is left to run, and with bad input
    nothing has begun. When any other process dies, the guard holds the robot and the rest stays up. The page never matters.
    """
    return executable in ROBOT_PROCESSES or (executable != _WEB and code in (0, BAD_INPUT))


def obituary(executable: str, code: int | None) -> str:
    """Returns what to say of a process whose end does not end the graph."""
    goes_on = {_WEB: "the robot goes on without the page", _RECORDER: "the robot goes on, and nothing is recorded"}
    return f"{executable} ended with {code}; {goes_on.get(executable, 'the guard holds the robot')}"
