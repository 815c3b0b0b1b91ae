"""The parameters of every node, declared once: for ROS, for the bring-ups and for the table in docs/."""

import math
from dataclasses import dataclass

from ros_rl.errors import UserError, unknown
from ros_rl.safety.interface import FILTERS

Value = bool | int | float | str | list[str] | list[float]


@dataclass(frozen=True)
class Parameter:
    """A parameter of a node: what it means, what it may be, and what it is unless set.

    `default` also fixes the type, and of numbers in a list how many there are. `minimum` and `maximum` bound numbers,
    `choices` lists the words a string may be, `dynamic` parameters may be set while the node runs.
    """

    name: str
    default: Value
    description: str
    unit: str = ""
    minimum: float = -math.inf
    maximum: float = math.inf
    choices: tuple[str, ...] = ()
    dynamic: bool = False

    @property
    def _numbers(self) -> bool:
        return isinstance(self.default, list) and isinstance(self.default[0], float)

    def check(self, value: Value) -> Value:
        """Returns `value`, with a whole number turned to float where the parameter is one.

        Raises:
            UserError: the value has another type or is outside its range.
        """
        if isinstance(self.default, float) and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not type(self.default):
            raise UserError(f"{self.name} must be {self.expected()}, got {value!r}")
        if isinstance(value, int | float) and not isinstance(value, bool) and not self.minimum <= value <= self.maximum:
            raise UserError(f"{self.name} must be {self.expected()}, got {value}")
        if isinstance(value, list) and isinstance(self.default, list) and self._numbers:
            finite = all(isinstance(entry, int | float) and math.isfinite(entry) for entry in value)
            if len(value) != len(self.default) or not finite:
                raise UserError(f"{self.name} must be {self.expected()}, got {value}")
        if self.choices and value not in self.choices:
            raise unknown(f"value of {self.name}", str(value), self.choices)
        return value

    def parse(self, text: str) -> Value:
        """Reads a value from the command line, as in ``rate_factor:=2.0``.

        Raises:
            UserError: the text is no such value.
        """
        value: Value = text
        try:
            if isinstance(self.default, bool):
                value = {"true": True, "false": False}[text.lower()]
            elif isinstance(self.default, int):
                value = int(text)
            elif isinstance(self.default, float):
                value = float(text)
            elif isinstance(self.default, list):
                words = [word.strip() for word in text.strip("[]").split(",") if word.strip()]
                value = [float(word) for word in words] if self._numbers else words
        except (ValueError, KeyError):
            raise UserError(f"{self.name} must be {self.expected()}, got '{text}'") from None
        return self.check(value)

    def expected(self) -> str:
        """Returns in words what a value of this parameter is."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if isinstance(self.default, bool):
            return "true or false"
        if isinstance(self.default, list):
            return f"{len(self.default)} numbers with commas between" if self._numbers else "names with commas between"
        if isinstance(self.default, str):
            return "text"
        words = "a whole number" if isinstance(self.default, int) else "a number"
        if self.unit:
            words += f" in {self.unit}"
        if math.isfinite(self.minimum) and math.isfinite(self.maximum):
            return f"{words} from {_short(self.minimum)} to {_short(self.maximum)}"
        if math.isfinite(self.minimum):
            return f"{words}, at least {_short(self.minimum)}"
        return words

    def default_text(self) -> str:
        """Returns the default as one would type it; empty for an empty one."""
        if isinstance(self.default, list):
            return ", ".join(map(str, self.default))
        return str(self.default).lower() if isinstance(self.default, bool) else str(self.default)


def _short(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:g}"


ROBOT = Parameter("robot", "arm", "Robot by name, or a path to its robot.yaml.")
TASK = Parameter("task", "", "Task by name, or a path to its file; empty: none.", dynamic=True)
SEED = Parameter("seed", 0, "Seed of the first episode.", minimum=0, maximum=2**31 - 1, dynamic=True)
LOCKSTEP = Parameter("lockstep", False, "Advance only when a command answers the last observation.")
AUTOSTART = Parameter("autostart", True, "Configure and activate the node when it starts.")
CAMERAS = Parameter(
    "cameras",
    [""],
    "Cameras to use; empty: none, but in a bring-up those that the policy reads in simulation, and all of robot and scene for a dataset.",
)
CONTROL_RATE = Parameter("control_rate", 0.0, "Control loop rate; 0: the robot's own.", "Hz", minimum=0.0, maximum=2000.0)
CONTROLLER = Parameter("controller", "", "Name of the ros2_control controller that takes the commands; empty: by command interface.")
COMMAND_INTERFACE = Parameter(
    "command_interface",
    "auto",
    "How the controller takes commands: JointTrajectory or Float64MultiArray; auto: a trajectory in position mode.",
    choices=("auto", "joint_trajectory", "forward_command"),
)
JOINT_STATES_TOPIC = Parameter("joint_states_topic", "/joint_states", "Where joint states of ros2_control come from.")
IMU_TOPIC = Parameter("imu_topic", "/imu_sensor_broadcaster/imu", "Where the IMU of ros2_control comes from.")
ODOMETRY_TOPIC = Parameter("odometry_topic", "/odom", "Where the odometry estimate comes from.")
BACKEND = Parameter("backend", "mujoco", "What drives the robot.", choices=("mujoco", "ros2_control", "servo_bus"))
SERVO_BUS = (
    Parameter("servo_port", "", "Serial port of the servo bus, such as /dev/ttyACM0; in a bring-up, empty: ros2_control."),
    Parameter("servo_baudrate", 1_000_000, "Rate of the servo bus, in bits/s.", minimum=9_600, maximum=4_000_000),
    Parameter(
        "servo_timeout", 0.02, "How long to wait for an answer of a servo; at most a fifth of max_age.", "s", minimum=0.001, maximum=2.0
    ),
    Parameter("release_torque", False, "Switch the torque off when the node lets go of the arm, which may then drop; else it holds."),
)
SCENE = Parameter(
    "scene", "floor", "World of the simulation when there is no task; in a bring-up with a policy of its own, by default that of its tasks."
)

HARDWARE_NODE = (
    ROBOT,
    AUTOSTART,
    BACKEND,
    TASK,
    SCENE,
    SEED,
    LOCKSTEP,
    Parameter("rate_factor", 1.0, "Speed of simulated time against real time.", minimum=0.01, maximum=100.0),
    CONTROL_RATE,
    CAMERAS,
    Parameter(
        "max_age", 0.1, "Age after which a command or observation is stale and the target is held.", "s", minimum=0.001, maximum=10.0
    ),
    Parameter(
        "stop_after", 1.0, "Time without a usable command after which the robot is brought to rest.", "s", minimum=0.01, maximum=60.0
    ),
    Parameter("publish_clock", True, "Publish /clock in simulation."),
    Parameter("viewer", False, "Show the simulation in MuJoCo's own window; needs a display."),
    CONTROLLER,
    COMMAND_INTERFACE,
    JOINT_STATES_TOPIC,
    IMU_TOPIC,
    ODOMETRY_TOPIC,
    Parameter("connect_timeout", 10.0, "How long to wait for ros2_control to answer.", "s", minimum=0.1, maximum=600.0),
    *SERVO_BUS,
)
POLICY_NODE = (
    ROBOT,
    AUTOSTART,
    Parameter("policy", "", "Policy bundle by name, or a path to its folder."),
    SEED,
    LOCKSTEP,
    CONTROL_RATE,
    Parameter("command", [0.0, 0.0, 0.0], "Target velocity until a cmd_vel comes: forward m/s, left m/s, turn rad/s."),
    Parameter(
        "command_timeout", 0.5, "Age after which a cmd_vel is dropped and the target velocity is zero.", "s", minimum=0.01, maximum=60.0
    ),
    Parameter("instruction", "", "Instruction until one comes on task/instruction."),
    Parameter(
        "asynchronous",
        False,
        "Ask the policy ahead, in a thread: for one that takes longer than a control period or is on another machine. Not in lock-step.",
    ),
)
SAFETY_NODE = (
    ROBOT,
    AUTOSTART,
    Parameter("filter", "none", "What keeps actions safe before the guard.", choices=FILTERS),
    Parameter("prior", "", "Safe prior of the filter: a path to its file or a policy bundle, or a robot that has one; empty: its own."),
    Parameter(
        "outside",
        "fallback",
        "What acts outside the certified set: fallback: the safe action; hold: nothing, so that the guard brings the robot to rest.",
        choices=("fallback", "hold"),
    ),
    Parameter(
        "teleop_timeout",
        0.5,
        "Silence after which a teleoperation device counts as lost and the robot is held; also the greatest age of its commands.",
        "s",
        minimum=0.3,
        maximum=10.0,
    ),
    Parameter("recovery", "", "Recovery policy of filter recovery: a bundle that says its region, by name or path."),
    Parameter(
        "recovery_d",
        0.0,
        "Instability at which recovery begins; 0: the bundle's, which is the largest.",
        minimum=0.0,
        maximum=1.0,
        dynamic=True,
    ),
    Parameter("recovery_d_exit", 0.0, "Instability below which recovery may end; 0: 0.8 of d.", minimum=0.0, maximum=1.0, dynamic=True),
    Parameter(
        "recovery_tilt_limit",
        0.0,
        "Tilt that counts as a fall; 0: the bundle's, which is the largest.",
        "rad",
        minimum=0.0,
        maximum=3.15,
        dynamic=True,
    ),
    Parameter(
        "recovery_drop_limit",
        0.0,
        "Loss of height that counts as a fall; 0: the bundle's, which is the largest.",
        "m",
        minimum=0.0,
        maximum=10.0,
        dynamic=True,
    ),
    Parameter("recovery_dwell", 0.2, "Least time in recovery.", "s", minimum=0.0, maximum=10.0, dynamic=True),
    Parameter(
        "recovery_stuck_after",
        3.0,
        "Time in recovery without coming below d_exit after which the robot is held.",
        "s",
        minimum=0.01,
        maximum=60.0,
        dynamic=True,
    ),
    Parameter(
        "recovery_stop_after",
        0.2,
        "Time for which the recovery policy acts while the instability cannot be told, after which the robot is held. Without "
        "observations, commands are sent for that long, of which the guard takes those that are not older than its max_age.",
        "s",
        minimum=0.0,
        maximum=10.0,
        dynamic=True,
    ),
    Parameter(
        "recovery_imu_timeout",
        0.04,
        "Silence of actions after which the recovery policy acts, at least two control periods; in simulation also of the IMU or of all "
        "observations. On a robot, whose max_age it limits, the guard then holds the last target.",
        "s",
        minimum=0.001,
        maximum=1.0,
    ),
    LOCKSTEP,
    CONTROL_RATE,
)
DEVICES = ("keyboard", "joy", "twist", "leader", "browser", "scripted")
MOVE_EVERY_JOINT = ("leader", "scripted")  # the others move the tool, or tell a walking robot's policy where to go
DEVICE_TIMEOUT = Parameter("device_timeout", 0.5, "Silence of the device after which the robot is held.", "s", minimum=0.01, maximum=10.0)
TELEOP_NODE = (
    ROBOT,
    AUTOSTART,
    Parameter("device", "joy", "What a person commands the robot with.", choices=DEVICES),
    Parameter("device_name", "", "Name under which the device claims the robot; empty: what it is. Two of a kind need two names."),
    DEVICE_TIMEOUT,
    Parameter(
        "on_release",
        "hold",
        "What letting go of the dead-man switch does: hold the robot until it is handed back, or hand it back to the policy.",
        choices=("hold", "hand_back"),
    ),
    Parameter("linear_speed", 0.2, "Speed of the tool, or of a walking robot, at full deflection.", "m/s", minimum=0.001, maximum=5.0),
    Parameter("angular_speed", 0.8, "The same of its rotation.", "rad/s", minimum=0.001, maximum=10.0),
    Parameter(
        "workspace", [-2.0, -2.0, 0.0, 2.0, 2.0, 2.0], "Where the tool may go, in the root link: least x, y, z, greatest x, y, z, m."
    ),
    Parameter("joy_mapping", "gamepad", "What axes and buttons mean: gamepad, spacemouse, or a path to a YAML file."),
    Parameter("joy_topic", "joy", "Where the messages of a gamepad or 3D mouse come from."),
    Parameter("twist_topic", "teleop/twist", "Where twists come from."),
    Parameter(
        "twist_units",
        "unitless",
        "unitless: -1 to 1 of linear_speed and angular_speed; speed_units: m/s and rad/s.",
        choices=("unitless", "speed_units"),
    ),
    Parameter("leader_topic", "leader/joint_states", "Where the joint states of a leader arm come from."),
    Parameter("leader_switch", True, "The leader has a dead-man switch, whose state comes on leader/engaged."),
    Parameter("calibration", "", "Calibration file of a leader arm."),
    Parameter("demonstrator", "", "Policy bundle of the device scripted; empty in a bring-up: the policy's."),
    Parameter("instruction", "", "Instruction for the demonstrator until one comes on task/instruction."),
    SEED,
    LOCKSTEP,
    CONTROL_RATE,
)
TASK_NODE = (
    ROBOT,
    AUTOSTART,
    Parameter("tasks", [""], "Tasks to run in turn; empty: only the services act."),
    Parameter("episodes", 0, "Episodes to run; 0: each of the tasks once.", minimum=0),
    Parameter("pause", 0.5, "Robot time between two episodes.", "s", minimum=0.0, maximum=60.0),
    SEED,
    LOCKSTEP,
    CONTROL_RATE,
)
WEB_NODE = (
    ROBOT,
    AUTOSTART,
    BACKEND,
    TASK,
    SCENE,
    CONTROL_RATE,
    Parameter("web_port", 8080, "Port of the page on this machine; 0: any free one.", minimum=0, maximum=65535),
    DEVICE_TIMEOUT,
)
RECORDER_NODE = (
    ROBOT,
    AUTOSTART,
    BACKEND,
    TASK,
    SCENE,
    Parameter("dataset", "", "Folder of the dataset to record into, made where there is none; empty in a bring-up: nothing is recorded."),
    Parameter("dataset_episodes", 0, "Episodes to record, discarded ones left out; 0: no limit.", minimum=0),
    Parameter("fps", 30, "Rows of the dataset a second.", "Hz", minimum=1, maximum=1000),
    CAMERAS,
    Parameter("follow_task", True, "Record each episode of the task node; otherwise only recorder/start and recorder/stop act."),
    Parameter("jpeg_quality", 95, "Quality of the images in the log of the running episode; 0: as they come.", minimum=0, maximum=100),
    LOCKSTEP,
    CONTROL_RATE,
)
SIM_ROBOT_NODE = (
    ROBOT,
    Parameter("task", "", "Task whose world and initial state are simulated; empty: the scene alone."),
    SCENE,
    SEED,
    LOCKSTEP,
    CONTROL_RATE,
    CONTROLLER,
    COMMAND_INTERFACE,
    JOINT_STATES_TOPIC,
    IMU_TOPIC,
    ODOMETRY_TOPIC,
)
NODES = {
    "hardware_node": HARDWARE_NODE,
    "policy_node": POLICY_NODE,
    "safety_node": SAFETY_NODE,
    "task_node": TASK_NODE,
    "teleop_node": TELEOP_NODE,
    "web_node": WEB_NODE,
    "recorder_node": RECORDER_NODE,
    "sim_robot_node": SIM_ROBOT_NODE,
}


def table() -> str:
    """Returns the parameter page of docs/ in Markdown."""
    lines = [
        "# Parameters",
        "",
        "Generated from the declarations in `ros_rl/nodes/parameters.py` by `make docs`; do not edit.",
        "Parameters marked † may be set while the node runs. Every node also has ROS's own `use_sim_time`.",
    ]
    for node, parameters in NODES.items():
        lines += ["", f"## {node}", "", "| parameter | default | meaning | value |", "|---|---|---|---|"]
        for parameter in parameters:
            default = parameter.default_text()
            name = f"`{parameter.name}`{' †' if parameter.dynamic else ''}"
            lines.append(f"| {name} | {f'`{default}`' if default else 'empty'} | {parameter.description} | {parameter.expected()} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
