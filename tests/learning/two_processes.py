"""Run by torchrun, as each of two processes: an update of behaviour cloning and one of GRPO, and both commands from end to end.

The first argument is the folder for what the process has in the end; the others are the words of the two commands, with -- between them.
"""

import sys
from dataclasses import replace
from pathlib import Path

from safetensors.torch import save_file
from token_samples import make_model, make_task
from torch import distributed

from ros_rl.learning import bc, grpo, workers
from ros_rl.learning.bc import BcArgs, Cloner
from ros_rl.learning.demonstrations import Demonstrations
from ros_rl.learning.grpo import Grpo, GrpoArgs
from ros_rl.policies.vla import digest, own_weights

BC = BcArgs(steps=10, batch=6, colour=0.0, state_noise=0.0)
GRPO = GrpoArgs(group=2, groups=2, epochs=1, minibatches=1, learning_rate=1e-3, copies=4)


def mixed(traces, rank):
    """Of the first process both groups say something; of the second only the first, and of that an episode is cut short."""
    for number, trace in enumerate(traces):
        trace.success = number % 2 == 0 and (rank == 0 or number < 2)
    if rank == 1:
        for name in ("images", "position", "tokens", "log_prob", "entropy"):
            del getattr(traces[0], name)[1:]
    return traces


def learn(learner, traces):
    """Takes an update of GRPO."""
    batch, decisions, level, weight, _ = learner.prepare(traces)
    return learner.learn(batch, decisions, level, weight)


def state_of(network):
    """Returns weights and gradients."""
    gradients = {f"gradient.{name}": value.grad.clone() for name, value in network.named_parameters() if value.grad is not None}
    return {name: value.clone() for name, value in own_weights(network).items()} | gradients


def main(folder, cloning, improving):
    """Does all this as one process of several."""
    rank, count = workers.join()
    model = make_model(seed=rank)  # two processes need not draw the same weights
    workers.share_weights(model.network)
    Cloner(model, Demonstrations.load(folder / "demos"), BC, rank).update()
    save_file(state_of(model.network), folder / f"bc{rank}.safetensors")

    task = make_task(folder / f"task{rank}")
    learner = Grpo(make_model(), [task], replace(GRPO, seed=1), (rank, count))
    learn(learner, mixed(learner.sample(), rank))
    save_file(state_of(learner.model.network), folder / f"grpo{rank}.safetensors")

    parted = Grpo(make_model(), [task], replace(GRPO, seed=2, minibatches=2), (rank, count))
    (folder / f"agreement{rank}").write_text(str(learn(parted, mixed(parted.sample(), rank))["agreement"]))
    parted.rollouts.close()

    # Where all groups ended alike in both processes, momentum moves nothing; where they did in one, that one follows.
    before = digest(learner.model.network)
    dead = learner.sample()
    for trace in dead:
        trace.success = True
    learner.sample = lambda: dead
    figures = learner.step()
    assert "gradient_norm" not in figures and digest(learner.model.network) == before
    if rank == 0:
        del learner.sample
        alive = mixed(learner.sample(), 0)
        learner.sample = lambda: alive
    learner.step()
    assert learner._dead == 0
    learner.rollouts.close()
    save_file(state_of(learner.model.network), folder / f"later{rank}.safetensors")

    assert bc.main(cloning) == 0
    distributed.barrier()  # the first has written the bundle
    assert grpo.main(improving) == 0


if __name__ == "__main__":
    words = sys.argv[2:]
    main(Path(sys.argv[1]), words[: words.index("--")], words[words.index("--") + 1 :])
