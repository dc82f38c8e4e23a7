"""save_checkpoint, load_checkpoint, load_param_into_net: every value goes round, every damage is told."""
import json
import struct
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minispore as ms
from minispore import Parameter, Tensor, nn
from minispore.train import ckpt_format, load_checkpoint, load_param_into_net, save_checkpoint
from minispore.train.entries import DTYPES

FORMATS = ("ckpt", "safetensors")
NUMPY_DTYPES = [row[0] for row in DTYPES if row[0] != "bfloat16"]
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(lambda n: n != "__metadata__")
SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)


def bits(shape, dtype, seed):
    """An array of any bits at all: NaN, -0, infinities, subnormals too."""
    dtype = np.dtype(dtype)
    data = np.random.default_rng(seed).bytes(int(np.prod(shape)) * dtype.itemsize)
    raw = np.frombuffer(data, np.uint8)
    return (raw & 1 if dtype.kind == "b" else raw).view(dtype).reshape(shape)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


class Net(nn.Cell):
    def __init__(self, inputs=3):
        super().__init__()
        self.fc1 = nn.Dense(inputs, 4)
        self.fc2 = nn.Dense(4, 2)

    def construct(self, x):
        return self.fc2(self.fc1(x))


def values(net):
    return {p.name: p.asnumpy() for p in net.get_parameters()}


@pytest.fixture(params=FORMATS)
def file(request, tmp_path):
    return str(tmp_path / f"net.{request.param}")


# ---- round trips -------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
@given(entries=st.dictionaries(NAMES, st.tuples(SHAPES, st.sampled_from(NUMPY_DTYPES), st.integers(0, 99)), min_size=1,
                               max_size=6))
@settings(max_examples=60)
def test_every_name_shape_and_dtype_goes_round(tmp_path_factory, format, entries):
    file = tmp_path_factory.mktemp("round") / "all"
    arrays = {name: bits(*what) for name, what in entries.items()}
    save_checkpoint({name: Tensor(a) for name, a in arrays.items()}, file, format=format)
    back = load_checkpoint(file)
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        if format == "ckpt" and array.shape == (0,):
            assert back[name].shape == (0,)         # not (), though its dims are MindSpore's old sign for a scalar
        assert isinstance(back[name], Parameter) and back[name].name == name
        assert same(back[name].asnumpy(), array), name


def test_bfloat16_goes_round(file):
    array = Tensor(np.float32([1, -2.5, 3e38]), ms.bfloat16)
    save_checkpoint({"w": array}, file)
    assert same(load_checkpoint(file)["w"].asnumpy(), array.asnumpy())


def test_bfloat16_in_files_of_others():
    import ml_dtypes

    from minispore.train import safetensors_format
    array = np.array([1, -2.5, 0], ml_dtypes.bfloat16)
    for format in (ckpt_format, safetensors_format):
        data = b"".join(format.encode([("w", array)], {}))
        assert same(format.decode(data)[0][0][1], array)
        assert (b"BFloat16" if format is ckpt_format else b"BF16") in data


@pytest.mark.parametrize("form", ["cell", "dict", "list", "dicts"])
def test_what_can_be_saved(file, form):
    net = Net()
    obj = {"cell": net, "dict": net.parameters_dict(), "list": net.trainable_params(),
           "dicts": [{"name": p.name, "data": p} for p in net.get_parameters()]}[form]
    save_checkpoint(obj, file)
    other = Net()
    assert load_param_into_net(other, load_checkpoint(file)) == ([], [])
    assert all(same(v, values(net)[n]) for n, v in values(other).items())


def test_append_dict_goes_round_exactly(file):
    more = {"epoch_num": 3, "lr": 0.1, "done": True, "who": "é😀 x", "empty": "", "t": Tensor([1, 2]), "big": 2 ** 62}
    save_checkpoint(Net(), file, append_dict=more)
    back = load_checkpoint(file)
    assert back["who"] == "é😀 x" and back["empty"] == ""
    assert [back[n].asnumpy().item() for n in ("epoch_num", "lr", "done", "big")] == [3, 0.1, True, 2 ** 62]
    assert back["t"].tolist() == [1, 2] and back["epoch_num"].dtype == ms.int64 and back["done"].dtype == ms.bool_


