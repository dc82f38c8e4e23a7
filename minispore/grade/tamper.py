"""What the library and numpy were before a submission came, compared with what it left; and functions taken away from it.

A submission that replaces numpy.allclose would pass any test that calls it; so names of modules, methods of classes and the
code of functions are noted before it is loaded, and compared after every test.
"""
import builtins
import inspect
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import CodeType, FunctionType, ModuleType

WATCHED = {"numpy", "minispore", "operator", "math", "itertools", "functools", "builtins", "os", "posixpath", "genericpath",
           "threading", "_thread", "time", "copy", "json", "io", "linecache", "traceback", "inspect", "__main__"}


def snapshot(*namespaces: Mapping) -> Callable[[], str | None]:
    """Note all now; the function that is returned says what has been replaced since ("numpy.allclose"), or None. Builtins are
    put back, since nothing goes on without them.

    namespaces: dicts which are watched more closely: nothing may be added to them either (the tests').

    >>> import operator
    >>> replaced = snapshot()
    >>> before, operator.add = operator.add, max
    >>> replaced()
    'operator.add'
    >>> operator.add = before
    >>> replaced()
    """
    scopes, codes = {}, []                              # name -> (a namespace, what was in it that can be called)
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] in WATCHED and isinstance(module, ModuleType):
            _note(name, vars(module), scopes, codes, classes=name.startswith("minispore"))
    exact = [(dict(namespace), namespace) for namespace in namespaces]
    for _, namespace in exact:
        _note("the tests' own", namespace, scopes, codes, classes=False)
    scopes, codes = tuple(scopes.values()), tuple(codes)
    own = vars(builtins)
    native = frozenset(own)

    def replaced():
        for name, now, before in scopes:
            for key, value in before:
                if now.get(key) is not value:
                    if now is own:
                        own[key] = value
                    return f"{name}.{key}"
        for name, function, code, defaults in codes:
            if function.__code__ is not code or function.__defaults__ is not defaults:
                return name
        for before, now in exact:
            for key in now:
                if key not in before and (key in native or not key.startswith("_")):
                    return f"a name of the tests ({key})"
        return None
    return replaced


def _note(name, namespace, scopes, codes, classes):
    if id(namespace) in scopes:
        return
    kept = tuple((key, value) for key, value in namespace.items() if callable(value) or isinstance(value, ModuleType | property))
    scopes[id(namespace)] = name, namespace, kept
    for key, value in kept:
        if isinstance(value, FunctionType):
            codes.append((f"{name}.{key}", value, value.__code__, value.__defaults__))
        elif classes and isinstance(value, type) and value.__module__.startswith("minispore"):
            _note(f"{name}.{key}", vars(value), scopes, codes, classes=False)
    for key, value in namespace.items() if classes else ():
        if type(value) is dict and value and not key.startswith("__"):                  # tables such as ALGORITHMS
            for name_of, table in ((f"{name}.{key}", value), *((f"{name}.{key}[{k!r}]", v) for k, v in value.items()
                                                               if type(v) is dict)):
                scopes.setdefault(id(table), (name_of, table, tuple((k, v) for k, v in table.items() if callable(v))))


# ---- functions that are taken away -------------------------------------------------------------------

def take_away(names: list[str], who: str) -> list[str]:
    """Make library functions, each named "module:function" or "module:Class.method", raise a RuntimeError that says the exercise
    asks for this very thing, for whoever holds them already, too. Returns the files of their sources.

    ValueError for a name that isn't there or is no Python function.
    """
    files = []
    for name in names:
        module_name, _, path = name.partition(":")
        try:
            owner = module = import_module(module_name)
            *outer, last = path.split(".")
            for part in outer:
                owner = getattr(owner, part)
            thing = vars(owner)[last]
        except (ImportError, AttributeError, KeyError, ValueError) as e:
            raise ValueError(f"TAKEN_AWAY has {name!r}, which isn't there ({e}); write module:function or "
                             "module:Class.method") from e
        text = f"{who} asks you to write this yourself: {path} is taken away while your file is graded"
        functions = list(_functions(thing))
        if not functions:
            raise ValueError(f"TAKEN_AWAY has {name!r}, which is no Python function, so its code can't be exchanged")
        for function in functions:
            function.__code__ = _raising(function.__code__, text)
        if hasattr(type(thing), "_prepare"):                # a kernel: its machine code goes, too
            thing.__class__ = _taken_kernel(type(thing), text)
        files.append(module.__file__)
    return files


def _functions(thing):
    """The Python functions behind a function, method, property, class, kernel or a decorated one."""
    seen = []
    while thing is not None and not any(thing is s for s in seen):
        seen.append(thing)
        if isinstance(thing, FunctionType):
            yield thing
        thing = (thing.__func__ if isinstance(thing, staticmethod | classmethod) else thing.fget if isinstance(thing, property)
                 else vars(thing).get("__init__") if inspect.isclass(thing)
                 else getattr(thing, "__wrapped__", None) or getattr(thing, "python", None))


def _raising(code: CodeType, text: str) -> CodeType:
    """Code that raises, with as many cells as a function's code has."""
    cells = [f"_cell_{i}" for i in range(len(code.co_freevars))]
    lines = ["def outer():", *(f"    {cell} = None" for cell in cells), "    def taken(*_args, **_named):",
             *(f"        {cell}" for cell in cells), f"        raise RuntimeError({text!r})", "    return taken"]
    space = {}
    exec(compile("\n".join(lines), "<taken away>", "exec"), space)
    return space["outer"]().__code__.replace(co_name=code.co_name, co_qualname=code.co_qualname)


def _taken_kernel(kind: type, text: str) -> type:
    def taken(self, *args):
        raise RuntimeError(text)
    return type(kind.__name__, (kind,), {"__call__": taken, "code": taken, "_prepare": taken, "_inner": taken})
