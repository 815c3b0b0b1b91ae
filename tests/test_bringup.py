"""Tests of ros_rl.bringup: arguments become node graphs, and what does not fit is refused before anything starts."""

import importlib.util
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_servos import write_robot

from ros_rl.bringup import (
    ARGUMENTS,
    BRINGUPS,
    RECORDER_ONLY,
    ROBOT_ONLY,
    SERVOS_ONLY,
    TELEOP_ONLY,
    bringup_for,
    bringup_named,
    check_machine,
    ends_the_graph,
    environment,
    graph,
    obituary,
    processes,
    read_words,
    tasks_for,
)
from ros_rl.data.cameras import recorded_cameras
from ros_rl.data.dataset import DatasetWriter
from ros_rl.data.features import DatasetSpec
from ros_rl.errors import UserError
from ros_rl.nodes.parameters import NODES
from ros_rl.paths import share_dir
from ros_rl.policies.bundle import load_bundle, save_bundle
from ros_rl.robots.spec import load_robot
from ros_rl.safety.prior import load_prior
from ros_rl.sim.task import load_task


def parameters(described) -> dict[str, dict]:
    return {node.executable: dict(node.parameters) for node in described.nodes}


@pytest.mark.parametrize("bringup", BRINGUPS)
def test_every_bringup_starts_whole_nodes_with_parameters_that_they_take(bringup):
    described = graph(bringup, {})
    assert described.namespace == f"/{bringup}"
    assert [node.executable for node in described.nodes] == ["hardware_node", "safety_node", "policy_node", "task_node"]
    for name, given in parameters(described).items():
        declared = {parameter.name: parameter for parameter in NODES[name]}
        assert given.pop("use_sim_time") is True
        assert given["robot"] == BRINGUPS[bringup].robot
        for key, value in given.items():
            assert declared[key].check(value) == value
    assert parameters(described)["policy_node"]["policy"]
    assert parameters(described)["hardware_node"]["backend"] == "mujoco"


@pytest.mark.parametrize("bringup", BRINGUPS)
def test_every_bringup_has_a_launch_file(bringup):
    assert f'launch_description("{bringup}")' in (share_dir() / "launch" / f"{bringup}.launch.py").read_text()


@pytest.mark.parametrize("bringup", BRINGUPS)
def test_the_tasks_of_a_bringup_are_for_its_robot_and_the_plain_one_runs_on_a_real_one_too(bringup):
    chosen = bringup_named(bringup)
    for robot in {robot for name in chosen.tasks for robot in load_task(name).robots} | {chosen.robot}:
        assert tasks_for(bringup, robot)
        assert not load_bundle(load_task(chosen.plain_task, robot).policy).spec.privileged
    assert tasks_for(bringup, chosen.robot) == chosen.tasks


@pytest.mark.parametrize(
    ("name", "found", "tasks"),
    [
        ("quadrotor", ("quadrotor", "quadrotor"), ("quadrotor_hover",)),
        ("quadrotor_wrench", ("quadrotor", "quadrotor_wrench"), ("quadrotor_hover",)),
        ("panda", ("arm", "panda"), ("put_red_block_in_bowl", "stack_red_on_blue", "push_button")),
        ("ur5", ("arm", "ur5"), ("push_button",)),
        ("go2", ("quadruped", "go2"), ("quadruped_walk",)),
    ],
)
def test_a_robot_has_the_bringup_with_tasks_for_it(name, found, tasks):
    assert bringup_for(name) == found
    assert tasks_for(*found) == tasks
    nodes = parameters(graph(found[0], {"robot": found[1]}))
    assert nodes["hardware_node"]["robot"] == found[1]
    assert nodes["policy_node"]["policy"] == load_task(tasks[0], found[1]).policy


