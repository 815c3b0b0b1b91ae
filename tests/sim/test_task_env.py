"""Tests of ros_rl.sim.task_env: every registered task, swept; and that an environment goes exactly as the robot goes."""

import warnings

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from ros_rl.errors import UserError
from ros_rl.hardware.guard import Guard, GuardedRobot
from ros_rl.hardware.interface import JointCommand
from ros_rl.hardware.mujoco import MujocoRobot
from ros_rl.robots.spec import load_robot
from ros_rl.sim.gym import task_id
from ros_rl.sim.task import TaskMonitor, load_task, task_names
from ros_rl.sim.task_env import TaskEnv, TaskVectorEnv

COPIES = 3


def make(name: str, **options) -> TaskEnv:
    return gymnasium.make(task_id(name), **options).unwrapped


def make_vec(name: str, n: int = COPIES, **options) -> TaskVectorEnv:
    return gymnasium.make_vec(task_id(name), num_envs=n, vectorization_mode="vector_entry_point", **options)


def actions(env, steps: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1.2, 1.2, (steps, *env.action_space.shape)).astype(np.float32)


@pytest.mark.parametrize("name", task_names())
def test_gymnasiums_checker_has_nothing_to_say(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(name), skip_render_check=True)
        check_env(make(name, privileged=True), skip_render_check=True)


@pytest.mark.parametrize("name", task_names())
def test_a_copy_goes_bit_for_bit_as_a_single_environment(name):
    """Through ends: next-step autoreset of the batch, resets of the single ones when the batch resets. Nothing shares memory."""
    batch = make_vec(name, privileged=True, threads=2)
    singles = [make(name, privileged=True) for _ in range(COPIES)]
    seen, _ = batch.reset(seed=7)
    for copy, env in enumerate(singles):
        np.testing.assert_array_equal(seen[copy], env.reset(seed=7 + copy)[0])
    ended = np.zeros(COPIES, dtype=bool)
    kept = [seen]
    for row in actions(batch, 20):
        seen, reward, terminated, truncated, info = batch.step(row)
        for copy, env in enumerate(singles):
            if ended[copy]:
                first, told = env.reset()
                alone = (first, 0.0, False, False, told)
            else:
                alone = env.step(row[copy])
            np.testing.assert_array_equal(seen[copy], alone[0])
            assert (reward[copy], terminated[copy], truncated[copy]) == alone[1:4]
            assert {key: value[copy] for key, value in info.items() if not key.startswith("_") and info[f"_{key}"][copy]} == alone[4]
        ended = terminated | truncated
        assert np.isfinite(seen).all() and batch.observation_space.contains(seen)
        assert not any(np.shares_memory(seen, old) for old in kept)
        kept.append(seen)


@pytest.mark.parametrize("name", task_names())
def test_goes_bit_for_bit_as_the_guarded_robot(name):
    """The same commands through the guard of `MujocoRobot`, held for the control periods of an action; judged by the same monitor."""
    env = make(name, privileged=True)
    vector, spec, task = env.vector, env.vector.robot, load_task(name)
    robot = GuardedRobot(MujocoRobot(spec, task), Guard(spec))
    monitor = TaskMonitor(task, spec)
    observation = robot.reset(3)
    monitor.update(observation)
    seen, _ = env.reset(seed=3)
    for row in actions(env, 10):
        for _ in range(vector.periods):
            observation = robot.read()
            robot.write(JointCommand(spec.joint_names, vector.command(row.astype(float)), observation.stamp))
            robot.step()
        observation = robot.read()
        state = monitor.update(observation)
        seen, reward, terminated, truncated, info = env.step(row)
        np.testing.assert_array_equal(vector.sim.qpos[0], robot.robot.data.qpos)
        np.testing.assert_array_equal(vector.sim.qvel[0], robot.robot.data.qvel)
        for field, where in vector.fields.items():
            group, _, entry = field.partition(".")
            value = getattr(observation, group)
            np.testing.assert_array_equal(seen[where], np.asarray(value[entry] if entry else value, dtype=np.float32), err_msg=field)
        assert (reward, terminated, truncated) == (state.reward, state.terminated, state.truncated)
        assert info == {"is_success": state.success} | ({"reason": state.reason} if state.done else {})
        if state.done:
            break


def test_actions_are_commands_from_rest_to_the_limits():
    arm = make("push_button").vector
    np.testing.assert_array_equal(arm.command(np.zeros(8)), arm.robot.home)
    np.testing.assert_allclose(arm.command(np.ones(8)), arm.robot.upper, atol=1e-12)
    np.testing.assert_allclose(arm.command(-np.ones(8)), arm.robot.lower, atol=1e-12)
    rotors = make("quadrotor_hover").vector
    np.testing.assert_allclose(rotors.command(np.zeros(4)), 9.81 / 4, atol=1e-12)
    np.testing.assert_allclose(rotors.command(np.array([-1.0, 0.5, 1.0, 0.0])), [0.0, (2.4525 + 6.0) / 2, 6.0, 2.4525])


