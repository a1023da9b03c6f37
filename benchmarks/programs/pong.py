"""Double Q-learning from frames, off-policy: eight small ball games, a replay buffer of 20,000 frames, batches of 256.

a: the buffer is a NumPy array; every batch is gathered there and copied from pageable memory. b: the buffer lies on
the GPU, which gets the eight new frames only. One step: eight moves and one update; every 10th copies the weights to
the target network.
"""

import copy
import os
import sys

import numpy as np
import torch
from clock import run
from torch import nn
from torch.cuda import nvtx
from torch.nn import functional as F

mode, dev = sys.argv[1], "cuda" if torch.cuda.is_available() else "cpu"
GAMES, SIZE, BATCH = 8, 2500, 8 if os.environ.get("QUICK") else 256
rng = np.random.default_rng(0)


class Games:
    """Balls that fall on paddles: frames of 84 x 84 bytes, three actions."""

    def __init__(self):
        self.ball, self.paddle = rng.integers(4, 80, (GAMES, 2)), np.full(GAMES, 40)

    def play(self, actions):
        self.paddle = np.clip(self.paddle + 3 * (actions - 1), 6, 77)
        self.ball[:, 0] += 2
        down = self.ball[:, 0] > 80
        reward = np.where(down, np.where(abs(self.ball[:, 1] - self.paddle) < 7, 1.0, -1.0), 0.0).astype(np.float32)
        self.ball[down] = np.stack([np.full(down.sum(), 4), rng.integers(4, 80, down.sum())], 1)
        frames = np.zeros((GAMES, 84, 84), np.uint8)
        for frame, (row, column), paddle in zip(frames, self.ball, self.paddle, strict=True):
            frame[row - 2 : row + 2, column - 2 : column + 2] = 255
            frame[81:83, paddle - 6 : paddle + 6] = 160
        return frames, reward, down


class Replay:
    """The last SIZE frames, actions, rewards and ends of each game, as arrays of one kind (NumPy or torch)."""

    def __init__(self, convert):
        self.convert, self.at = convert, 0
        self.frames = convert(rng.integers(0, 256, (SIZE, GAMES, 84, 84), dtype=np.uint8))
        self.rest = convert(rng.integers(0, 2, (SIZE, GAMES, 3)).astype(np.float32))

    def add(self, actions, frames, reward, done):
        self.frames[self.at] = self.convert(frames)
        self.rest[self.at] = self.convert(np.stack([actions, reward, done], 1).astype(np.float32))
        self.at = (self.at + 1) % SIZE

    def last(self):
        return (
            torch.as_tensor(self.frames[self.convert(np.arange(self.at - 4, self.at) % SIZE)]).to(dev).transpose(0, 1)
        )

    def sample(self):
        when, game = rng.integers(0, SIZE - 5, (BATCH, 1)), rng.integers(0, GAMES, (BATCH, 1))
        frames = self.frames[self.convert(when + np.arange(5)), self.convert(game)]
        rest = self.rest[self.convert(when[:, 0] + 4), self.convert(game[:, 0])]
        return torch.as_tensor(frames).to(dev), torch.as_tensor(rest).to(dev)


torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(4, 32, 8, 4),
    nn.ReLU(),
    nn.Conv2d(32, 64, 4, 2),
    nn.ReLU(),
    nn.Conv2d(64, 64, 3),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(3136, 512),
    nn.ReLU(),
    nn.Linear(512, 3),
).to(dev)
target = copy.deepcopy(net).requires_grad_(False)
optimizer = torch.optim.Adam(net.parameters(), 1e-4)
games, replay = Games(), Replay(np.asarray if mode == "a" else lambda array: torch.as_tensor(array).to(dev))


def step(i):
    with nvtx.range("train_iter"):
        with nvtx.range("act"), torch.no_grad():
            actions = net(replay.last().float() / 255).argmax(1).cpu().numpy()
        actions = np.where(rng.random(GAMES) < 0.1, rng.integers(0, 3, GAMES), actions)
        replay.add(actions, *games.play(actions))
        with nvtx.range("learn"):
            frames, rest = replay.sample()
            frames, action, reward, alive = frames.float() / 255, rest[:, :1].long(), rest[:, 1], 1 - rest[:, 2]
            with torch.no_grad():
                best = net(frames[:, 1:]).argmax(1, keepdim=True)
                goal = reward + 0.99 * alive * target(frames[:, 1:]).gather(1, best)[:, 0]
            loss = F.smooth_l1_loss(net(frames[:, :4]).gather(1, action)[:, 0], goal)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if i % 10 == 9:
            target.load_state_dict(net.state_dict())


run(step, warm=15, timed=60, recorded=20)
