"""Parameters to files and back, under MindSpore's names (`mindspore.train.serialization`).

Files are MindSpore's .ckpt or safetensors; which of them a file is, its content says. A save is whole or not there at
all (see `atomic`), a load is checked before the first value is set.
"""
import os

import numpy as np

from minispore.common.errors import warn
from minispore.common.parameter import Parameter
from minispore.common.tensor import Tensor
from minispore.communication import selection
from minispore.nn.cell import Cell
from minispore.train import ckpt_format, safetensors_format
from minispore.train.atomic import write_whole
from minispore.train.background import save_in_background, wait_for_async_save
from minispore.train.entries import Entry
from minispore.train.files import file_name, naming, read_entries, some
from minispore.train.pieces import Misfit, Origin, fit, put, tensors, to_entries

FLOATS = ("float16", "float32", "float64", "bfloat16")          # MindSpore converts within these,
INTEGERS = ("int8", "int16", "int32", "int64")                  # and within these, when strict_load is False


class ParameterDict(dict):
    """name: Parameter (or str), as `load_checkpoint` returns them; `origin` is where they come from."""

    origin = Origin()


def save_checkpoint(save_obj, ckpt_file_name, integrated_save=True, async_save=False, append_dict=None, enc_key=None,
                    enc_mode="AES-GCM", choice_func=None, crc_check=False, format="ckpt", **kwargs) -> None:
    """Save parameters to a file (MindSpore: `mindspore.save_checkpoint`).

    The file is written aside and renamed when it is complete: a kill leaves the old file or the new one, whole. Every
    rank may save; of two that save under one name the last one's file stays, so where ranks differ each needs a name of
    its own.

    Args:
        save_obj: a Cell (an optimizer's states are parameters too, so a TrainOneStepCell has all), a dict
            {name: Parameter or Tensor}, or a list of Parameters or of {"name": …, "data": …}.
        ckpt_file_name: ".ckpt" is added if it isn't there; a name with ".safetensors" makes a safetensors file.
        integrated_save: where parameters lie in pieces over the ranks, True: gather and save the whole tensors; this is a
            collective, so all ranks must save, each under a name of its own or one of them to keep. False: save this
            rank's pieces, and how they lie, under a name of its own, such as f"rank_{get_rank()}/net.ckpt".
        async_save: True: copy the values now and write them in a thread. What goes wrong there is raised by the next
            save, by load_checkpoint, or told at the program's end, which waits for the thread.
        append_dict: more to save: {name: number, bool, str, Tensor or Parameter}.
        choice_func: name -> whether to save it; or a str: save it under this name.
        crc_check: True: add MindSpore's checksum to a .ckpt, which MindSpore looks at. minispore's own is always there.
        format: "ckpt" or "safetensors".

    Raises TypeError and ValueError for what can't be saved, OSError if the file can't be written.

    >>> import tempfile
    >>> from minispore import nn
    >>> name = tempfile.mkdtemp() + "/net.ckpt"
    >>> save_checkpoint(nn.Dense(3, 2), name, append_dict={"epoch_num": 4})
    >>> {n: p.shape for n, p in load_checkpoint(name).items()}
    {'weight': (2, 3), 'bias': (2,), 'epoch_num': ()}
    """
    if enc_key is not None:
        raise ValueError("save_checkpoint: enc_key was given, but minispore doesn't encrypt; leave it out, and protect the "
                         "file by its rights or an encrypted disk")
    if kwargs.get("incremental") or kwargs.keys() - {"incremental", "global_step_num"}:
        raise TypeError(f"save_checkpoint: {kwargs} isn't there in minispore; leave it out")
    entries = _chosen("save_checkpoint", _entries(save_obj), choice_func)
    if not entries:
        raise ValueError("save_checkpoint: there is nothing to save" +
                         (": choice_func chose no parameter" if choice_func else f" in this {type(save_obj).__name__}"))
    entries, note = to_entries(entries + appended(append_dict), integrated_save)
    save_entries(entries, ckpt_file_name, note, format, async_save, crc_check)


def save_entries(entries: list[Entry], ckpt_file_name, note: dict, format="ckpt", async_save=False, crc_check=False) -> str:
    """Write entries and a note; returns the file's name. What save_checkpoint and save_training_state share."""
    file = file_name(ckpt_file_name, format)
    seen = set()
    for name, _ in entries:
        if name in seen:
            raise ValueError(f"save_checkpoint: two things are named {name!r}, so {file} would keep only one of them; give "
                             "Parameter(…, name=…) different names")
        seen.add(name)
    safe = file.endswith(".safetensors")
    note = {"minispore": 1, "algorithms": selection.fingerprint(), **note}

    path = os.path.abspath(file)            # a thread may write when the current folder is another

    def write():
        write_whole(path, safetensors_format.encode(entries, note) if safe else
                    ckpt_format.encode(entries, note, crc_check))

    if async_save:
        entries = [(name, value if isinstance(value, str) else value.copy()) for name, value in entries]
        save_in_background(file, write)
    else:
        wait_for_async_save()
        write()
    return file


