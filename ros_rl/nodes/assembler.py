"""From topics to observations: messages of one control tick are put together by their stamp."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nav_msgs.msg import Odometry
from sensor_msgs.msg import Image, Imu, JointState

from ros_rl.hardware.interface import Observation
from ros_rl.nodes.base import StackNode
from ros_rl.nodes.messages import (
    COMMAND_QOS,
    IMAGE_QOS,
    JointReader,
    from_image,
    from_imu,
    from_odometry,
    from_privileged,
    from_time,
)
from ros_rl.robots.spec import Camera, RobotSpec

_IMU = ("base_quat", "base_gyro", "base_acc")
_ODOMETRY = ("base_position", "base_velocity")
_STALE_FRAMES = 3.0
_SHORTEST_STALE = 0.2


@dataclass
class _Part:
    stamp: float
    fields: dict[str, Any]


class ObservationAssembler:
    """Subscribes to what is needed of the observation topics and calls back with whole observations.

    Joint states, IMU, odometry and simulator state of one observation carry one stamp; an observation is whole when
    all that is needed has the stamp of the newest joint state. Images come at their own rate: the newest is used. In
    lock-step an observation waits for a frame that is due; otherwise it is withheld while a frame is stale.
    """

    def __init__(
        self,
        node: StackNode,
        spec: RobotSpec,
        needs: Collection[str],
        cameras: Sequence[Camera],
        deliver: Callable[[Observation], None],
        lockstep: bool,
        patience: Mapping[str, float] | None = None,
    ):
        """Opens the subscriptions.

        Args:
            node: takes the subscriptions and says what is wrong with a message.
            spec: the robot.
            needs: names of observation fields, as in `ObservationKey.name`.
            cameras: those whose images are needed.
            deliver: called with every whole observation.
            lockstep: whether the robot waits for an answer to every observation.
            patience: sources ("imu", "odometry", "privileged") that an observation does without once they have been silent for that
                long, s; in lock-step it waits for them.
        """
        self._node = node
        self._deliver = deliver
        self._lockstep = lockstep
        self._patience = dict(patience or {}) if not lockstep else {}
        self._began = 0.0  # stamp of the first joint state of this time line
        self._missed: set[str] = set()  # sources that have not told the moment of the last joint state but one
        self._joints = JointReader(spec.measured_names)
        self._parts: dict[str, _Part] = {}
        self._images: dict[str, _Part] = {}
        self._cameras = {camera.name: camera for camera in cameras}
        groups = {name.split(".")[0] for name in needs}
        self._sources = ["joints"]
        self._subscriptions = [node.create_subscription(JointState, "joint_states", self._on_joints, COMMAND_QOS)]
        if groups & set(_IMU):
            self._subscribe("imu", Imu, "imu/data", from_imu)
        if groups & set(_ODOMETRY):
            self._subscribe("odometry", Odometry, "odom", from_odometry)
        if "privileged" in groups:
            self._subscribe("privileged", JointState, "sim/privileged", lambda message: {"privileged": from_privileged(message)})
        qos = COMMAND_QOS if lockstep else IMAGE_QOS
        for name in self._cameras:
            self._subscriptions.append(node.create_subscription(Image, f"camera/{name}/image_raw", partial(self._on_image, name), qos))

    def close(self) -> None:
        """Ends the subscriptions."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._subscriptions = []

    def _subscribe(self, source: str, kind: type, topic: str, read: Callable[[Any], dict[str, Any]]) -> None:
        self._sources.append(source)

        def receive(message: Any) -> None:
            self._parts[source] = _Part(from_time(message.header.stamp), read(message))
            self._try_deliver()

        self._subscriptions.append(self._node.create_subscription(kind, topic, receive, COMMAND_QOS))

    def _on_joints(self, message: JointState) -> None:
        fields = self._joints.fields(message)
        stamp = from_time(message.header.stamp)
        before = self._parts.get("joints")
        if before is None or stamp < before.stamp:
            self._images.clear()  # time jumped back: frames of the old time line are none of the new one's
            self._began = stamp
            self._missed.clear()
            for name in [name for name in self._patience if name in self._parts and self._parts[name].stamp > stamp]:
                del self._parts[name]
        elif stamp > before.stamp:
            self._missed = {name for name in self._patience if name not in self._parts or self._parts[name].stamp != before.stamp}
        self._parts["joints"] = _Part(stamp, fields)
        self._try_deliver()

    def _on_image(self, name: str, message: Image) -> None:
        self._images[name] = _Part(from_time(message.header.stamp), {"image": from_image(message)})
        if self._lockstep:
            self._try_deliver()

    def _try_deliver(self) -> None:
        joints = self._parts.get("joints")
        if joints is None:
            return
        there = [source for source in self._sources if source in self._parts and self._parts[source].stamp == joints.stamp]
        if len(there) < len(self._sources) and any(self._waits(source, joints.stamp) for source in set(self._sources) - set(there)):
            return
        images, image_stamps = {}, {}
        for name, camera in self._cameras.items():
            frame = self._images.get(name)
            if not self._usable(frame, camera, joints.stamp) or frame is None:
                return
            images[name], image_stamps[name] = frame.fields["image"], frame.stamp
        fields: dict[str, Any] = {}
        for source in there:
            fields |= self._parts[source].fields
        self._deliver(Observation(stamp=joints.stamp, images=images, image_stamps=image_stamps, **fields))

    def _waits(self, source: str, now: float) -> bool:
        """Whether an observation waits for a source that has not told this moment yet."""
        part = self._parts.get(source)
        heard = self._began if part is None else part.stamp  # which may be ahead of the joint states
        # One that has been silent together with the joint states, as in a pause, may be about to speak.
        gone = source in self._missed and now - heard > self._patience[source]
        if source in self._patience:
            self._node.say(source, f"silent for {now - heard:.3f} s" if gone else None)
        return not gone

    def _usable(self, frame: _Part | None, camera: Camera, now: float) -> bool:
        """Whether there is a frame, the one due in lock-step, or else one fresh enough."""
        if self._lockstep:
            return frame is not None and camera.frame_index(frame.stamp) == camera.frame_index(now)
        last = self._began if frame is None else frame.stamp
        # An image from the future is no fresher: it comes from a clock that is not the robot's.
        late = abs(now - last) > max(_STALE_FRAMES / camera.rate, _SHORTEST_STALE)
        topic = f"camera/{camera.name}/image_raw"
        trouble = f"waits for {topic}, no image has come" if frame is None else f"stale, the last image is {now - last:.2f} s old"
        self._node.say(f"camera {camera.name}", trouble if late else None)
        return frame is not None and not late