def test_the_tabletop_is_done_by_one_policy_with_its_cameras_unless_told_otherwise():
    def played(**given):
        nodes = parameters(graph("tabletop", given))
        return nodes.get("policy_node", {}).get("policy", ""), nodes["hardware_node"]["cameras"]

    assert played() == ("tabletop_vla", ["front", "hand"])
    assert played(tasks="none") == played(tasks="none", scene="tabletop_blocks") == ("tabletop_vla", ["front", "hand"])
    assert parameters(graph("tabletop", {"tasks": "none"}))["hardware_node"]["scene"] == load_task("open_drawer").scene
    assert played(tasks="none", policy="none", teleop="scripted", demonstrator="tabletop_vla") == ("", ["front", "hand"])
    assert played(tasks="open_drawer", policy="tabletop_vla", cameras="hand,front,wrist") == ("tabletop_vla", ["hand", "front", "wrist"])
    assert played(tasks="open_drawer") == played(tasks="open_drawer,press_button:yellow") == ("tabletop_vla", ["front", "hand"])
    for others in ("wipe", "open_drawer,wipe"):  # one that is not its own
        assert played(tasks=others) == ("tabletop_fixtures", [""])
    assert played(dataset="nowhere") == ("tabletop_vla", ["wrist", "front", "hand"])
    for cameras, missing in (("front", "hand"), ("none", "front")):
        with pytest.raises(UserError, match=f"the policy reads the camera '{missing}', which cameras:= does not name"):
            played(cameras=cameras)
    with pytest.raises(UserError, match="the demonstrator reads the camera 'hand', which cameras:= does not name"):
        played(tasks="none", policy="none", teleop="scripted", demonstrator="tabletop_vla", cameras="front")


def test_a_policy_whose_packages_are_missing_is_refused_before_anything_starts(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "transformers" else found(name, *rest))
    with pytest.raises(UserError, match=r"policy 'tabletop_vla' needs the package transformers, .* run: pip install 'ros_rl\[vla\]'"):
        graph("tabletop", {})
    assert parameters(graph("arm", {}))["policy_node"]["policy"] == "arm_pick_place"


SMALL = '<mujoco><worldbody><camera name="hind" resolution="8 8"/><frame name="robot"/></worldbody></mujoco>'


def test_a_scene_without_a_camera_that_is_read_or_with_another_size_is_refused(tmp_path):
    """`ros-rl up arm policy:=tabletop_vla` would come up and do nothing."""
    (tmp_path / "bare.xml").write_text(SMALL)
    floor = r"'tabletop_vla' reads the camera 'front' at 128×128, in the scene '{}' it has 640×480; name another policy:=, or other tasks:="
    for bringup, given, message in (
        ("tabletop", {"scene": "floor", "tasks": "none"}, floor.format("floor")),
        ("tabletop", {"tasks": "push_button", "policy": "tabletop_vla"}, floor.format("tabletop")),
        ("arm", {"policy": "tabletop_vla"}, floor.format("tabletop")),
        ("arm", {"policy": "none", "teleop": "scripted", "demonstrator": "tabletop_vla"}, floor.format("tabletop")),
        (
            "arm",
            {"policy": "tabletop_vla", "tasks": "none", "scene": str(tmp_path / "bare.xml")},
            r"at 128×128, the scene '.*bare.xml' has .*hind",
        ),
    ):
        with pytest.raises(UserError, match=message):
            graph(bringup, given)


@pytest.mark.parametrize("more", [{}, {"dataset": "nowhere"}])
def test_a_camera_that_does_not_exist_is_refused_with_a_dataset_and_without(more):
    with pytest.raises(UserError, match=r"unknown camera of arm in tabletop 'frnt', did you mean 'front'\?"):
        graph("arm", {"cameras": "wrist,frnt", **more})
    nodes = parameters(graph("quadruped", {"cameras": "follow", **more}))
    assert nodes["hardware_node"]["cameras"] == ["follow"]


@pytest.mark.parametrize("tasks", ["", "open_drawer", "none"])
def test_a_policy_that_was_trained_in_simulation_only_has_to_be_named_on_a_robot(tasks):
    given = {"mode": "robot"} | ({"tasks": tasks} if tasks else {})
    with pytest.raises(UserError, match="'tabletop' was trained in simulation only; on a robot name policy:=tabletop_vla or another one"):
        graph("tabletop", given)
    for policy in ("tabletop_vla", "arm_circle"):
        assert parameters(graph("tabletop", {**given, "policy": policy}))["policy_node"]["policy"] == policy
    assert parameters(graph("tabletop", {"mode": "robot", "tasks": "arm_circle"}))["policy_node"]["policy"] == "arm_circle"


def test_a_name_of_no_robot_and_no_bringup_lists_both():
    with pytest.raises(UserError, match=r"unknown robot 'pnda', did you mean 'panda'\? \(known: arm, cartpole, go1, .*xarm7\)"):
        bringup_for("pnda")