def load_checkpoint(ckpt_file_name, net=None, strict_load=False, filter_prefix=None, dec_key=None, dec_mode="AES-GCM",
                    specify_prefix=None, choice_func=None, crc_check=False, remove_redundancy=False,
                    format="ckpt") -> dict:
    """The parameters in a file, by name (MindSpore: `mindspore.load_checkpoint`); strings come as str.

    Where a parameter lies in pieces over the ranks, each takes its piece of a whole tensor. A file of one rank's pieces
    goes into the same layout on that rank, or into a network that hasn't run yet in a job of as many ranks, which then lies
    so; load_distributed_checkpoint reads all ranks' files into any layout.

    Args:
        ckpt_file_name: a .ckpt of MindSpore's or minispore's, or a safetensors file; the content decides.
        net: a Cell to load them into, as load_param_into_net does.
        strict_load: see load_param_into_net.
        filter_prefix, specify_prefix: a str or several: leave out, or load only, names that begin so.
        choice_func: name -> whether to load it; or a str: load it under this name. Not asked if a prefix is given.
        crc_check: True: warn if the file has no checksum. A checksum that is there is always verified.
        remove_redundancy, format: accepted as in MindSpore.

    Raises FileNotFoundError, IsADirectoryError; ValueError for a file that is damaged or something else, and when nothing
    is left to load.
    """
    if dec_key is not None:
        raise ValueError("load_checkpoint: dec_key was given, but minispore doesn't encrypt; decrypt the file with MindSpore: "
                         "mindspore.save_checkpoint(mindspore.load_checkpoint(file, dec_key=…), new_file)")
    entries, note, file = read_entries(ckpt_file_name)
    with naming(file):
        entries, origin = tensors(entries, note, file)
    if crc_check and not note:
        warn(f"load_checkpoint: {file} has no checksum, so damage in its values would go unseen")
    chosen = _prefixes("specify_prefix", specify_prefix), _prefixes("filter_prefix", filter_prefix)
    if any(chosen):
        entries = [e for e in entries if e[0].startswith(chosen[0] or "") and not e[0].startswith(chosen[1])]
    else:
        entries = _chosen("load_checkpoint", entries, choice_func)
    if not entries:
        raise ValueError(f"load_checkpoint: nothing is left to load from {file}; check filter_prefix, specify_prefix and "
                         "choice_func against the names in it")
    out = ParameterDict((n, v if isinstance(v, str) else Parameter(v, name=n)) for n, v in entries)
    for name, value in entries:
        if not isinstance(value, str):
            out[name]._layout = value.layout
    out.origin = origin
    if net is not None:
        load_param_into_net(net, out, strict_load)
    return out


def load_param_into_net(net, parameter_dict, strict_load=False, remove_redundancy=False) -> tuple[list[str], list[str]]:
    """Set a network's parameters (MindSpore: `mindspore.load_param_into_net`); all of what can be set, or nothing.

    Args:
        net: a Cell; its parameters are found by name.
        parameter_dict: name -> Parameter, as from load_checkpoint.
        strict_load: False: float dtypes are converted to one another, and integer dtypes; and where names differ by a
            prefix ("backbone.fc.weight" in the file, "fc.weight" in the net), it is left out.
        remove_redundancy: accepted as in MindSpore.

    Returns (names in the net that got nothing, names in the dict that went nowhere). The first is a warning too.

    Raises RuntimeError, before anything is set, for shapes or dtypes that differ; it names the parameters.
    """
    for name, value, kind in (("net", net, Cell), ("parameter_dict", parameter_dict, dict)):
        if not isinstance(value, kind):
            raise TypeError(f"load_param_into_net: {name} is a {type(value).__name__}; it must be a {kind.__name__}")
    for name, value in parameter_dict.items():
        if not isinstance(name, str) or not isinstance(value, (Tensor, str)):
            raise TypeError(f"load_param_into_net: parameter_dict[{name!r}] is a {type(value).__name__}; it must be a "
                            "Parameter under its name")
    available = {name: value for name, value in parameter_dict.items() if isinstance(value, Tensor)}
    pairs, missing = [], []
    for p in net.get_parameters():
        if p.name in available:
            pairs.append((p, p.name))
        else:
            missing.append(p)
    if missing and not strict_load:
        more, missing = _by_prefix(missing, available, getattr(parameter_dict, "origin", Origin()).file)
        pairs += more
    origin = getattr(parameter_dict, "origin", Origin())
    assign_all("load_param_into_net", origin, [(p, name, available[name]) for p, name in pairs], strict_load)
    if missing:
        names = [p.name for p in missing]
        warn(f"load_param_into_net: {len(names)} of the network's parameters aren't in {origin.file} and keep their values: "
             f"{some(names)}")
    used = {name for _, name in pairs}
    return [p.name for p in missing], [name for name in parameter_dict if name not in used]


