import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
from mcap_ros2.writer import Writer
from sample_logs import image, joint_state, ns, usual, write_log

from ros_rl.data.log import EpisodeLog, LogReader
from ros_rl.data.messages import DEFINITIONS, encode, header, header_stamp, schema_text
from ros_rl.errors import UserError


def sample(kind: str, rng: np.random.Generator) -> dict:
    """Draws values for every field of a message."""
    values = {}
    for line in DEFINITIONS[kind].splitlines():
        part, name = line.split()
        base, _, size = part.partition("[")
        count = int(size.rstrip("]") or rng.integers(0, 4)) if size else None

        def one(base: str = base) -> object:
            if base in DEFINITIONS:
                return sample(base, rng)
            return {"string": "grün " * int(rng.integers(0, 3)), "bool": True, "float64": float(rng.normal())}.get(
                base, int(rng.integers(0, 99))
            )

        values[name] = one() if count is None else [one() for _ in range(count)]
    return values


def plain(value: object) -> object:
    """Turns a decoded message into the values that it was made of."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return list(value)
    if hasattr(value, "__slots__") and not isinstance(value, (list, tuple)):
        return {name: plain(getattr(value, name)) for name in value.__slots__}
    return [plain(entry) for entry in value]


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_messages_decode_with_an_independent_decoder(kind, tmp_path):
    rng = np.random.default_rng(len(kind))
    messages = [sample(kind, rng) for _ in range(8)]
    with EpisodeLog(tmp_path / "log.mcap", {}) as log:
        for number, values in enumerate(messages):
            log.write("topic", kind, encode(kind, values), number)
    with (tmp_path / "log.mcap").open("rb") as file:
        decoded = [entry.decoded_message for entry in make_reader(file, decoder_factories=[DecoderFactory()]).iter_decoded_messages()]
    for message, values in zip(decoded, messages, strict=True):
        assert {name: plain(getattr(message, name)) for name in values} == values


def test_messages_are_encoded_as_an_independent_encoder_does(tmp_path):
    values = {"header": header(ns(1.5), "base"), "name": ["a", "bcd"], "position": [1.0, 2.0], "velocity": [], "effort": [3.0]}
    with (tmp_path / "other.mcap").open("wb") as file:
        writer = Writer(file)
        writer.write_message("t", writer.register_msgdef("sensor_msgs/msg/JointState", schema_text("sensor_msgs/JointState")), values)
        writer.finish()
    with (tmp_path / "other.mcap").open("rb") as file:
        (_, _, message), *_ = make_reader(file).iter_messages()
    assert encode("sensor_msgs/JointState", values) == message.data
    assert header_stamp(message.data) == 1_500_000_000


def test_a_fixed_array_of_the_wrong_length_is_refused():
    pose = {"position": dict.fromkeys("xyz", 0.0), "orientation": dict.fromkeys("xyzw", 0.0)}
    with pytest.raises(ValueError, match="covariance has 35 values, 36 are right"):
        encode("geometry_msgs/PoseWithCovariance", {"pose": pose, "covariance": [0.0] * 35})


def test_a_log_holds_every_topic_and_is_indexed_at_the_end(tmp_path):
    path = write_log(tmp_path / "log.mcap", usual())
    with path.open("rb") as file:
        summary = make_reader(file).get_summary()
    counts = {summary.channels[channel].topic: count for channel, count in summary.statistics.channel_message_counts.items()}
    assert counts == {"joint_states": 200, "joint_command": 200, "camera/front/image_raw": 30, "camera/wrist/image_raw": 30}
    log = LogReader(path)
    assert len(list(log.entries())) == 460 and log.whole and log.about["instruction"] == "lift"


@pytest.mark.parametrize("lost", [9, 60, 3000, 5000, 6000, 7500, 9000, 100_000])
def test_a_log_that_is_cut_off_anywhere_is_read_up_to_there(tmp_path, lost):
    path = write_log(tmp_path / "log.mcap", usual())
    everything = [(entry.topic, entry.time) for entry in LogReader(path).entries()]
    path.write_bytes(path.read_bytes()[:-lost])
    log = LogReader(path)
    rest = [(entry.topic, entry.time) for entry in log.entries()]
    assert rest == everything[: len(rest)] and not log.whole
    assert len(rest) > 300
    sizes = {len(entry.message.data) for entry in log.entries() if entry.kind == "sensor_msgs/Image"}
    assert sizes == {48 * 64 * 3, 32 * 32 * 3}  # none is half an image


_RECORD = """
import sys, time
from pathlib import Path
from sample_logs import joint_state
from ros_rl.data.log import EpisodeLog
log = EpisodeLog(Path(sys.argv[1]), {})
number = 0
while True:
    log.write("joint_states", "sensor_msgs/JointState", joint_state(float(number)), number)
    print(number, flush=True)
    number += 1
"""


@pytest.mark.parametrize("after", [1, 400])
def test_d1_sigkill_costs_no_message_that_was_written(tmp_path, after):
    path = tmp_path / "log.mcap"
    environment = os.environ | {"PYTHONPATH": ":".join([str(Path(__file__).parent), *sys.path])}
    process = subprocess.Popen([sys.executable, "-c", _RECORD, path], stdout=subprocess.PIPE, env=environment, text=True)
    said = -1
    for line in process.stdout:
        said = int(line)
        if said >= after:
            break
    process.send_signal(signal.SIGKILL)
    said = max([said, *(int(line) for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n"))])
    process.wait()
    entries = list(LogReader(path).entries())
    assert [entry.time for entry in entries] == list(range(len(entries)))
    assert len(entries) >= said + 1
    assert entries[said].message.position[0] == float(said)


def test_what_is_no_log_is_refused(tmp_path):
    (tmp_path / "log.mcap").write_bytes(b"nothing of the kind")
    with pytest.raises(UserError, match="is no log of an episode"):
        LogReader(tmp_path / "log.mcap")


def test_a_log_is_never_written_over(tmp_path):
    write_log(tmp_path / "log.mcap", [])
    with pytest.raises(FileExistsError):
        EpisodeLog(tmp_path / "log.mcap", {})


def test_unknown_types_are_refused_by_name(tmp_path):
    with (
        EpisodeLog(tmp_path / "log.mcap", {}) as log,
        pytest.raises(UserError, match=r"'sensor_msgs/JointStat', did you mean 'sensor_msgs/JointState'"),
    ):
        log.write("joint_states", "sensor_msgs/JointStat", joint_state(0.0), 0)


def test_half_an_image_is_no_message(tmp_path):
    path = tmp_path / "log.mcap"
    log = EpisodeLog(path, {})
    log.write("joint_states", "sensor_msgs/JointState", joint_state(1.0), 0)
    log.write("camera/front/image_raw", "sensor_msgs/Image", image(1.0, (48, 64), 7), 1)
    path.write_bytes(path.read_bytes()[:-4000])  # as if killed within the write; the image has 9216 bytes
    assert [entry.topic for entry in LogReader(path).entries()] == ["joint_states"]
    log.close()
