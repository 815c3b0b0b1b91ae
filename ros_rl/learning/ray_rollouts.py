"""Rollouts on a Ray cluster: a worker for each free CPU, each with worlds and a network of its own; weights go out with every request.

Ray itself serialises with pickle between its own processes: run it on machines that you trust.
"""

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ros_rl.errors import UserError
from ros_rl.learning.token_rollout import Request, TokenWorld, Trace, run_requests
from ros_rl.policies.bundle import Bundle
from ros_rl.policies.vla import VlaModel, own_weights
from ros_rl.robots.spec import load_robot
from ros_rl.sim.task import Task

_START_TIMEOUT = 180.0  # s; a worker imports torch and MuJoCo and builds its worlds


class Worker:
    """Runs requests in its own process."""

    def __init__(self, bundle: Bundle, tasks: Sequence[Task], copies: int):
        torch.set_num_threads(1)
        self._model = VlaModel.from_bundle(bundle)
        robot = load_robot(bundle.spec.robot)
        self._worlds = {task.name: TokenWorld(task, robot, copies, threads=1) for task in tasks}

    def ready(self) -> None:
        """Answers, so that whoever waits knows that it has started."""

    def run(self, weights: dict[str, np.ndarray], task: str, requests: Sequence[Request], temperature: float) -> list[Trace]:
        """Runs episodes with given weights."""
        with torch.no_grad():
            for name, value in own_weights(self._model.network).items():
                value.copy_(torch.from_numpy(weights[name]))
        return run_requests(self._model, self._worlds[task], requests, temperature)


class Pool:
    """Workers on the free CPUs of a cluster: of the one that ``RAY_ADDRESS`` names, or that runs on this machine, or a new one here."""

    def __init__(self, model: VlaModel, tasks: Sequence[Task], copies: int):
        """Starts them.

        Raises:
            UserError: the package is not installed, no CPU is free, or a worker does not get one in time.
            ConnectionError: a worker is lost.
        """
        if importlib.util.find_spec("ray") is None:
            raise UserError("rollouts on Ray need the package ray, which is not installed; run: pip install ray")
        import ray

        if not ray.is_initialized():
            ray.init(log_to_driver=False, include_dashboard=False)
        count = int(ray.available_resources().get("CPU", 0))
        if count < 1:
            raise UserError(f"no CPU of the Ray cluster is free, of {ray.cluster_resources().get('CPU', 0):g}; wait for what runs there")
        remote: Any = ray.remote(num_cpus=1)(Worker)
        bundle = model.to_bundle("ray", "", {}, {})
        self._ray = ray
        self._workers = [remote.remote(bundle, list(tasks), -(-copies // count)) for _ in range(count)]
        ready = [worker.ready.remote() for worker in self._workers]
        _, waiting = ray.wait(ready, num_returns=count, timeout=_START_TIMEOUT)
        if waiting:
            self.close()
            late = f"{len(waiting)} of {count} workers on Ray did not start within {_START_TIMEOUT:g} s"
            raise UserError(f"{late}; something else may have taken their CPUs")
        self._got(ready)

    def run(self, model: VlaModel, task: str, requests: Sequence[Request], temperature: float) -> list[Trace]:
        """Runs episodes, divided evenly; the answers are in the order of the requests.

        They are those of this process, but for the rounding of sums, which depends on how many episodes pass the network together.

        Raises:
            ConnectionError: a worker is lost.
        """
        weights = self._ray.put({name: value.detach().cpu().numpy() for name, value in own_weights(model.network).items()})
        parts = np.array_split(np.arange(len(requests)), len(self._workers))
        shares = zip(self._workers, parts, strict=True)
        asked = [worker.run.remote(weights, task, [requests[i] for i in part], temperature) for worker, part in shares if len(part)]
        return [trace for answer in self._got(asked) for trace in answer]

    def _got(self, asked: Sequence[Any]) -> list[Any]:
        """Returns the answers."""
        try:
            answers: list[Any] = self._ray.get(asked)
        except self._ray.exceptions.RayTaskError:
            raise  # an error in what the worker runs
        except self._ray.exceptions.RayError as error:
            first = str(error).strip().partition("\n")[0]
            raise ConnectionError(f"a worker on Ray is lost ({first}); the same command goes on from the last checkpoint") from None
        return answers

    def close(self) -> None:
        """Ends the workers."""
        for worker in self._workers:
            self._ray.kill(worker)
