"""Places that a report numbers alike."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.objects.places import Device, Places, Thread


def test_a_thread_and_a_gpu_of_one_number_are_two_places() -> None:
    """Damage makes threads with the number 0. As tuples, such a thread and GPU 0 are equal."""
    places = Places()
    thread = places.threads(np.array([0], np.int64), application=False)
    device = places.devices(np.array([0], np.int64))
    observed = places.observed_threads(np.array([0], np.int64))
    assert (thread.tolist(), device.tolist(), observed.tolist()) == ([0], [1], [0])
    assert [type(place) for place in places.all] == [Thread, Device]
    assert not places.only_observed
