"""Makes calls take the fields of a class of options as keywords."""

from __future__ import annotations

import inspect as introspection
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from nsys2prv_ng.options import describe_keywords, list_options

Keywords = ParamSpec("Keywords")
Options = TypeVar("Options")
Answer = TypeVar("Answer")
One = TypeVar("One")
Other = TypeVar("Other")


def takes(
    options: Callable[Keywords, Options],
) -> Callable[[Callable[[One, Options], Answer]], Callable[Concatenate[One, Keywords], Answer]]:
    """Make a call that takes a class of options take the fields of that class as keywords, with their types."""
    return lambda call: _take_keywords(call, options)


def takes_two(
    options: Callable[Keywords, Options],
) -> Callable[[Callable[[One, Other, Options], Answer]], Callable[Concatenate[One, Other, Keywords], Answer]]:
    """Do as `takes` does for a call with two arguments before its keywords."""
    return lambda call: _take_keywords(call, options)


def _take_keywords(call: Callable[..., Any], options: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call with the signature, and the docstring, of both its own arguments and the keywords."""
    own = [p for p in introspection.signature(call).parameters.values() if p.name != "options"]
    described = list_options(options)
    keywords = [
        parameter.replace(annotation=described[name][0] if name in described else parameter.annotation)
        for name, parameter in introspection.signature(options).parameters.items()
    ]
    signature = introspection.Signature([*own, *keywords])

    @wraps(call)
    def take(*arguments: Any, **values: Any) -> Any:
        try:
            given = signature.bind(*arguments, **values).arguments
        except TypeError as error:
            raise TypeError(f"{call.__name__}() {error}") from None
        return call(*(given.pop(parameter.name) for parameter in own), options(**given))

    take.__signature__ = signature  # type: ignore[attr-defined]
    take.__doc__ = f"{call.__doc__}\n    Keywords:\n\n{describe_keywords(options)}\n"
    return take
