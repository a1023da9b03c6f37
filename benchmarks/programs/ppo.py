"""PPO with a small convolutional policy on a Pong-like game written in numpy.

a: one environment, 64 steps of inference with a batch of 1 in each iteration.
b: 16 environments, 4 steps of inference with a batch of 16.
One step is one iteration: a rollout of 64 frames, then 2 epochs of 2 mini-batches of 32.
"""

import sys

import numpy as np
import torch
from clock import run
from torch import nn
from torch.cuda import nvtx
from torch.distributions import Categorical

dev = "cuda" if torch.cuda.is_available() else "cpu"
envs = {"a": 1, "b": 16}[sys.argv[1]]
frames, gamma, lam = 64, 0.99, 0.95
horizon = frames // envs
torch.manual_seed(0)
Categorical.set_default_validate_args(False)


class Game:
    """A ball that bounces and a paddle that must catch it; it shows the last four pictures."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.stack = np.zeros((4, 84, 84), np.float32)
        self.reset()

    def reset(self):
        self.x, self.y, self.dx, self.dy, self.paddle = 42.0, 10.0, self.rng.uniform(-2, 2), 2.0, 42
        return self.draw()

    def draw(self):
        x, y = int(self.x), int(self.y)
        self.stack[:3] = self.stack[1:]
        self.stack[3] = 0
        self.stack[3, y - 1 : y + 2, x - 1 : x + 2] = 1
        self.stack[3, 80:82, self.paddle - 6 : self.paddle + 6] = 0.5
        return self.stack.copy()

    def step(self, action):
        """Return the pictures, the reward and whether the game ended."""
        self.paddle = min(77, max(6, self.paddle + (0, -3, 3)[action]))
        self.x, self.y = self.x + self.dx, self.y + self.dy
        if not 2 < self.x < 81:
            self.x, self.dx = min(81, max(2, self.x)), -self.dx
        if self.y < 3:
            self.dy = -self.dy
        if self.y < 79:
            return self.draw(), 0.0, 0.0
        if abs(self.x - self.paddle) >= 7:
            return self.reset(), -1.0, 1.0
        self.y, self.dy = 78.0, -self.dy
        return self.draw(), 1.0, 0.0


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        conv = [nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU()]
        self.body = nn.Sequential(*conv, nn.Flatten(), nn.Linear(3136, 512), nn.ReLU())
        self.actor, self.critic = nn.Linear(512, 3), nn.Linear(512, 1)

    def forward(self, x):
        h = self.body(x)
        return Categorical(logits=self.actor(h)), self.critic(h)[:, 0]


def to_device(arrays):
    return torch.from_numpy(np.stack(arrays).astype(np.float32)).to(dev)


@torch.no_grad()
def rollout():
    global pictures
    steps, rewards, ends = [], [], []
    for _ in range(horizon):
        x = to_device(pictures)
        policy, value = net(x)
        action = policy.sample()
        steps.append((x, action, policy.log_prob(action), value))
        pictures, reward, end = zip(*(game.step(k) for game, k in zip(games, action.tolist())))
        rewards.append(reward)
        ends.append(end)
    rewards, ends = to_device(rewards), to_device(ends)
    after, advantage, total = net(to_device(pictures))[1], torch.zeros_like(rewards), 0
    for t in reversed(range(horizon)):
        value = steps[t][3]
        delta = rewards[t] + gamma * after * (1 - ends[t]) - value
        advantage[t] = total = delta + gamma * lam * (1 - ends[t]) * total
        after = value
    return *(torch.cat(column) for column in zip(*steps)), advantage.flatten()


def update(x, action, old, value, advantage):
    target = advantage + value
    for _ in range(2):
        for k in torch.randperm(frames).to(dev).split(32):
            policy, v = net(x[k])
            ratio = (policy.log_prob(action[k]) - old[k]).exp()
            adv = (advantage[k] - advantage[k].mean()) / (advantage[k].std() + 1e-8)
            actor = torch.max(-adv * ratio, -adv * ratio.clamp(0.9, 1.1)).mean()
            loss = actor + 0.5 * (v - target[k]).pow(2).mean() - 0.01 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()


def iteration(i):
    with nvtx.range("rollout"):
        batch = rollout()
    with nvtx.range("update"):
        update(*batch)


net = Policy().to(dev)
optimizer = torch.optim.Adam(net.parameters(), lr=2.5e-4)
games = [Game(k) for k in range(envs)]
pictures = [game.draw() for game in games]
run(iteration, 3, 15, 5)