@pytest.mark.parametrize("name", [name for name in ARGUMENTS if any(name == p.name for table in NODES.values() for p in table)])
def test_an_argument_reaches_every_node_that_has_it(name, tmp_path):
    values = {
        float: "1.0",
        bool: str(not ARGUMENTS[name].default).lower(),
        int: "3",
        str: "test",
        list: {"command": "1.0,2.0,3.0", "workspace": "-1.0,-1.0,0.0,1.0,1.0,1.0", "cameras": "wrist,front"}.get(name, "test"),
    }
    text = {
        "robot": "arm",
        "policy": "arm_circle",
        "tasks": "arm_circle",
        "scene": "tabletop",
        "control_rate": "400.0",
        "filter": "none",
        "servo_baudrate": "57600",
        "servo_timeout": "0.01",
    }.get(name, values[type(ARGUMENTS[name].default)])
    if ARGUMENTS[name].choices and name != "filter":  # the arm has no safe prior
        text = ARGUMENTS[name].choices[-1]
    where = {"mode": "robot"} if name in ROBOT_ONLY else {"tasks": "none", "policy": "arm_circle"} if name == "scene" else {}
    if name in SERVOS_ONLY:
        where |= {"robot": str(write_robot(tmp_path)), "tasks": "none", "policy": "none", "servo_port": "test"}
    where |= {"web": "true"} if name == "web_port" else {}
    where |= {"teleop": "joy" if name == "on_release" else "twist"} if name in TELEOP_ONLY else {}
    where |= {"dataset": "nowhere"} if name in RECORDER_ONLY else {}
    bringup, task = "arm", "arm_circle"
    if name.startswith("recovery"):  # of a legged robot, and smaller limits than its recovery policy's
        bringup, task, text = "quadruped", "quadruped_stand", "quadruped_stand" if name == "recovery" else "0.1"
        where = {"filter": "recovery", "recovery": "quadruped_stand"}
    given = parameters(graph(bringup, {"tasks": task, **where, name: text}))
    owners = [node for node, table in NODES.items() if node in given and any(p.name == name for p in table)]
    assert owners
    for node in owners:
        got = given[node][name]
        assert got == ARGUMENTS[name].parse(text) or (name == "tasks" and got[0].endswith("/arm_circle.yaml"))


def test_the_mode_changes_the_backend_and_nothing_the_policy_sees():
    sim, robot = (parameters(graph("arm", {"mode": mode, "tasks": "arm_circle"})) for mode in ("sim", "robot"))
    assert (sim["hardware_node"]["backend"], robot["hardware_node"]["backend"]) == ("mujoco", "ros2_control")
    assert (sim["hardware_node"]["use_sim_time"], robot["hardware_node"]["use_sim_time"]) == (True, False)
    assert robot["task_node"]["tasks"] == [""]
    for node in ("safety_node", "policy_node"):
        differing = {key for key in sim[node] if sim[node][key] != robot[node][key]}
        assert differing <= {"use_sim_time", "instruction"}
    assert robot["policy_node"]["instruction"] == "draw circles in the air"
    assert [sim["hardware_node"][key] for key in ("max_age", "stop_after")] == [
        robot["hardware_node"][key] for key in ("max_age", "stop_after")
    ]


@pytest.mark.parametrize(
    ("text", "mode", "expected"), [("auto", "sim", True), ("auto", "robot", False), ("true", "robot", True), ("false", "sim", False)]
)
def test_use_sim_time(text, mode, expected):
    described = graph("arm", {"use_sim_time": text, "mode": mode, "tasks": "arm_circle"})
    assert all(node.parameters["use_sim_time"] is expected for node in described.nodes)


def test_with_recovery_a_real_robot_s_attitude_is_no_older_than_the_safety_node_takes():
    given = {"filter": "recovery", "recovery": "quadruped_stand", "recovery_imu_timeout": "0.03"}
    ages = [parameters(graph("quadruped", {**given, "mode": mode}))["hardware_node"]["max_age"] for mode in ("robot", "sim")]
    assert ages == [0.03, 0.1]


def test_a_task_gives_the_policy_and_the_target_velocity_unless_told_otherwise():
    own = parameters(graph("quadruped", {}))["policy_node"]
    told = parameters(graph("quadruped", {"command": "0.1,0,0", "policy": "quadruped_stand"}))["policy_node"]
    assert own["policy"] == "quadruped_walk"
    assert any(own["command"])
    assert (told["policy"], told["command"]) == ("quadruped_stand", [0.1, 0.0, 0.0])