def test_suffixes_and_format_by_content(tmp_path):
    net = Net()
    save_checkpoint(net, str(tmp_path / "a"))
    save_checkpoint(net, tmp_path / "b", format="safetensors")
    save_checkpoint(net, str(tmp_path / "c.safetensors"))
    assert sorted(f.name for f in tmp_path.iterdir()) == ["a.ckpt", "b.safetensors", "c.safetensors"]
    (tmp_path / "b.safetensors").rename(tmp_path / "b.ckpt")            # the content decides
    for name in ("a", "b.ckpt", "c.safetensors"):
        assert len(load_checkpoint(str(tmp_path / name))) == 4


def test_choices_and_prefixes(file):
    net = Net()
    save_checkpoint(net, file, choice_func=lambda name: name.startswith("fc1") and name.replace("fc1", "first"))
    assert list(load_checkpoint(file)) == ["first.weight", "first.bias"]
    save_checkpoint(net, file)
    assert list(load_checkpoint(file, specify_prefix="fc1")) == ["fc1.weight", "fc1.bias"]
    assert list(load_checkpoint(file, filter_prefix=["fc1", "fc2.b"])) == ["fc2.weight"]
    assert list(load_checkpoint(file, specify_prefix=("fc1",), filter_prefix="fc1.w")) == ["fc1.bias"]
    assert list(load_checkpoint(file, choice_func=lambda n: n == "fc2.bias" and "b")) == ["b"]
    with pytest.raises(ValueError, match="nothing is left to load"):
        load_checkpoint(file, filter_prefix="fc")
    with pytest.raises(ValueError, match="choice_func chose no parameter"):
        save_checkpoint(net, file, choice_func=lambda name: False)
    assert len(load_checkpoint(file)) == 4


# ---- MindSpore's bytes -------------------------------------------------------------------------------

# Written by hand from checkpoint.proto: tag "w", dims 2, Float32 [1, 2], then tag "s", a scalar Int32 7 without dims.
BY_HAND = bytes.fromhex("0a1a" "0a0177" "1215" "0802" "1207466c6f61743332" "1a080000803f00000040"
                        "0a12" "0a0173" "120d" "1205496e743332" "1a0407000000")


def test_mindspores_bytes_are_read(tmp_path):
    file = tmp_path / "hand.ckpt"
    for end in (b"", b"crc_num" + crc32(BY_HAND).to_bytes(10, "big")):
        file.write_bytes(BY_HAND + end)
        if not end:
            with pytest.warns(UserWarning, match="has no checksum"):
                load_checkpoint(file, crc_check=True)
        back = load_checkpoint(file, crc_check=bool(end))
        assert same(back["w"].asnumpy(), np.float32([1, 2])) and same(back["s"].asnumpy(), np.int32(7).reshape(()))


def test_mindspores_bytes_are_written(tmp_path):
    save_checkpoint({"w": Tensor(np.float32([1, 2])), "s": Tensor(np.int32(7))}, tmp_path / "x.ckpt", crc_check=True)
    data = (tmp_path / "x.ckpt").read_bytes()
    assert BY_HAND in data
    body, end = data[:-17], data[-17:]
    assert end == b"crc_num" + crc32(body).to_bytes(10, "big")
    before, after = body.split(BY_HAND)
    assert before[:2] == bytes.fromhex("c23e") and after[:3] == bytes.fromhex("ca3e04")     # fields 1000 and 1001