def test_an_action_lasts_a_whole_number_of_control_periods():
    assert make("cartpole_balance").vector.action_rate == 50.0
    fast = make("cartpole_balance", action_rate=100.0)
    fast.reset(seed=0)
    fast.step(np.zeros(1))
    assert fast.vector.sim.time[0] == pytest.approx(0.01)
    assert fast.metadata["render_fps"] == 100
    with pytest.raises(UserError, match="action_rate is 30 Hz, which does not divide the control rate of 'cartpole', 100"):
        make("cartpole_balance", action_rate=30.0)
    with pytest.raises(UserError, match="action_rate is 0 Hz, it must be above 0 and at most 100, the rate of 'cartpole'"):
        make("cartpole_balance", action_rate=0.0)
    with pytest.raises(UserError, match="action_rate is 'fast', it must be a number, in Hz"):
        make("cartpole_balance", action_rate="fast")


def test_an_action_may_last_an_episode_and_no_longer():
    limit = load_task("cartpole_balance").time_limit
    slow = make("cartpole_balance", action_rate=1 / limit)
    assert slow.vector.periods == limit * 100 and slow.metadata["render_fps"] == slow.vector.metadata["render_fps"] == 1
    with pytest.raises(
        UserError, match=f"action_rate is 1e-06 Hz, so that an action would last longer than the task's time limit, {limit:g} s"
    ):
        make("cartpole_balance", action_rate=1e-6)


def test_observations_are_in_their_space_whatever_happens():
    """A hard stop gives way by more than the space allows for: the vector is cut to the space."""
    env = make("push_button")
    env.reset(seed=0)
    env.vector.sim.qpos[0, env.vector.model.qpos] = 50.0
    seen = env.vector.observe()[0]
    assert env.observation_space.contains(seen)
    np.testing.assert_array_equal(seen[:8], env.observation_space.high[:8])


def test_simulator_state_is_seen_only_where_it_is_asked_for():
    assert not any("privileged" in field for field in make("stack_red_on_blue").vector.fields)
    env = make("stack_red_on_blue", privileged=True)
    seen, _ = env.reset(seed=0)
    pose = seen[env.vector.fields["privileged.red_block"]]
    assert 0.38 <= pose[0] <= 0.62 and -0.25 <= pose[1] <= 0.25
    assert "privileged.base_velocity" in make("quadruped_trot", privileged=True).vector.fields
    assert "base_velocity" not in make("quadruped_trot").vector.fields, "this robot has no odometry"


def test_the_seed_says_all_that_follows():
    def run() -> list[np.ndarray]:
        env = make_vec("cartpole_balance", autoreset_mode="SameStep")
        return [env.reset(seed=1)[0], *(env.step(row)[0] for row in 0.2 * np.sign(actions(env, 80)))]

    first, second = run(), run()
    np.testing.assert_array_equal(first, second)
    other = make_vec("cartpole_balance").reset(seed=2)[0]
    np.testing.assert_array_equal(first[0][1:], other[:-1])  # copy i has the seed s + i
    starts = {tuple(row) for env in [make_vec("cartpole_balance")] for _ in range(3) for row in env.reset()[0]}
    assert len(starts) == 3 * COPIES


def test_the_time_limit_truncates_and_never_terminates(tmp_path):
    """Held at rest, the quadruped neither falls nor, with a hold longer than the limit, succeeds."""
    text = load_task("quadruped_stand").path.read_text()
    path = tmp_path / "stand.yaml"
    path.write_text(text.replace("time_limit: 10.0", "time_limit: 0.1"))
    env = TaskVectorEnv(path, COPIES)
    env.reset(seed=0)
    for step in range(1, 7):
        _, reward, terminated, truncated, info = env.step(np.zeros(env.action_space.shape))
        assert not terminated.any()
        assert truncated.all() == (step == 5)
        if step == 5:
            assert list(info["reason"]) == ["time limit of 0.1 s"] * COPIES
            assert (reward > 0).all()
    assert (reward == 0).all(), "the step after an end starts the next episode"
    np.testing.assert_allclose(env.sim.time, 0.0)


def test_a_new_episode_holds_from_its_own_start(tmp_path):
    """The first one leaves the goal, comes back and runs out of time; the next one is at the goal from the beginning."""
    path = tmp_path / "stay.yaml"
    path.write_text(
        "{robots: {cartpole: cartpole_lqr}, scene: floor, instruction: stay, time_limit: 0.4, "
        "success: {hold: 0.3, all: [within: {quantity: joint_position.slider, bounds: [-0.04, 0.04]}]}}"
    )
    env = TaskEnv(path)
    env.reset(seed=0)
    pushes = [1.0] * 3 + [-1.0] * 6 + [1.0] * 3 + [0.0] * 20
    ends = [env.step(np.array([push]))[2:4] for push in pushes[:20]]
    assert ends[-1] == (False, True) and not any(map(any, ends[:-1]))
    env.reset()
    ends = [env.step(np.zeros(1))[2:4] for _ in range(15)]
    assert ends[-1] == (True, False) and not any(map(any, ends[:-1]))