@pytest.mark.parametrize("given", [{}, {"tasks": "quadruped_walk"}, {"tasks": "none", "policy": "quadruped_walk"}])
def test_a_real_robot_stands_until_it_is_told_to_walk(given):
    """There is no task node that ends a walk, nor a `cmd_vel` that could time out."""
    own, told = (parameters(graph("quadruped", {"mode": "robot", **given, **more}))["policy_node"] for more in ({}, {"command": "0.1,0,0"}))
    assert own["command"] == [0.0, 0.0, 0.0] and told["command"] == [0.1, 0.0, 0.0]


def test_composed_merges_the_nodes_into_one_process_and_loses_nothing():
    apart, together = graph("arm", {}), graph("arm", {"composed": "true"})
    assert processes(apart) == apart.nodes
    (process,) = processes(together)
    assert process.executable == "composed_node"
    split: dict[str, dict] = {}
    for key, value in process.parameters.items():
        node, _, name = key.partition(".")
        split.setdefault(node, {})[name] = value
    assert split == parameters(apart)


def test_a_device_is_one_more_node_in_the_process_of_the_others():
    without, described = graph("arm", {}), graph("arm", {"teleop": "scripted", "composed": "true"})
    assert described.nodes[:-1] == without.nodes
    teleop = described.nodes[-1]
    assert (teleop.executable, teleop.parameters["device"]) == ("teleop_node", "scripted")
    assert teleop.parameters["demonstrator"] == without.nodes[2].parameters["policy"]
    assert [process.executable for process in processes(described)] == ["composed_node"]


def test_a_page_as_device_is_served_by_the_graph_and_goes_by_the_same_timeout():
    given = {"web": "true", "device_timeout": "2.0"}
    described = graph("arm", {"teleop": "browser", "device_timeout": "2.0"})
    assert described == graph("arm", {"teleop": "browser", **given})
    teleop, page = described.nodes[-2:]
    assert (teleop.executable, teleop.parameters["device"], page.executable) == ("teleop_node", "browser", "web_node")
    assert teleop.parameters["device_timeout"] == page.parameters["device_timeout"] == 2.0
    with pytest.raises(UserError, match="teleop:=browser is a page, which web:=false keeps from being served"):
        graph("arm", {"teleop": "browser", "web": "false"})
    with pytest.raises(UserError, match="device_timeout has no effect without teleop:="):
        graph("arm", given)


def test_a_keyboard_has_no_terminal_in_a_graph():
    with pytest.raises(UserError, match="run 'ros-rl teleop keyboard arm' in a second terminal"):
        check_machine(graph("arm", {"teleop": "keyboard"}))


@pytest.mark.parametrize(("mode", "cameras"), [("sim", ["wrist", "front", "overhead"]), ("robot", ["wrist"])])
@pytest.mark.parametrize("composed", ["true", "false"])
def test_a_dataset_is_recorded_by_one_more_node_in_a_process_of_its_own_with_all_cameras(mode, cameras, composed):
    given = {"mode": mode, "tasks": "put_red_block_in_bowl", "policy": "arm_circle", "composed": composed}
    without, described = graph("arm", given), graph("arm", given | {"dataset": "nowhere", "fps": "20"})
    nodes = parameters(described)
    assert [*parameters(without), "recorder_node"] == list(nodes)
    assert (nodes["recorder_node"]["dataset"], nodes["recorder_node"]["fps"]) == ("nowhere", 20)
    assert nodes["recorder_node"]["cameras"] == nodes["hardware_node"]["cameras"] == cameras
    assert nodes["recorder_node"]["use_sim_time"] is False
    assert [process.executable for process in processes(described)][-1] == "recorder_node"
    assert len(processes(described)) == (2 if composed == "true" else 5)
    assert parameters(graph("arm", given | {"dataset": "nowhere", "cameras": "none"}))["recorder_node"]["cameras"] == [""]
    assert parameters(graph("arm", given | {"dataset": "nowhere", "cameras": "hand"}))["recorder_node"]["cameras"] == ["hand"]  # optional


def test_a_dataset_of_another_robot_rate_or_cameras_is_refused_with_both_sides_before_anything_starts(tmp_path):
    robot = load_robot("arm")
    with DatasetWriter(tmp_path / "set", DatasetSpec.of(robot, 30, recorded_cameras(robot, None))):
        pass
    given = {"dataset": str(tmp_path / "set"), "cameras": "wrist"}
    assert graph("arm", given)
    for bringup, changed, message in (
        ("cartpole", {"cameras": "none"}, "holds another robot: the dataset has arm, the recording cartpole"),
        ("arm", {"fps": "10"}, "holds another rate: the dataset has 30 Hz, the recording 10 Hz"),
        ("arm", {"cameras": "front"}, "holds another cameras: the dataset has wrist 640×480, the recording front 640×480"),
    ):
        with pytest.raises(UserError, match=message):
            graph(bringup, given | changed)