def assign_all(who: str, origin: Origin, pairs: list[tuple[Parameter, str, Tensor]], strict: bool) -> None:
    """Give each parameter its value, after all of them have been found to fit. RuntimeError names those that don't."""
    wrong, fitting, elsewhere = [], [], False
    for p, name, value in pairs:
        try:
            array, placement = fit(p, name, value, origin)
        except Misfit as e:
            wrong.append(str(e))
            elsewhere |= e.elsewhere
            continue
        a, b = array.dtype.name, p.dtype.name
        if a != b and (strict or not any(a in kind and b in kind for kind in (FLOATS, INTEGERS))):
            wrong.append(f"{getattr(p, 'name', name)} is {b} in the network, {name} is {a} in the file" +
                         (" (strict_load allows no conversion)" if strict else ""))
        else:
            fitting.append((p, array.astype(p.dtype, copy=False), placement))
    if wrong:
        hint = ("Load all ranks' files with load_distributed_checkpoint, which goes from any layout into any other" if elsewhere
                else "Build the network as it was when this was saved, or leave these out with choice_func")
        raise RuntimeError(f"{who}: {origin.file} doesn't fit the network, so nothing was loaded: {some(wrong, '; ')}. {hint}")
    for found in fitting:
        put(*found)


# ---- what is saved -----------------------------------------------------------------------------------


def _entries(save_obj) -> list[tuple[str, Tensor | str]]:
    if isinstance(save_obj, Cell):
        pairs = [(p.name, p) for p in save_obj.get_parameters()]
    elif isinstance(save_obj, dict):
        pairs = list(save_obj.items())
    elif isinstance(save_obj, (list, tuple)):
        pairs = [(e.name, e) if isinstance(e, Parameter) else
                 (e["name"], e["data"]) if isinstance(e, dict) and {"name", "data"} <= set(e) else (None, e) for e in save_obj]
    else:
        raise TypeError(f"save_checkpoint: save_obj is a {type(save_obj).__name__}; it must be a Cell, a dict {{name: "
                        "Parameter}, or a list of Parameters or of {'name': …, 'data': …}")
    for name, value in pairs:
        if not isinstance(name, str) or not isinstance(value, (Tensor, str)):
            raise TypeError(f"save_checkpoint: save_obj has {value!r} under the name {name!r}; it takes Parameters and Tensors "
                            "under their names")
    return pairs


def appended(append_dict) -> list[tuple[str, Tensor | np.ndarray | str]]:
    """The values of an append_dict: int as int64, float as float64 (exact), bool, str, tensors."""
    if append_dict is not None and not isinstance(append_dict, dict):
        raise TypeError(f"save_checkpoint: append_dict is a {type(append_dict).__name__}; it must be a dict")
    out = []
    for name, value in (append_dict or {}).items():
        if not isinstance(name, str) or not isinstance(value, (bool, int, float, str, np.number, np.bool_, Tensor)):
            raise TypeError(f"save_checkpoint: append_dict[{name!r}] is a {type(value).__name__}; it takes numbers, bools, "
                            "str, Tensors and Parameters under str names")
        if not isinstance(value, (str, Tensor)):
            try:
                value = np.asarray(value, np.int64 if type(value) is int else None)
            except OverflowError:
                raise ValueError(f"save_checkpoint: append_dict[{name!r}] = {value} doesn't fit into int64; save it as a "
                                 "str") from None
        out.append((name, value))
    return out


def _chosen(who: str, entries: list[tuple], choice_func) -> list[tuple]:
    if choice_func is None:
        return entries
    if not callable(choice_func):
        raise TypeError(f"{who}: choice_func is a {type(choice_func).__name__}; it must be a function name -> bool or str")
    answers = [(choice_func(name), name, value) for name, value in entries]
    return [(answer if isinstance(answer, str) else name, value) for answer, name, value in answers if answer]


def _by_prefix(missing, available, file):
    """([(parameter, name in the file)], parameters still missing): the file's names have a prefix more."""
    pairs = []
    while missing:
        ends = [(len(name), name[:-len(p.name)]) for p in missing for name in available if name.endswith(f".{p.name}")]
        if not ends:
            break
        prefix = min(ends)[1]
        found = [(p, prefix + p.name) for p in missing if prefix + p.name in available]
        warn(f"load_param_into_net: {len(found)} parameters are in {file} under the prefix {prefix!r}, which is left out")
        pairs += found
        missing = [p for p in missing if prefix + p.name not in available]
    return pairs, missing


def _prefixes(what: str, prefix) -> tuple[str, ...]:
    prefixes = () if prefix is None else (prefix,) if isinstance(prefix, str) else prefix
    if not isinstance(prefixes, (list, tuple)) or any(not isinstance(p, str) or not p for p in prefixes):
        raise TypeError(f"load_checkpoint: {what} {prefix!r} must be a non-empty str, or a list of them")
    return tuple(prefixes)
