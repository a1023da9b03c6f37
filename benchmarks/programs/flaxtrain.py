"""Training of a residual MLP in JAX and Flax with a jitted train step.

a: the metrics are read on the host in every step, and the schedule's values are put on the device one by one.
b: the metrics are read every 20th step, and the schedule is computed in the train step.
One step is one train step on 4096 noisy pictures of 28 x 28.
"""

import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_autotune_level=0")

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from clock import run

eager = sys.argv[1] == "a"
batch, pixels, classes, width = 4096, 784, 10, 1024
rng = np.random.default_rng(0)


class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Dense(width)(x)
        for _ in range(5):
            x = x + nn.Dense(width)(nn.gelu(nn.LayerNorm()(x)))
        return nn.Dense(classes)(x)


def schedule(i, numbers):
    """Values of step i: learning rate, decay, label smoothing, temperature, dropped pixels, clipping."""
    warm = numbers.minimum(1.0, (i + 1) / 10)
    return 1e-3 * warm, 1e-4 * warm, 0.1 * warm, 1.0 + 0.1 / warm, 0.2 * warm, 1.0 / warm


model = Model()
optimizer = optax.scale_by_adam()


@jax.jit
def init(key):
    params = model.init(key, jnp.zeros((1, pixels)))
    return params, optimizer.init(params), jnp.zeros((), jnp.int32)


@jax.jit
def train_step(state, x, y, values):
    params, moments, i = state
    rate, decay, smoothing, temperature, dropped, clip = schedule(i, jnp) if values is None else values
    kept = jax.random.uniform(jax.random.fold_in(jax.random.key(1), i), x.shape) > dropped

    def loss_of(params):
        logits = model.apply(params, x * kept) / temperature
        target = optax.smooth_labels(jax.nn.one_hot(y, classes), smoothing)
        return optax.softmax_cross_entropy(logits, target).mean(), logits

    (loss, logits), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
    norm = optax.global_norm(grads)
    grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, clip / norm), grads)
    updates, moments = optimizer.update(grads, moments)
    params = jax.tree.map(lambda p, u: p - rate * (u + decay * p), params, updates)
    accuracy = (logits.argmax(-1) == y).mean()
    metrics = {"loss": loss, "accuracy": accuracy, "norm": norm, "largest": jnp.abs(logits).max()}
    return (params, moments, i + 1), metrics


pictures = rng.random((4 * batch, pixels), np.float32)
noise = 0.1 * rng.random((2 * batch, pixels), np.float32)
labels = rng.integers(0, classes, 4 * batch)
state = init(jax.random.key(0))
history = []


def step(i):
    global state
    rows = slice(i % 4 * batch, (i % 4 + 1) * batch)
    x = jax.device_put(pictures[rows] + noise[i * 37 % batch :][:batch])
    y = jax.device_put(labels[rows])
    values = [jax.device_put(np.float32(v)) for v in schedule(i, np)] if eager else None
    state, metrics = train_step(state, x, y, values)
    if eager or i % 20 == 19:
        history.append({name: float(value) for name, value in metrics.items()})


run(step, 3, 6, 20, lambda: jax.block_until_ready(state))