def test_a_process_that_publishes_images_gets_memory_that_they_fit_into(monkeypatch):
    for name in ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE", "FASTDDS_BUILTIN_TRANSPORTS"):
        monkeypatch.delenv(name, raising=False)
    free = 1024**3
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free))

    def configured(**arguments):
        return ["FASTRTPS_DEFAULT_PROFILES_FILE" in environment(node) for node in processes(graph("arm", arguments))]

    assert configured(cameras="wrist") == [True, False, False, False]
    assert configured(cameras="wrist", composed="true") == [True]
    assert configured(dataset="nowhere", composed="true") == [True, False]
    assert configured() == 4 * [False]
    assert Path(environment(graph("arm", {"cameras": "wrist"}).nodes[0])["FASTRTPS_DEFAULT_PROFILES_FILE"]).is_file()
    free = 64 * 1024**2  # a container's
    assert configured(cameras="wrist") == 4 * [False]
    free = 1024**3
    monkeypatch.setenv("FASTDDS_BUILTIN_TRANSPORTS", "UDPv4")
    assert configured(cameras="wrist") == 4 * [False]


def test_without_a_policy_a_device_alone_commands():
    given = parameters(graph("arm", {"policy": "none", "teleop": "scripted"}))
    assert list(given) == ["hardware_node", "safety_node", "task_node", "teleop_node"]
    assert given["teleop_node"]["demonstrator"] == "arm_pick_place"
    assert "policy_node" not in parameters(graph("arm", {"policy": "none"}))  # with a device in another terminal


@pytest.mark.parametrize("composed", [True, False])
@pytest.mark.parametrize("mode", ["sim", "robot"])
def test_the_page_is_one_more_node_in_a_process_of_its_own(composed, mode):
    given = {"composed": str(composed).lower(), "mode": mode, "tasks": "arm_circle"}
    without, described = graph("arm", given), graph("arm", given | {"web": "true", "web_port": "8090"})
    assert described.nodes[:-1] == without.nodes
    page = described.nodes[-1]
    assert page.executable == "web_node"
    assert processes(described) == (*processes(without), page)
    assert page.parameters["web_port"] == 8090
    assert page.parameters["backend"] == without.nodes[0].parameters["backend"]
    assert page.parameters["task"] == without.nodes[0].parameters["task"]  # so it shows the scene that is simulated
    assert page.parameters["use_sim_time"] is False