def test_old_scalars_slices_and_strings(tmp_path, monkeypatch):
    def value(tag, dims, kind, content, packed=False):
        where = b"".join(map(ckpt_format.varint, dims))
        where = ckpt_format.field(1, where) if packed else b"".join(b"\x08" + ckpt_format.varint(d) for d in dims)
        tensor = where + ckpt_format.field(2, kind) + ckpt_format.field(3, content)
        return ckpt_format.field(1, ckpt_format.field(1, tag) + ckpt_format.field(2, tensor))

    whole = np.arange(300 * 2, dtype=np.int16).reshape(300, 2)
    file = tmp_path / "x.ckpt"
    file.write_bytes(value(b"old", [0], b"Float64", struct.pack("<d", 0.5)) + value(b"none", [0], b"Float64", b"")
                     + value(b"w", [300, 2], b"Int16", whole.tobytes()[:1000])
                     + value(b"w", [300, 2], b"Int16", whole.tobytes()[1000:])
                     + value(b"text", [0], b"str", np.array("hé").tobytes())
                     + value(b"random_op", [0], b"random_op", b"\1\2\3")
                     + value(b"packed", [1, 2], b"Bool", b"\1\0", packed=True))
    back = load_checkpoint(file)
    assert (back["old"].shape, back["old"].item(), back["none"].shape) == ((), 0.5, (0,))
    assert same(back["w"].asnumpy(), whole) and back["text"] == "hé" and back["packed"].tolist() == [[True, False]]
    assert "random_op" not in back
    monkeypatch.setattr(ckpt_format, "SLICE", 64)
    save_checkpoint({"w": Tensor(whole)}, file)
    assert file.read_bytes().count(b"Int16") == -(-whole.nbytes // 64)
    assert same(load_checkpoint(file)["w"].asnumpy(), whole)


def test_the_safetensors_library_reads_and_is_read(tmp_path):
    library = pytest.importorskip("safetensors.numpy", reason="another's reader of our files; in the extra test")
    arrays = {f"p.{dtype}.{shape}": bits(shape, dtype, 1) for dtype in NUMPY_DTYPES for shape in ((), (0,), (3, 2))}
    save_checkpoint({n: Tensor(a) for n, a in arrays.items()}, tmp_path / "ours.safetensors")
    theirs = library.load_file(tmp_path / "ours.safetensors")
    assert theirs.keys() == arrays.keys() and all(same(theirs[n], a) for n, a in arrays.items())
    library.save_file(arrays, tmp_path / "theirs.safetensors", metadata={"format": "np"})
    ours = load_checkpoint(tmp_path / "theirs.safetensors")
    assert ours.keys() == arrays.keys() and all(same(ours[n].asnumpy(), a) for n, a in arrays.items())


# ---- damage ------------------------------------------------------------------------------------------


def unchanged(net, before):
    return all(same(v, before[n]) for n, v in values(net).items())


def refused(file, data, net, before):
    """The message with which a file of these bytes is refused; the network stays as it was."""
    with open(file, "wb") as f:
        f.write(data)
    with pytest.raises(ValueError) as error:
        load_checkpoint(file, net)
    assert file in str(error.value) and unchanged(net, before)
    return str(error.value)


@pytest.mark.parametrize("options", [{}, {"crc_check": True, "append_dict": {"lr": 0.5, "s": "x"}}])
def test_no_flipped_byte_goes_unseen(file, options):
    save_checkpoint(Net(), file, **options)
    with open(file, "rb") as f:
        data = f.read()
    net = Net()
    before = values(net)
    for at in range(len(data)):
        for flip in (1, 0x20, 0x80):
            refused(file, data[:at] + bytes([data[at] ^ flip]) + data[at + 1:], net, before)


def test_no_cut_goes_unseen(file):
    save_checkpoint(Net(), file)
    with open(file, "rb") as f:
        data = f.read()
    net = Net()
    before = values(net)
    for length in range(len(data)):
        refused(file, data[:length], net, before)
    assert "empty" in refused(file, b"", net, before)
    refused(file, data + b"\0", net, before)
    refused(file, data + data, net, before)


def test_the_damaged_parameter_is_named(file):
    net = Net()
    save_checkpoint(net, file)
    with open(file, "rb") as f:
        data = f.read()
    at = data.index(net.fc2.weight.asnumpy().tobytes())
    assert "'fc2.weight'" in refused(file, data[:at] + bytes([data[at] ^ 4]) + data[at + 1:], net, values(net))


def test_structural_damage_names_the_parameter(tmp_path):
    net, file = Net(), str(tmp_path / "x.ckpt")
    before = values(net)
    assert "'w'" in refused(file, BY_HAND.replace(b"Float32", b"Float33"), net, before)
    assert "'w'" in refused(file, BY_HAND.replace(bytes.fromhex("0802"), bytes.fromhex("0803")), net, before)
    assert "twice" in refused(file, BY_HAND + BY_HAND, net, before)
    assert "cut off" in refused(file, BY_HAND[:-1], net, before)
    assert "MapParameter" in refused(file, bytes.fromhex("0a05" "0a0177" "1a00"), net, before)
    assert "without a tensor" in refused(file, bytes.fromhex("0a03" "0a0177"), net, before)
    file = str(tmp_path / "x.safetensors")
    for header, said in (({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 9]}}, "'w'"),
                         ({"w": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}, "F99"),
                         ({"w": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, "'w'"),
                         ({"w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, "'w'"),
                         ({"w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, "'w'"),
                         ({"w": {"dtype": "F32"}}, "'w'"), ([], "dict"),
                         ({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, "after the last")):
        head = json.dumps(header).encode()
        assert said in refused(file, len(head).to_bytes(8, "little") + head + bytes(8), net, before), header


def test_other_things_than_checkpoints(tmp_path):
    net = Net()
    np.savez(tmp_path / "x.npz", a=1)
    (tmp_path / "x.npz").rename(tmp_path / "zip.ckpt")
    np.save(tmp_path / "x.npy", np.ones(3))
    (tmp_path / "text.ckpt").write_text("hello, world, this is no checkpoint")
    for name, said in (("zip.ckpt", "zip"), ("x.npy", "numpy array"), ("text.ckpt", "neither")):
        with pytest.raises(ValueError, match=said):
            load_checkpoint(tmp_path / name, net)
    save_checkpoint(net, tmp_path / "lenet-1_5.ckpt")
    with pytest.raises(TypeError, match="load_checkpoint: ckpt_file_name is a NoneType; it must be a file's name"):
        load_checkpoint(None)
    with pytest.raises(FileNotFoundError, match=r"lenet-1_6.*isn't there; .*has .*lenet-1_5\.ckpt"):
        load_checkpoint(tmp_path / "lenet-1_6.ckpt")
    with pytest.raises(FileNotFoundError, match="nor is its folder"):
        load_checkpoint(tmp_path / "no" / "x.ckpt")
    with pytest.raises(IsADirectoryError, match=r"is a folder; name a file; .* has lenet-1_5\.ckpt"):
        load_checkpoint(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"has no \.ckpt or \.safetensors file"):
        load_checkpoint(tmp_path / "empty" / "x.ckpt")


def fuzzed(data, name, tmp_path):
    """Whatever the bytes are: a load, or a ValueError with the file's name."""
    file = tmp_path / name
    file.write_bytes(data)
    try:
        load_checkpoint(file)
    except ValueError as e:
        assert str(file) in str(e)


@given(st.lists(st.tuples(st.integers(0, len(BY_HAND)), st.integers(0, 4), st.binary(max_size=6)), max_size=4))
@settings(max_examples=500)
def test_any_bytes_in_a_ckpt_of_others(tmp_path_factory, changes):
    data = BY_HAND
    for at, removed, put in changes:
        data = data[:at] + put + data[at + removed:]
    fuzzed(data, "x.ckpt", tmp_path_factory.getbasetemp())


KEYS = st.sampled_from(["dtype", "shape", "data_offsets", "__metadata__", "crc32", "minispore", "w"])
JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["F32", "BOOL", "x"]),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner), max_leaves=9)
HEADER = st.dictionaries(st.sampled_from(["w", "v", "__metadata__"]), JSON | st.fixed_dictionaries(
    {"dtype": st.sampled_from(["F32", "I8"]), "shape": st.lists(st.integers(0, 2 ** 65), max_size=2),
     "data_offsets": st.lists(st.integers(0, 9), min_size=2, max_size=2)}))


@given(HEADER | JSON, st.binary(max_size=9))
@settings(max_examples=500)
def test_any_header_in_safetensors_of_others(tmp_path_factory, header, data):
    head = json.dumps(header).encode()
    fuzzed(len(head).to_bytes(8, "little") + head + data, "x.safetensors", tmp_path_factory.getbasetemp())


def test_absurd_headers(tmp_path):
    about = b'{"w": {"dtype": "F32", "shape": [%s], "data_offsets": [0, 0]}}'
    for head in (b"[" * 100_000, b"\xff" * 10, about % b"0, 36893488147419103232", about % b",".join([b"0"] * 70)):
        fuzzed(len(head).to_bytes(8, "little") + head, "x.safetensors", tmp_path)
        with pytest.raises(ValueError):
            load_checkpoint(tmp_path / "x.safetensors")


# ---- what can't be saved -----------------------------------------------------------------------------


def test_what_cannot_be_saved(tmp_path):
    file = str(tmp_path / "x.ckpt")
    two = [Parameter(Tensor([1.0]), name="w"), Parameter(Tensor([2.0]), name="w")]
    for error, said, args in (
            (TypeError, "save_obj is a int", {"save_obj": 3}),
            (TypeError, "under the name 'a'", {"save_obj": {"a": 3}}),
            (TypeError, "takes Parameters", {"save_obj": [3]}),
            (ValueError, "nothing to save", {"save_obj": {}}),
            (ValueError, "two things are named 'w'", {"save_obj": two}),
            (ValueError, "two things are named 'fc1.bias'", {"append_dict": {"fc1.bias": 1}}),
            (TypeError, "append_dict is a list", {"append_dict": [1]}),
            (TypeError, "append_dict\\['a'\\] is a NoneType", {"append_dict": {"a": None}}),
            (ValueError, "doesn't fit into int64", {"append_dict": {"a": 2 ** 63}}),
            (ValueError, "doesn't encrypt", {"enc_key": b"0" * 16}),
            (ValueError, "format 'h5'", {"format": "h5"}),
            (TypeError, "choice_func is a str", {"choice_func": "fc"}),
            (TypeError, "ckpt_file_name is a int", {"ckpt_file_name": 3}),
            (IsADirectoryError, "is a folder", {"ckpt_file_name": str(tmp_path)}),
            (FileNotFoundError, "make the folder", {"ckpt_file_name": str(tmp_path / "no" / "x.ckpt")}),
            (TypeError, "isn't there in minispore", {"colour": "red"})):
        with pytest.raises(error, match=said):
            save_checkpoint(**{"save_obj": Net(), "ckpt_file_name": file, **args})
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="can't be named '__metadata__'"):
        save_checkpoint({"__metadata__": Tensor([1.0])}, tmp_path / "x.safetensors")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="doesn't encrypt"):
        load_checkpoint(file, dec_key=b"0" * 16)


