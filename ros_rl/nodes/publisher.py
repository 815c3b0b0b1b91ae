"""From observations to topics: the counterpart of `ros_rl.nodes.assembler`."""

from collections.abc import Mapping

import numpy as np
from nav_msgs.msg import Odometry
from rclpy.node import Node
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, Image, Imu, JointState

from ros_rl.hardware.interface import Observation
from ros_rl.nodes.messages import (
    COMMAND_QOS,
    IMAGE_STREAM_QOS,
    LOCKSTEP_IMAGE_QOS,
    STREAM_QOS,
    to_camera_info,
    to_image,
    to_imu,
    to_joint_state,
    to_odometry,
    to_privileged,
    to_time,
)
from ros_rl.robots.spec import Camera, RobotSpec

_CLOCK_PERIOD = 0.01  # s of simulated time between two /clock messages: every subscriber pays for each


class ObservationPublisher:
    """Publishes observations; all messages of one carry its stamp, images and camera models that of their image."""

    def __init__(self, node: Node, spec: RobotSpec, cameras: Mapping[str, Camera], simulated: bool, clock: bool, lockstep: bool):
        """Opens the topics.

        Args:
            node: takes the publishers.
            spec: the robot.
            cameras: those whose images are published.
            simulated: whether observations hold simulator state.
            clock: whether their stamps are published as simulated time.
            lockstep: whether no image may be lost.
        """
        self._spec = spec
        self._cameras = cameras
        self._joints = node.create_publisher(JointState, "joint_states", STREAM_QOS)
        self._imu = node.create_publisher(Imu, "imu/data", STREAM_QOS) if spec.imu_frame else None
        self._odometry = node.create_publisher(Odometry, "odom", STREAM_QOS) if spec.odometry else None
        self._privileged = node.create_publisher(JointState, "sim/privileged", COMMAND_QOS) if simulated else None
        self._clock = node.create_publisher(Clock, "/clock", COMMAND_QOS) if clock else None
        qos = LOCKSTEP_IMAGE_QOS if lockstep else IMAGE_STREAM_QOS
        self._images = {name: node.create_publisher(Image, f"camera/{name}/image_raw", qos) for name in cameras}
        self._camera_infos = {name: node.create_publisher(CameraInfo, f"camera/{name}/camera_info", qos) for name in cameras}
        self._frames: dict[str, int] = {}
        self._clock_stamp = -1.0

    def start_over(self) -> None:
        """Forgets what was published: the next observation is published whole, with every image."""
        self._frames.clear()
        self._clock_stamp = -1.0

    def publish(self, observation: Observation) -> None:
        """Publishes an observation; images only where they are new."""
        stamp = observation.stamp
        if self._clock is not None and not 0.0 <= stamp - self._clock_stamp < _CLOCK_PERIOD - 1e-9:
            self._clock.publish(Clock(clock=to_time(stamp)))
            self._clock_stamp = stamp
        for name, image in observation.images.items():
            self._publish_image(self._cameras[name], image, observation.image_stamps[name])
        if self._privileged is not None:
            self._privileged.publish(to_privileged(stamp, observation.privileged))
        if self._imu is not None and observation.base_quat is not None:
            self._imu.publish(to_imu(observation, self._spec.imu_frame))
        if self._odometry is not None and observation.base_position is not None:
            self._odometry.publish(to_odometry(observation))
        arrays = (observation.joint_position, observation.joint_velocity, observation.joint_effort)
        self._joints.publish(to_joint_state(stamp, self._spec.measured_names, *arrays))

    def _publish_image(self, camera: Camera, image: np.ndarray, taken: float) -> None:
        frame = camera.frame_index(taken)
        if self._frames.get(camera.name) == frame:
            return
        self._frames[camera.name] = frame
        self._images[camera.name].publish(to_image(taken, camera.frame, image))
        self._camera_infos[camera.name].publish(to_camera_info(taken, camera))