def test_what_a_window_needs_is_checked_before_anything_starts(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    check_machine(graph("arm", {}))
    with pytest.raises(UserError, match="viewer:=true needs a display"):
        check_machine(graph("arm", {"viewer": "true"}))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        with pytest.raises(UserError, match=f"^web_port {port} is taken; choose another with web_port:=PORT$"):
            check_machine(graph("arm", {"web": "true", "web_port": port}))
    check_machine(graph("arm", {"web": "true", "web_port": port}))


def test_a_serial_port_chooses_the_servo_bus_and_is_looked_at_before_anything_starts(tmp_path):
    pytest.importorskip("rustypot")
    given = {"mode": "robot", "robot": str(write_robot(tmp_path)), "tasks": "none", "policy": "none", "servo_port": "/dev/ttyNONE"}
    described = graph("arm", given | {"web": "true"})
    assert {values["backend"] for values in parameters(described).values() if "backend" in values} == {"servo_bus"}
    assert parameters(described)["hardware_node"]["servo_baudrate"] == 1_000_000
    with pytest.raises(UserError, match="there is no serial port /dev/ttyNONE"):
        check_machine(described)


@pytest.mark.parametrize(("text", "namespace"), [("left", "/left"), ("/lab/left/", "/lab/left"), ("", "/arm")])
def test_namespace(text, namespace):
    assert graph("arm", {"namespace": text}).namespace == namespace


@pytest.mark.parametrize("text", ["my robot", "9arm", "a//b", "arm-1", "/", "bras_é"])
def test_a_namespace_that_ros_does_not_take_is_refused(text):
    with pytest.raises(UserError, match=f"namespace '{text}' is not"):
        graph("arm", {"namespace": text})


REFUSED = {
    "unknown bring-up": ("amr", {}, "unknown bring-up 'amr', did you mean 'arm'? (known: arm, cartpole, quadrotor, quadruped, tabletop)"),
    "unknown argument": ("arm", {"lock_step": "true"}, "unknown argument 'lock_step', did you mean 'lockstep'?"),
    "unknown mode": ("arm", {"mode": "robt"}, "unknown value of mode 'robt', did you mean 'robot'? (known: robot, sim)"),
    "unknown robot": ("arm", {"robot": "amr"}, "unknown robot 'amr', did you mean 'arm'?"),
    "unknown task": ("arm", {"tasks": "push_buton"}, "unknown task 'push_buton', did you mean 'push_button'?"),
    "unknown policy": ("arm", {"policy": "arm_cirle"}, "unknown policy bundle 'arm_cirle', did you mean 'arm_circle'?"),
    "no number": ("arm", {"rate_factor": "fast"}, "rate_factor must be a number from 0.01 to 100, got 'fast'"),
    "out of range": ("arm", {"rate_factor": "1000"}, "rate_factor must be a number from 0.01 to 100, got 1000.0"),
    "not finite": ("arm", {"max_age": "nan"}, "max_age must be a number in s from 0.001 to 10, got nan"),
    "no whole number": ("arm", {"seed": "1.5"}, "seed must be a whole number from 0 to 2147483647, got '1.5'"),
    "a real robot at half speed": (
        "arm",
        {"mode": "robot", "rate_factor": "0.5"},
        "rate_factor has no effect in mode:=robot; leave it out",
    ),
    "lock-step with a real robot": ("arm", {"mode": "robot", "lockstep": "true"}, "lockstep has no effect in mode:=robot; leave it out"),
    "MuJoCo's window on a robot": ("arm", {"mode": "robot", "viewer": "true"}, "viewer has no effect in mode:=robot; leave it out"),
    "a port without a page": ("arm", {"web_port": "8090"}, "web_port has no effect without web:=true; leave it out"),
    "no port": ("arm", {"web": "true", "web_port": "70000"}, "web_port must be a whole number from 0 to 65535, got 70000"),
    "a controller in simulation": ("arm", {"controller": "jtc"}, "controller has no effect in mode:=sim; leave it out"),
    "a servo bus in simulation": ("arm", {"servo_port": "/dev/ttyACM0"}, "servo_port has no effect in mode:=sim; leave it out"),
    "a servo bus for a robot without servos": (
        "arm",
        {"mode": "robot", "servo_port": "/dev/ttyACM0"},
        "robot 'arm' has no servos: give each joint in its robot.yaml a servo, such as {id: 1, model: sts3215}, or leave out servo_port",
    ),
    "a controller beside a servo bus": (
        "arm",
        {"mode": "robot", "servo_port": "/dev/ttyACM0", "controller": "jtc"},
        "controller has no effect beside servo_port:=; leave one of them out",
    ),
    "a servo bus without a port": (
        "arm",
        {"mode": "robot", "servo_baudrate": "57600"},
        "servo_baudrate has no effect without a servo_port:=; leave it out",
    ),
    "two scenes": ("arm", {"scene": "floor"}, "scene is for tasks:=none; a task brings its own scene"),
    "an unknown device": ("arm", {"teleop": "mouse"}, "unknown value of teleop 'mouse'"),
    "no recovery to be set": ("quadruped", {"recovery_d": "0.1"}, "recovery_d has no effect without filter:=recovery; leave it out"),
    "no recovery policy": ("quadruped", {"filter": "recovery"}, "filter recovery: name the bundle of the recovery policy with recovery:="),
    "a recovery policy for another robot": (
        "quadruped",
        {"filter": "recovery", "recovery": "arm_circle"},
        "a recovery policy for other joints: bundle 'arm_circle' commands joint1",
    ),
    "an attitude that may be old": (
        "quadruped",
        {"filter": "recovery", "recovery": "quadruped_stand", "mode": "robot", "max_age": "0.1"},
        "max_age must be at most recovery_imu_timeout, 0.04 s, with filter:=recovery, got 0.1",
    ),
    "a bus that may be waited for too long": (
        "arm",
        {"mode": "robot", "robot": "so101", "tasks": "arm_circle", "servo_port": "/dev/ttyACM0", "servo_timeout": "0.03"},
        "servo_timeout must be at most max_age / 5, 0.02 s, got 0.03",
    ),
    "less than two control periods of patience": (
        "quadruped",
        {"filter": "recovery", "recovery": "quadruped_stand", "recovery_imu_timeout": "0.009"},
        "recovery_imu_timeout must be at least two control periods, 0.01 s at 200 Hz, got 0.009",
    ),
    "no device to be told of": ("arm", {"joy_topic": "pad"}, "joy_topic has no effect without teleop:="),
    "a publisher that dies hands back": (
        "arm",
        {"teleop": "twist", "on_release": "hand_back"},
        "on_release:=hand_back is not for twist: a publisher that died",
    ),
    "no tool to be moved": ("cartpole", {"teleop": "joy"}, "robot 'cartpole' has no tool_frame in its robot.yaml"),
    "no room to move in": ("arm", {"teleop": "joy", "workspace": "1,1,1,0,0,0"}, "workspace must be least x, y, z, then greatest"),
    "a timeout below the heartbeat": ("arm", {"teleop_timeout": "0.1"}, "teleop_timeout must be a number in s from 0.3 to 10, got 0.1"),
    "no such mapping": ("arm", {"teleop": "joy", "joy_mapping": "pad"}, "unknown joy_mapping 'pad' (known: gamepad, spacemouse, or a path"),
    "no calibration": ("arm", {"teleop": "leader"}, "teleop:=leader needs the calibration:= of the leader arm"),
    "no such calibration": ("arm", {"teleop": "leader", "calibration": "no.yaml"}, "no.yaml: cannot be read"),
    "a demonstrator of another robot": (
        "arm",
        {"teleop": "scripted", "demonstrator": "quadruped_trot"},
        "bundle 'quadruped_trot' commands the joints",
    ),
    "a demonstrator that sees too much": (
        "arm",
        {"mode": "robot", "tasks": "arm_circle", "teleop": "scripted", "demonstrator": "arm_pick_place"},
        "demonstrator 'arm_pick_place' reads simulator state, so it runs in mode:=sim only",
    ),
    "a recorder without a dataset": ("arm", {"fps": "10"}, "fps has no effect without dataset:=; leave it out"),
    "a camera that is nowhere": (
        "arm",
        {"dataset": "nowhere", "cameras": "wrist,frnt"},
        "unknown camera of arm in tabletop 'frnt', did you mean 'front'? (known: front, hand, overhead, wrist)",
    ),
    "a camera of the scene on a robot": (
        "arm",
        {"dataset": "nowhere", "cameras": "front", "mode": "robot", "policy": "arm_circle"},
        "unknown camera of arm 'front' (known: hand, wrist)",
    ),
    "nobody to do it": ("arm", {"tasks": "none", "policy": "none", "teleop": "scripted"}, "without a task and a policy, name the"),
    "a device that needs a policy": (
        "quadruped",
        {"policy": "none", "teleop": "joy"},
        "teleop:=joy tells a policy of 'quadruped' where to go; without one nothing moves its joints",
    ),
    "no truth value": ("arm", {"composed": "maybe"}, "composed must be true or false, got 'maybe'"),
    "two of three numbers": ("arm", {"command": "1,2"}, "command must be 3 numbers with commas between, got [1.0, 2.0]"),
    "task of another robot": (
        "arm",
        {"tasks": "cartpole_balance"},
        f"{share_dir() / 'sim/tasks/cartpole_balance.yaml'}: task 'cartpole_balance' is for the robot 'cartpole', not for 'arm'",
    ),
    "robot of another bring-up": (
        "arm",
        {"robot": "quadruped"},
        "bring-up 'arm' has no task for robot 'quadruped' (it has for: arm, panda, so101, ur5, xarm7); 'quadruped' has some in bring-up",
    ),
    "policy of another robot": (
        "arm",
        {"policy": "cartpole_lqr"},
        "bundle 'cartpole_lqr' commands the joints slider (robot 'cartpole'), robot",
    ),
    "rate of another robot": (
        "cartpole",
        {"control_rate": "150"},
        "bundle 'cartpole_lqr' acts at 100 Hz, which does not divide the 150 Hz",
    ),
    "privileged policy on a robot": (
        "arm",
        {"mode": "robot"},
        "policy 'arm_pick_place' reads simulator state, so it runs in mode:=sim only",
    ),
    "no task and no policy": ("arm", {"tasks": "none"}, "without a task, name the policy:="),
    "tasks in two scenes": (
        "arm",
        {"tasks": "push_button,arm_circle", "policy": "arm_circle"},
        "one run has one scene: task 'push_button' names",
    ),
    "tasks for two policies": (
        "arm",
        {"tasks": "push_button,arm_circle", "mode": "robot"},
        "one run has one policy: task 'push_button' names 'arm_pick_place', task 'arm_circle' names 'arm_circle'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(case):
    bringup, given, message = REFUSED[case]
    with pytest.raises(UserError) as caught:
        graph(bringup, given)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_without_a_task_the_services_alone_act():
    given = parameters(graph("arm", {"tasks": "none", "policy": "arm_circle"}))
    assert (given["hardware_node"]["task"], given["task_node"]["tasks"]) == ("", [""])


def test_words_are_read():
    assert read_words(["mode:=robot", "tasks:=a,b", "policy:=x:=y"]) == {"mode": "robot", "tasks": "a,b", "policy": "x:=y"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["robot"], "'robot' is no argument, write key:=value"),
        (["mode=robot"], "'mode=robot' is no argument, write key:=value"),
        (["seed:=1", "seed:=2"], "the argument seed is there twice"),
    ],
)
def test_words_of_another_form_are_refused(words, message):
    with pytest.raises(UserError) as caught:
        read_words(words)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("executable", "code", "ends"),
    [
        ("hardware_node", -9, True),
        ("composed_node", 1, True),
        ("policy_node", -9, False),
        ("policy_node", 1, False),
        ("safety_node", -9, False),
        ("policy_node", 2, True),
        ("task_node", 0, True),
        ("recorder_node", 2, True),
        ("recorder_node", -9, False),
        ("policy_node", None, False),
        ("web_node", 2, False),
        ("web_node", 0, False),
        ("web_node", -9, False),
    ],
)
def test_only_the_robots_process_bad_input_or_a_clean_end_ends_the_graph(executable, code, ends):
    assert ends_the_graph(executable, code) == ends