# ---- into a network ----------------------------------------------------------------------------------


def test_other_shapes_load_nothing(file):
    save_checkpoint(Net(5), file)
    net = Net()
    before = values(net)
    with pytest.raises(RuntimeError, match=r"net\.\w+ doesn't fit.*nothing was loaded: fc1\.weight has shape \(4, 3\) in the "
                                           r"network, fc1\.weight has \(4, 5\) in the file"):
        load_checkpoint(file, net)
    assert unchanged(net, before)


def test_missing_parameters_are_named(file):
    save_checkpoint(Net(), file, choice_func=lambda n: n != "fc2.weight", append_dict={"epoch_num": 1})
    net = Net()
    with pytest.warns(UserWarning, match=r"1 of the network's parameters aren't in .*net\.\w+ and keep .*: fc2\.weight"):
        assert load_param_into_net(net, load_checkpoint(file)) == (["fc2.weight"], ["epoch_num"])


def test_dtypes_convert_within_a_kind_alone(file):
    net = Net()
    changed = {n: Tensor(v.astype(np.float64)) for n, v in values(net).items()}
    save_checkpoint(changed, file)
    other = Net()
    load_checkpoint(file, other)
    assert all(same(v, values(net)[n]) for n, v in values(other).items())
    before = values(other)
    with pytest.raises(RuntimeError, match="float32 in the network, fc1.weight is float64 in the file .strict_load"):
        load_checkpoint(file, other, strict_load=True)
    changed["fc2.bias"] = Tensor(np.zeros(2, np.int32))
    save_checkpoint(changed, file)
    with pytest.raises(RuntimeError, match=r"fc2.bias is float32 in the network, fc2.bias is int32 in the file"):
        load_checkpoint(file, other)
    assert unchanged(other, before)