def test_failure_terminates_and_says_why():
    env = make("cartpole_balance")
    env.reset(seed=0)
    state = (None, 0.0, False, False, {})
    while not (state[2] or state[3]):
        state = env.step(np.ones(1))
    assert state[2:4] == (True, False)
    assert state[4]["is_success"] is False
    assert "outside" in state[4]["reason"]
    with pytest.raises(UserError, match=r"the episode of copy 0 has ended; reset\(\) starts the next one"):
        env.step(np.ones(1))


def test_images_are_what_the_robots_camera_sees():
    env = make("push_button", cameras=["wrist"], action_rate=20.0)
    robot = MujocoRobot(load_robot("arm"), load_task("push_button"), seed=4, cameras=["wrist"])
    seen, _ = env.reset(seed=4)
    assert set(seen) == {"state", "wrist"} and env.observation_space.contains(seen)
    np.testing.assert_array_equal(seen["wrist"], robot.read().images["wrist"])
    before = seen["wrist"].copy()
    later = env.step(np.ones(8))[0]["wrist"]
    assert (later != before).any()
    np.testing.assert_array_equal(seen["wrist"], before)
    one = make("push_button", cameras="wrist")
    assert one.observation_space == env.observation_space
    np.testing.assert_array_equal(one.reset(seed=4)[0]["wrist"], before)


def test_a_picture():
    env = make("quadruped_stand", render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    assert picture.shape == (480, 640, 3) and picture.dtype == np.uint8 and picture.std() > 10
    batch = make_vec("cartpole_balance", 2, render_mode="rgb_array", render_camera="front")
    batch.reset(seed=0)
    first, second = batch.render()
    assert (first != second).any()
    assert make_vec("cartpole_balance", 2).render() is None


def test_a_window_needs_a_display(monkeypatch):
    for variable in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(UserError, match=r"render_mode 'human' needs a display .*; 'rgb_array' gives pictures without one"):
        make("cartpole_balance", render_mode="human")


def test_a_window_shows_every_state(monkeypatch):
    windows = []

    class Window:
        def __init__(self, model, read):
            self.model, self.read, self.closed = model, read, False
            windows.append(self)

        def shown(self):
            data = mujoco.MjData(self.model)
            mujoco.mj_setState(self.model, data, self.read(), mujoco.mjtState.mjSTATE_INTEGRATION)
            return data.qpos

        def close(self):
            self.closed = True

    monkeypatch.setattr("ros_rl.sim.vector_env.Viewer", Window)
    monkeypatch.setattr("ros_rl.sim.vector_env.check_display", lambda *_: None)
    env = make("cartpole_balance", render_mode="human")
    np.testing.assert_allclose(env.reset(seed=0)[0][:2], windows[0].shown(), atol=1e-6)
    for _ in range(2):
        np.testing.assert_allclose(env.step(np.ones(1))[0][:2], windows[0].shown(), atol=1e-6)
    env.close()
    assert windows[0].closed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"robot": "quadroped"}, "unknown robot 'quadroped', did you mean 'quadruped'"),
        ({"robot": "arm"}, "is for the robot 'cartpole', not for 'arm'"),
        ({"cameras": ["wrist"]}, r"unknown camera 'wrist' \(known: front, overhead\)"),
        ({"cameras": "wrist"}, r"unknown camera 'wrist' \(known: front, overhead\)"),
        ({"render_camera": "frnt"}, "unknown camera 'frnt', did you mean 'front'"),
        ({"task": "cartpole_balanse"}, "unknown task 'cartpole_balanse', did you mean 'cartpole_balance'"),
    ],
)
def test_bad_arguments_are_one_line(options, message):
    with pytest.raises(UserError, match=message):
        make("cartpole_balance", **options)


def test_bad_actions_are_one_line():
    env = make_vec("cartpole_balance")
    with pytest.raises(UserError, match=r"reset\(\) must be called before step\(\)"):
        env.step(np.zeros((3, 1)))
    env.reset(seed=0)
    with pytest.raises(UserError, match=r"actions must have the shape \(3, 1\), got \(3, 2\)"):
        env.step(np.zeros((3, 2)))
    with pytest.raises(UserError, match="the action of copy 1 is not finite"):
        env.step(np.array([[0.0], [np.nan], [0.0]]))
    single = make("cartpole_balance")
    single.reset(seed=0)
    with pytest.raises(UserError, match=r"the action must have the shape \(1,\), got \(2,\)"):
        single.step(np.zeros(2))
    with pytest.raises(UserError, match="0 copies of 'cartpole' were asked for, it must be a whole number from 1 on"):
        make_vec("cartpole_balance", 0)