def test_of_a_process_that_died_it_is_said_what_remains():
    assert obituary("policy_node", -9) == "policy_node ended with -9; the guard holds the robot"
    assert obituary("web_node", 1) == "web_node ended with 1; the robot goes on without the page"


@pytest.fixture
def trained(tmp_path):
    """The folder of a cart-pole policy that holds a safe prior other than the one that ships, as a trained one does."""
    prior = replace(load_prior("cartpole"), sharpness_bound=1.0)
    bundle = load_bundle("cartpole_lqr")
    tensors = bundle.tensors | {f"prior.{name}": value for name, value in prior.to_tensors().items()}
    save_bundle(tmp_path / "trained", replace(bundle, parameters={"prior": prior.description()}, tensors=tensors))
    return tmp_path / "trained"


def test_a_filter_with_another_prior_than_the_policy_was_trained_with_is_refused(trained):
    given = {"policy": str(trained), "filter": "simplex"}
    with pytest.raises(UserError, match=r"'trained' was trained with the safe prior \w+, filter:=simplex would use \w+ of 'cartpole'"):
        graph("cartpole", given)
    assert parameters(graph("cartpole", given | {"prior": str(trained)}))["safety_node"]["prior"] == str(trained)
    assert parameters(graph("cartpole", given | {"filter": "none"}))["safety_node"]["filter"] == "none"
    assert load_prior(trained).sharpness_bound == 1.0