def test_prefixes_are_left_out_unless_strict(file):
    net = Net()
    save_checkpoint({f"backbone.{n}": Tensor(v) for n, v in values(net).items()}, file)
    other = Net()
    with pytest.warns(UserWarning, match=r"4 parameters are in .* under the prefix 'backbone\.'"):
        assert load_param_into_net(other, load_checkpoint(file)) == ([], [])
    assert unchanged(other, values(net))
    with pytest.warns(UserWarning, match="4 of the network's parameters aren't in"):
        missing, extra = load_param_into_net(Net(), load_checkpoint(file), strict_load=True)
    assert len(missing) == len(extra) == 4


def test_trailing_ones_are_mindspores(tmp_path):
    net = Net()
    given = {n: Tensor(v[..., None, None]) for n, v in values(net).items()}
    other = Net()
    assert load_param_into_net(other, given) == ([], [])
    assert unchanged(other, values(net))


def test_wrong_arguments_to_load_param_into_net():
    with pytest.raises(TypeError, match="net is a int"):
        load_param_into_net(3, {})
    with pytest.raises(TypeError, match="parameter_dict is a list"):
        load_param_into_net(Net(), [])
    with pytest.raises(TypeError, match=r"parameter_dict\['a'\] is a int"):
        load_param_into_net(Net(), {"a": 3})


def test_compiled_networks_see_what_is_loaded(file):
    ms.set_context(mode=ms.GRAPH_MODE)
    net, other, x = Net(), Net(), Tensor(np.ones((1, 3), np.float32))
    wanted = net(x).asnumpy()
    assert not same(other(x).asnumpy(), wanted)
    save_checkpoint(net, file)
    load_checkpoint(file, other)
    assert same(other(x).asnumpy(), wanted)
