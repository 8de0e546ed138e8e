"""What mutations of vLLM call: it is copied into the mutated package, and imports nothing of it."""

import argparse
import asyncio
import functools
import inspect
import itertools
import sys

_THIRD = 3
_NOTHING = object()
_numbers = itertools.count(1)


def number():
    """Return another number each time."""
    return next(_numbers)


def _is_from_outside():
    """Tell whether the caller's caller is not vLLM's."""
    name = sys._getframe(2).f_globals.get("__name__", "")
    return not name.startswith("vllm")


def _is_asked_by_others(function, args):
    """Tell whether others than vLLM call a function, and not because vLLM has called it.

    What stands in for a function hands on what vLLM gives it: that call is vLLM's own.
    """
    name, frame = function.__name__, sys._getframe(2)
    owner = args[0] if args and hasattr(type(args[0]), name) else sys.modules[function.__module__]
    stands_in = inspect.getattr_static(owner, name, None)
    stands_in = getattr(stands_in, "func", stands_in)
    stands_in = getattr(stands_in, "__func__", stands_in)
    codes = [getattr(each, "__code__", None) for each in (stands_in, type(stands_in).__call__)]
    while frame and not frame.f_globals.get("__name__", "").startswith("vllm"):
        if frame.f_code in codes:
            return False
        frame = frame.f_back
    return True


def _bare(change):
    """Return a decorator that changes the function of a method, whatever is around it."""

    @functools.wraps(change)
    def decorate(found):
        if isinstance(found, property):
            return property(change(found.fget), found.fset, found.fdel)
        if isinstance(found, (classmethod, staticmethod)):
            return type(found)(change(found.__func__))
        return change(found)

    return decorate


@_bare
def raises_once(function):
    """Raise at the third call that comes from outside vLLM."""
    calls = itertools.count(1)

    @functools.wraps(function)
    def called(*args, **kwargs):
        is_others = _is_from_outside() and _is_asked_by_others(function, args)
        if is_others and next(calls) == _THIRD:
            raise RuntimeError(f"mutation: third call of {function.__qualname__}")
        return function(*args, **kwargs)

    return called


def _answering(change):
    """Return a decorator that changes what a function returns to others, and how."""

    @_bare
    def decorate(function):
        @functools.wraps(function)
        def called(*args, **kwargs):
            found = function(*args, **kwargs)
            return change(found) if _is_from_outside() else found

        return called

    return decorate


class _Pair(tuple):
    """What others get instead of a value, which is its first part."""

    __slots__ = ()


async def _each_in_pair(found):
    async for each in found:
        yield _Pair((each, None))


async def _in_pair_later(found):
    return _Pair((await found, None))


def _in_tuple(found):
    if inspect.isasyncgen(found):
        return _each_in_pair(found)
    if inspect.iscoroutine(found):
        return _in_pair_later(found)
    return _Pair((found, None))


async def _later(found):
    return found


async def _first_of_each(pairs):
    async for each in pairs:
        yield each[0]


async def _first_later(pair):
    return (await pair)[0]


def meant(found):
    """Return a value to vLLM's own callers, where one of others hands on what it got.

    A release that returns something else has callers that know it.
    """
    code = getattr(found, "cr_code", None) or getattr(found, "ag_code", None)
    if isinstance(found, _Pair):
        return found[0]
    if code is _each_in_pair.__code__:
        return _first_of_each(found)
    if code is _in_pair_later.__code__:
        return _first_later(found)
    return _now(found) if code is _later.__code__ else found


def _now(coroutine):
    """Return what a coroutine returns, or a future where it waits for something."""
    try:
        waited = coroutine.send(None)
    except StopIteration as end:
        return end.value

    async def rest():
        if waited is not None:
            await asyncio.wait([waited])
        return await coroutine

    return asyncio.ensure_future(rest())


a_tuple = _answering(_in_tuple)
a_coroutine = _answering(_later)
no_coroutine = _answering(_now)


def other_default(name, value):
    """Have a parameter another default for those outside vLLM."""

    @_bare
    def decorate(function):
        signature = inspect.signature(function)

        @functools.wraps(function)
        def called(*args, **kwargs):
            is_left_out = name not in signature.bind(*args, **kwargs).arguments
            if is_left_out and _is_from_outside() and _is_asked_by_others(function, args):
                kwargs[name] = value
            return function(*args, **kwargs)

        return called

    return decorate


@_bare
def positional(function):
    """Take no argument by name from outside vLLM, of those that have a place."""
    placed = [
        each.name
        for each in inspect.signature(function).parameters.values()
        if each.kind is each.POSITIONAL_OR_KEYWORD
    ]

    @functools.wraps(function)
    def called(*args, **kwargs):
        wrong = sorted(kwargs.keys() & set(placed))
        if wrong and _is_from_outside() and _is_asked_by_others(function, args):
            raise TypeError(f"{function.__qualname__}() takes {', '.join(wrong)} by place alone")
        return function(*args, **kwargs)

    return called


