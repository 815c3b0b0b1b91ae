"""`ros-rl doctor`: what this machine lacks, and the command that mends it. Everything is tried, not looked up."""

import importlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from ros_rl.errors import UserError
from ros_rl.nodes.environment import ros_domain
from ros_rl.sim import gl

# Modules whose name is not that of the package they come from.
_MODULES = {
    "mcap-ros2-support": "mcap_ros2",
    "opencv-python-headless": "cv2",
    "pin": "pinocchio",
    "pin-pink": "pink",
    "pycollada": "collada",
    "pyyaml": "yaml",
}
_PIP = f"{sys.executable} -m pip install"
_WHEELS = "ros-jazzy-rclpy ros-jazzy-rmw-fastrtps-cpp ros-jazzy-common-interfaces"
_MESSAGES = "diagnostic_msgs geometry_msgs lifecycle_msgs nav_msgs sensor_msgs std_msgs std_srvs trajectory_msgs"
_DISCOVERY_SECONDS = 10
_SCRIPT_SECONDS = 60
_MULTICAST = 0x1000  # IFF_MULTICAST of <linux/if.h>

_IMPORT_ROS = f"""
import importlib
from rclpy.utilities import get_rmw_implementation_identifier
for package in "{_MESSAGES}".split():
    importlib.import_module(package)
print(get_rmw_implementation_identifier())
"""

# Listens for, or says, one word on the topic given as the second argument.
_EXCHANGE = f"""
import sys, time
import rclpy
from std_msgs.msg import String
rclpy.init()
node = rclpy.create_node("doctor_" + sys.argv[1])
heard = []
if sys.argv[1] == "listen":
    node.create_subscription(String, sys.argv[2], heard.append, 1)
else:
    publisher = node.create_publisher(String, sys.argv[2], 1)
deadline = time.monotonic() + {_DISCOVERY_SECONDS}
while not heard and time.monotonic() < deadline:
    if sys.argv[1] == "say":
        publisher.publish(String(data="hello"))
    rclpy.spin_once(node, timeout_sec=0.1)
sys.exit(0 if heard else "silence")
"""


@dataclass(frozen=True)
class Finding:
    """What one check found. `mend` is the command that mends it, empty where nothing is to be done."""

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    mend: str = ""


@dataclass
class Doctor:
    """Tries everything the stack needs on this machine and gives the command that mends what does not work."""

    json: bool = False
    """Print one JSON list of findings instead of a table."""

    def run(self) -> int:
        """Runs every check; returns 1 if one failed."""
        findings = []
        for finding in examine():
            findings.append(finding)
            if not self.json:
                print(f"{finding.status:<5} {finding.name:<24} {finding.detail}", flush=True)
                if finding.mend:
                    print(f"{'':<30} → {finding.mend}", flush=True)
        if self.json:
            print(json.dumps([asdict(finding) for finding in findings], indent=2))
        return int(any(finding.status == "fail" for finding in findings))


def examine() -> Iterator[Finding]:
    """Runs every check that the checks before it leave a sense."""
    yield Finding("python", "ok", platform.python_version())
    yield from check_dependencies()
    yield check_rendering()
    rclpy, domain = check_rclpy(), check_domain()
    yield rclpy
    yield domain
    if "fail" not in (rclpy.status, domain.status):
        yield check_discovery()
    yield check_launch()
    yield check_shared_memory()
    yield check_cores()


def check_dependencies() -> Iterator[Finding]:
    """Every Python dependency can be imported."""
    try:
        requirements = metadata.requires("ros_rl") or []
    except metadata.PackageNotFoundError:
        yield Finding("ros_rl", "fail", "is not installed, only found in a source folder", f"{_PIP} -e .")
        return
    for requirement in requirements:
        if "extra ==" in requirement:
            continue
        package = re.split(r"[^\w-]", requirement)[0].lower()
        try:
            importlib.import_module(_MODULES.get(package, package))
            yield Finding(package, "ok", metadata.version(package))
        except Exception as error:  # a broken native library can raise anything
            mend = "apt-get install -y libgomp1" if "libgomp.so" in str(error) else f"{_PIP} '{requirement}'"
            yield Finding(package, "fail", f"cannot be imported: {error}", mend)


def check_rendering() -> Finding:
    """Camera images can be rendered."""
    try:
        backend = gl.choose_gl()
    except UserError as error:
        return Finding("rendering", "fail", str(error), gl.APT_COMMAND)
    if failure := gl.renders(backend):
        return Finding("rendering", "fail", f"MUJOCO_GL={backend}: {failure}", "unset MUJOCO_GL")
    return Finding("rendering", "ok", f"MUJOCO_GL={backend}")