def test_a_bundle_without_a_prior_is_none_to_take_one_from():
    with pytest.raises(UserError, match=r"bundle 'cartpole_lqr': safe prior: A, B, .* is missing"):
        load_prior(share_dir() / "policies" / "cartpole_lqr")


@pytest.mark.parametrize(
    ("bringup", "given", "message"),
    [
        ("arm", {}, r"urdf/arm/safe_prior\.safetensors: there is no safe prior"),
        ("quadrotor", {"prior": "cartpole"}, "the safe prior commands slider; robot 'quadrotor' has rotor_1"),
        ("cartpole", {"control_rate": "200.0"}, "the safe prior is for 100 Hz, robot 'cartpole' runs at 200 Hz"),
        ("cartpole", {"prior": "/no/such.safetensors"}, r"/no/such\.safetensors: there is no safe prior"),
    ],
)
def test_a_filter_without_a_prior_that_fits_is_refused_before_anything_starts(bringup, given, message):
    with pytest.raises(UserError, match=message):
        graph(bringup, {"filter": "cbf", **given})


def test_a_filter_comes_with_its_robots_prior():
    given = parameters(graph("cartpole", {"filter": "cbf", "outside": "hold"}))["safety_node"]
    assert (given["filter"], given["prior"], given["outside"]) == ("cbf", "", "hold")