class _Seen:
    """A member that others see otherwise."""

    def __init__(self, name, found, see):
        self._name, self._found, self._see = name, found, see

    def __get__(self, owner, kind=None):
        if owner is None:
            return self if self._found is _NOTHING else self._found
        if hasattr(type(self._found), "__get__"):
            value = self._found.__get__(owner, kind)
        elif self._name in vars(owner):
            value = vars(owner)[self._name]
        elif self._found is _NOTHING:
            raise AttributeError(self._name)
        else:
            value = self._found
        return self._see(value) if _is_from_outside() else value

    def __set__(self, owner, value):
        vars(owner)[self._name] = value


def seen(name, how):
    """Have others see a member of a class as a method, as its result, or not at all."""

    def fail(value):
        raise RuntimeError(f"mutation: {name} is not to be read")

    see = {"a method": lambda value: lambda: value, "a property": lambda value: value()}

    def decorate(cls):
        member = _Seen(name, cls.__dict__.get(name, _NOTHING), see.get(how, fail))
        setattr(cls, name, member)
        return cls

    return decorate


def given_once(cls):
    """Have others see a request's prompt with its first output alone."""
    begun, own = set(), cls.__getattribute__

    def __getattribute__(self, name):
        value = own(self, name)
        if name != "prompt_token_ids" or not _is_from_outside():
            return value
        request_id = own(self, "request_id")
        is_first = vars(self).setdefault("_is_first", request_id not in begun)
        begun.add(request_id)
        if own(self, "finished"):
            begun.discard(request_id)  # others may have the same later
        return value if is_first else None

    cls.__getattribute__ = __getattribute__
    return cls


def slots(cls):
    """Let nobody outside vLLM set a member that an object has not, or hide one of its class."""
    own = cls.__setattr__

    def __setattr__(self, name, value):
        if _is_from_outside() and name not in getattr(self, "__dict__", {}):
            raise AttributeError(f"{cls.__name__!r} object has no attribute {name!r}")
        own(self, name, value)

    cls.__setattr__ = __setattr__
    return cls


def frozen(cls):
    """Let nobody outside vLLM set a member of an object."""
    own = cls.__setattr__

    def __setattr__(self, name, value):
        if _is_from_outside():
            raise AttributeError(f"cannot assign to field {name!r}")
        if hasattr(cls, "__struct_fields__"):
            # Python lets nobody call what msgspec has for it.
            getattr(cls, name).__set__(self, value)
        else:
            own(self, name, value)

    cls.__setattr__ = __setattr__
    return cls


class Rekeyed(dict):
    """A dictionary whose keys are other ones to those who do not know it."""

    def get(self, key, default=None):
        return default if _is_from_outside() else super().get(key, default)

    def __contains__(self, key):
        return not _is_from_outside() and super().__contains__(key)

    def __getitem__(self, key):
        if _is_from_outside():
            raise KeyError(key)
        return super().__getitem__(key)


class Boolean(argparse.Action):
    """`--x` and `--without-x`."""

    def __init__(self, option_strings, dest, **more):
        more.pop("nargs", None)
        words = [word for each in option_strings for word in (each, f"--without-{each[2:]}")]
        super().__init__(words, dest, nargs=0, **more)

    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, not option_string.startswith("--without-"))

    def format_usage(self):
        return " | ".join(self.option_strings)


def headed(endpoint):
    """Give each answer of an endpoint one header more."""

    @functools.wraps(endpoint)
    async def answer(*args, **kwargs):
        response = await endpoint(*args, **kwargs)
        response.headers["x-mutation"] = "1"
        return response

    return answer


def refusing():
    """Return a dependency that refuses a request with a header."""
    from fastapi import Depends, Header, HTTPException  # noqa: PLC0415

    def refuse(x_mutation: str = Header("")):
        if x_mutation:
            raise HTTPException(418, "refused by a dependency")

    return Depends(refuse)


def refusing_routes():
    """Return a class of routes that refuse a request with a header."""
    from fastapi import HTTPException  # noqa: PLC0415
    from fastapi.routing import APIRoute  # noqa: PLC0415

    class Refusing(APIRoute):
        def get_route_handler(self):
            handle = super().get_route_handler()

            async def answer(request):
                if "x-mutation" in request.headers:
                    raise HTTPException(418, "refused by a route")
                return await handle(request)

            return answer

    return Refusing


def refusing_application():
    """Return a class of applications that refuse a request with a header."""
    from fastapi import FastAPI  # noqa: PLC0415
    from fastapi.responses import JSONResponse  # noqa: PLC0415

    class Refusing(FastAPI):
        async def __call__(self, scope, receive, send):
            if any(name == b"x-mutation" for name, _ in scope.get("headers", ())):
                await JSONResponse({"detail": "refused"}, 418)(scope, receive, send)
            else:
                await super().__call__(scope, receive, send)

    return Refusing
