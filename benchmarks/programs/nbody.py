"""Simulation of 32768 bodies under gravity with numba's CUDA kernels and a fourth-order (Yoshida) integrator.

a: the kernels are called with NumPy arrays.
b: with arrays that stay on the device.
One step is one time step: three substeps of a force kernel and an integration kernel, and every 10th step the energy.
"""

import math
import os
import sys

os.environ["NUMBA_CUDA_WARN_ON_IMPLICIT_COPY"] = os.environ["NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS"] = "0"

import numpy as np

if not hasattr(np, "row_stack"):  # NumPy 2.5 has it no more, and numba-cuda still names it
    np.row_stack = np.vstack
from clock import run
from numba import cuda, float32

bodies, threads = 32768, 256
blocks = bodies // threads
dt, soft = np.float32(1e-4), np.float32(1e-3)
root = 2 ** (1 / 3)
outer, inner = 1 / (2 - root), -root / (2 - root)
kicks = [np.float32(dt * w) for w in (outer, inner, outer)]
drifts = [np.float32(dt * w) for w in ((outer + inner) / 2, (outer + inner) / 2, outer)]


@cuda.jit(fastmath=True)
def force(position, acceleration, soft):
    i = cuda.grid(1)
    tile = cuda.shared.array((256, 4), float32)
    x, y, z = position[i, 0], position[i, 1], position[i, 2]
    ax, ay, az = float32(0), float32(0), float32(0)
    for start in range(0, position.shape[0], 256):
        for k in range(4):
            tile[cuda.threadIdx.x, k] = position[start + cuda.threadIdx.x, k]
        cuda.syncthreads()
        for j in range(256):
            dx, dy, dz = tile[j, 0] - x, tile[j, 1] - y, tile[j, 2] - z
            squared = dx * dx + dy * dy + dz * dz + soft
            pull = tile[j, 3] / (squared * math.sqrt(squared))
            ax += dx * pull
            ay += dy * pull
            az += dz * pull
        cuda.syncthreads()
    acceleration[i, 0], acceleration[i, 1], acceleration[i, 2] = ax, ay, az


@cuda.jit(fastmath=True)
def integrate(position, velocity, acceleration, kick, drift):
    i = cuda.grid(1)
    for k in range(3):
        velocity[i, k] += acceleration[i, k] * kick
        position[i, k] += velocity[i, k] * drift


@cuda.jit(fastmath=True)
def kinetic(position, velocity, energy):
    i = cuda.grid(1)
    energy[i] = position[i, 3] * (velocity[i, 0] ** 2 + velocity[i, 1] ** 2 + velocity[i, 2] ** 2) / float32(2)


rng = np.random.default_rng(0)
position = rng.standard_normal((bodies, 4)).astype(np.float32)
position[:, 3] = 1 / bodies
velocity = rng.standard_normal((bodies, 3)).astype(np.float32) * np.float32(0.1)
acceleration = np.zeros((bodies, 3), np.float32)
energy = np.zeros(bodies, np.float32)
resident = sys.argv[1] == "b"
if resident:
    position, velocity, acceleration, energy = map(cuda.to_device, (position, velocity, acceleration, energy))
history = []


def step(i):
    for kick, drift in zip(kicks, drifts):
        force[blocks, threads](position, acceleration, soft)
        integrate[blocks, threads](position, velocity, acceleration, kick, drift)
    if i % 10 == 9:
        kinetic[blocks, threads](position, velocity, energy)
        history.append((energy.copy_to_host() if resident else energy).sum())


run(step, 3, 10, 30, cuda.synchronize)
