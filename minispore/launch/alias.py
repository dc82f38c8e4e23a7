"""`import mindspore` for scripts written for MindSpore: the same module objects under a second name."""
import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec

THERE, HERE = "mindspore", "minispore"


class SameModule(Loader):
    """Loads nothing: the module is there already, and stays as it is."""

    def __init__(self, module):
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec):
        return self.module

    def exec_module(self, module):
        module.__spec__ = self.spec         # the import system has just put the second name's there


class Alias(MetaPathFinder):
    """Finds mindspore.x.y as minispore.x.y."""

    def find_spec(self, name, path=None, target=None):
        first, _, rest = name.partition(".")
        if first != THERE:
            return None
        here = f"{HERE}.{rest}" if rest else HERE
        try:
            module = importlib.import_module(here)
        except ModuleNotFoundError as e:
            if e.name is None or not f"{here}.".startswith(f"{e.name}."):
                raise                       # something else is missing
            text = f"No module named {name!r} (minispore has no {rest!r} yet)"
            raise ModuleNotFoundError(text, name=name) from None
        return ModuleSpec(name, SameModule(module), is_package=hasattr(module, "__path__"))


def install(always: bool = False) -> None:
    """From now on `import mindspore` finds minispore, unless MindSpore is there; then only if `always`."""
    if any(isinstance(finder, Alias) for finder in sys.meta_path):
        return
    if always or find_spec(THERE) is None:
        sys.meta_path.insert(0, Alias())
