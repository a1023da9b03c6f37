"""Makes calls take the fields of a class of options as keywords."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from nsys2prv_ng.api.given import GivenSide
from nsys2prv_ng.options.kinds import list_options

Keywords = ParamSpec("Keywords")
Options = TypeVar("Options")
Answer = TypeVar("Answer")
One = TypeVar("One")
Other = TypeVar("Other")
Compared = TypeVar("Compared", covariant=True)


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


class TakesSides(Protocol[Keywords, Compared]):
    """A call on two sides, or on a list of sides."""

    def __call__(
        self,
        sides: Iterable[GivenSide] | GivenSide,
        other: GivenSide | None = None,
        *args: Keywords.args,
        **options: Keywords.kwargs,
    ) -> Compared: ...


def takes_sides(
    options: Callable[Keywords, Options],
) -> Callable[[Callable[..., Compared]], TakesSides[Keywords, Compared]]:
    """Do as `takes` does for a call on sides."""
    return lambda call: _take_keywords(call, options)


def _take_keywords(call: Callable[..., Any], options: Any) -> Callable[..., Any]:
    """Return a call whose signature and docstring list both its arguments and the keywords."""
    arguments = [p for p in inspect.signature(call).parameters.values() if p.name != "options"]
    keywords = dict(inspect.signature(options).parameters)
    described = list_options(options)
    for name in described:  # the type of what may be given
        keywords[name] = keywords[name].replace(annotation=keywords[name].annotation.__origin__.__args__[0])
    signature = inspect.Signature([*arguments, *keywords.values()])

    @wraps(call)
    def take(*given: Any, **values: Any) -> Any:
        try:
            bound = signature.bind(*given, **values).arguments
        except TypeError as error:
            several = f": give one list of {arguments[0].name}" if len(given) > len(arguments) == 1 else ""
            raise TypeError(f"{call.__name__}() {error}{several}") from None
        values_of_arguments = [bound.pop(argument.name, argument.default) for argument in arguments]
        return call(*values_of_arguments, options=options(**bound))

    lines = [f"    {name}: {option.keyword_help or option.help}\n" for name, option in described.items()]
    take.__signature__ = signature  # type: ignore[attr-defined]
    take.__doc__ = f"{call.__doc__}\n    Keywords:\n\n{''.join(lines)}"
    return take