def check_rclpy() -> Finding:
    """The ROS client library, a middleware and the message packages can be imported, from one installation only."""
    result = _run_python(_IMPORT_ROS)
    if result.returncode != 0:
        installed = sorted(Path("/opt/ros").glob("*/setup.bash"))
        mend = f"source {installed[-1]}" if installed else f"{_PIP} {_WHEELS}"
        return Finding("rclpy", "fail", _last_line(result.stderr), mend)
    sourced, wheels = os.environ.get("ROS_DISTRO"), _is_installed("ros-rclpy")
    if sourced and wheels:
        detail = f"ROS {sourced} is sourced and the wheels are installed as well; their libraries do not mix"
        return Finding("rclpy", "warn", detail, "rm -rf .venv && make setup")
    return Finding("rclpy", "ok", f"{'wheels' if wheels else f'ROS {sourced}'}, {_last_line(result.stdout)}")


def check_domain() -> Finding:
    """The ROS domain is valid and its UDP ports are not those the kernel hands out to everyone."""
    try:
        domain = ros_domain()
    except UserError as error:
        return Finding("ROS_DOMAIN_ID", "fail", str(error).removeprefix("ROS_DOMAIN_ID="), "export ROS_DOMAIN_ID=0")
    if 101 < domain < 215:
        detail = f"{domain}: its ports are among Linux's ephemeral ports and may be taken; those of 0 to 101 are not"
        return Finding("ROS_DOMAIN_ID", "warn", detail, "export ROS_DOMAIN_ID=0")
    return Finding("ROS_DOMAIN_ID", "ok", str(domain))


def check_discovery() -> Finding:
    """Two processes on this machine find each other and exchange a message."""
    topic = f"ros_rl_doctor_{os.getpid()}"
    speaker = subprocess.Popen([sys.executable, "-c", _EXCHANGE, "say", topic], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        listener = _run_python(_EXCHANGE, "listen", topic)
    finally:
        speaker.kill()
        speaker.wait()
    if listener.returncode == 0:
        return Finding("ROS discovery", "ok", "two processes exchanged a message")
    if (error := _last_line(listener.stderr)) != "silence":
        return Finding("ROS discovery", "fail", error)
    if os.environ.get("ROS_AUTOMATIC_DISCOVERY_RANGE", "").upper() == "OFF":
        return Finding("ROS discovery", "fail", "is switched off", "unset ROS_AUTOMATIC_DISCOVERY_RANGE")
    detail = f"two processes exchanged no message within {_DISCOVERY_SECONDS} s"
    if not int(Path("/sys/class/net/lo/flags").read_text(), 16) & _MULTICAST:
        return Finding("ROS discovery", "fail", f"{detail}: the loopback interface has no multicast", "sudo ip link set lo multicast on")
    return Finding("ROS discovery", "fail", f"{detail}: a firewall may drop UDP multicast", "sudo ufw allow in proto udp to 224.0.0.0/4")


def check_launch() -> Finding:
    """`ros2 launch` finds this package, where there is a `ros2 launch`."""
    ros2 = shutil.which("ros2")
    if ros2 is None:
        return Finding("ros2 launch", "ok", "not installed; 'ros-rl up' starts the same node graphs")
    found = subprocess.run([ros2, "pkg", "prefix", "ros_rl"], capture_output=True, text=True)
    if found.returncode == 0:
        return Finding("ros2 launch", "ok", f"finds ros_rl in {found.stdout.strip()}")
    # ros2 has the system's interpreter, which sees nothing of a virtual environment.
    mend = f"export AMENT_PREFIX_PATH={sys.prefix}:$AMENT_PREFIX_PATH; alias ros2='{sys.executable} {ros2}'"
    return Finding("ros2 launch", "warn", "does not find ros_rl; 'ros-rl up' starts the same node graphs", mend)


def check_shared_memory() -> Finding:
    """Fast DDS has room for images in shared memory."""
    try:
        room = os.statvfs("/dev/shm")
    except OSError:
        return Finding("/dev/shm", "warn", "is missing; images go through UDP", "mount -t tmpfs tmpfs /dev/shm")
    mebibytes = room.f_bavail * room.f_frsize >> 20
    if mebibytes < 64:
        return Finding("/dev/shm", "warn", f"only {mebibytes} MiB free for images", "mount -o remount,size=512M /dev/shm")
    return Finding("/dev/shm", "ok", f"{mebibytes} MiB free")


def check_cores() -> Finding:
    """The control loop has a core beside those that learn."""
    cores = len(os.sched_getaffinity(0))
    if cores == 1:
        return Finding("processor cores", "warn", "1: a real-time loop will miss deadlines beside other work")
    return Finding("processor cores", "ok", str(cores))


def _run_python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in a process of its own: what crashes there does not take the doctor down."""
    command = [sys.executable, "-c", script, *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_SCRIPT_SECONDS)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer within {_SCRIPT_SECONDS} s")


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else "no output"


def _is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True
