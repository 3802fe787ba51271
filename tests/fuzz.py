"""Load saved models that were damaged at random, and predict with them.

Every case must end with a ValueError or with a model that can be used, within a limit of memory
and time. Cases run in a child process, so that a crash or a hang ends the child, and is reported
with its number::

    python tests/fuzz.py --seconds 60 --seed 1           # cases 0, 1, ... of seed 1
    python tests/fuzz.py --seed 1 --first 4711 --repeat  # one case in this process, with traceback
    python tests/fuzz.py --guided -- -runs=100000        # guided by coverage; needs atheris

The exit status is 1 if a case failed. The processes need Linux.
"""

import argparse
import copy
import ctypes
import faulthandler
import io
import mmap
import os
import random
import resource
import signal
import struct
import sys
import tempfile
import threading
import time
import traceback
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
from archives import (
    SAVED,
    edited_bytes,
    edited_header,
    load_and_use,
    read_archive,
    write_edited_folder,
)
from makers import use

import skforest
from skforest.forest import Forest
from skforest.forest.io import read_forests

SECONDS = 20  # that a case may take on a busy machine
FREE_MEMORY = 64 * 2**20  # bytes beyond those at the start of a case, and beyond MEMORY_FACTOR
MEMORY_FACTOR = 10  # times the size of the file
CASES_PER_CHILD = 5_000
BYTE_EDITS = ("set", "flip", "cut", "repeat")
OUTCOMES = ("refused by load", "usable", "arrays refused", "arrays usable", "failed")
NUMBERS = (-(2**63), -(2**31), -129, -2, -1, 0, 1, 2, 3, 127, 255, 256, 2**15, 2**31 - 1, 2**31,
           2**53, 2**62, 2**63 - 1)  # fmt: skip
REALS = (0.0, -0.0, 1e-45, -1.0, 0.5, 65504.0, 1e38, -3e38, 1e300, np.inf, -np.inf, np.nan)
DTYPES = ("i1", "u1", "<i2", "<u4", "<i4", "<i8", "<u8", ">i4", "<f2", "<f4", "<f8", "?", "<c8",
          "<U1", "S3", "<M8[s]", "V4")  # fmt: skip


# --------------------------------------------------------------------------------------- edits


def edited_values(array, rng):
    """A copy of an array with a few entries changed."""
    array = array.copy()
    flat = array.reshape(-1)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at, other = rng.randrange(len(flat)), rng.randrange(len(flat))
        if array.dtype.kind == "f":
            value = rng.choice((*REALS, flat[other], -flat[at]))
        elif array.dtype.kind in "iu":
            limits = np.iinfo(array.dtype)
            near = int(flat[at]) + rng.choice((-2, -1, 1, 2))
            value = rng.choice((*NUMBERS, near, near, near, int(flat[other]), limits.max))
            value = min(max(value, limits.min), limits.max)
        else:
            value = flat[other]
        flat[at] = value
    return array


def edited_array(array, rng, others):
    """A copy of an array with other values, another shape or another dtype."""
    kind = rng.randrange(10)
    if kind < 5 and array.size:
        return edited_values(array, rng)
    if kind == 5:
        return array.reshape(rng.choice(((-1, 1), (1, -1), (-1,), (1, 1, -1))))
    if kind == 6:
        return array.astype(rng.choice(DTYPES))
    if kind == 7 and array.nbytes:
        return np.frombuffer(array.tobytes(), rng.choice(("u1", "i1")))
    if kind == 8:
        return rng.choice(others).copy()
    if not array.ndim:
        return array
    n = len(array)
    pieces = (
        array[: rng.randint(0, n)], array[rng.randint(0, n) :], array[::-1], array[:0],
        np.concatenate([array, array[: rng.randint(0, n)]]), np.roll(array, 1, axis=0),
        np.repeat(array, 2, axis=0), np.sort(array, axis=0),
    )  # fmt: skip
    return rng.choice(pieces)


def npy_of(array):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
    return file.getvalue()


def edited_member(name, members, rng):
    """Content of a member of an archive after one edit."""
    content = members[name]
    if rng.random() < 0.3:
        return edited_bytes(
            content, rng.choice(BYTE_EDITS), rng.getrandbits(24), rng.randrange(256)
        )
    if name == "header.npy":
        return edited_header(content, rng.getrandbits(24), rng.randrange(256))
    others = [
        np.lib.format.read_array(io.BytesIO(members[one]))
        for one in (name, rng.choice(sorted(members)))
        if one != "header.npy"
    ]
    array = others[0]
    if rng.random() < 0.001:  # compresses a thousand times
        return npy_of(np.resize(array[:1], 2 ** rng.randint(16, 21)))
    return npy_of(edited_array(array, rng, others))


def edited_members(members, rng):
    """A dict of members with one to three edits."""
    members = dict(members)
    for _ in range(rng.choice((1, 1, 2, 3))):
        name = "header.npy" if rng.random() < 0.3 else rng.choice(sorted(members))
        try:
            members[name] = edited_member(name, members, rng)
        except Exception:  # of many kinds
            # A former edit made it unreadable, or the edit does not suit the dtype.
            members[name] = edited_bytes(members[name], "flip", rng.getrandbits(24), 3)
    return members


def zip_of(members, rng, is_damaged):
    """A zip archive of some members; damaged, one entry of its structure is wrong."""
    body, directory = b"", b""
    entries = list(members.items())
    if is_damaged and rng.random() < 0.2:
        entries.append(rng.choice(entries))
    wrong = rng.randrange(len(entries)) if is_damaged else -1
    for number, (name, content) in enumerate(entries):
        packed, method = content, 0
        if len(content) > 4096:
            packed, method = zlib.compress(content, 1)[2:-4], 8
        fields = {
            "version": 20, "flags": 0, "method": method, "time": 0, "date": 33,
            "crc": zlib.crc32(content), "packed": len(packed), "size": len(content),
            "name": len(name.encode()), "extra": 0,
        }  # fmt: skip
        local = dict(fields)
        at = len(body)
        if number == wrong:
            key = rng.choice(sorted(fields))
            width = 2**32 if key in ("crc", "packed", "size") else 2**16
            value = rng.choice((0, 1, 8, 9, 12, 14, fields[key] ^ 1, fields[key] * 2, 2**32 - 1))
            for one in rng.choice(((local,), (fields,), (local, fields))):
                one[key] = value % width
            at = rng.choice((at, at, at + 1, 0, 2**32 - 1))
        body += (
            b"PK\x03\x04" + struct.pack("<HHHHHIIIHH", *local.values()) + name.encode() + packed
        )
        directory += b"PK\x01\x02" + struct.pack("<H", 20)
        directory += struct.pack("<HHHHHIIIHH", *fields.values())
        directory += struct.pack("<HHHII", 0, 0, 0, 0, at) + name.encode()
    end = [0, 0, len(entries), len(entries), len(directory), len(body), 0]
    if is_damaged and rng.random() < 0.2:
        end[rng.randrange(7)] += rng.choice((-1, 1, 100, 2**15))
        end = [value % 2**16 for value in end]
    return body + directory + b"PK\x05\x06" + struct.pack("<HHHHIIH", *end)


def edited_file(content, members, rng):
    """Bytes of a saved model after some edits, of the file or of its members."""
    kind = rng.random()
    if kind < 0.1:
        for _ in range(rng.randint(1, 3)):
            where, number = rng.getrandbits(24), rng.randrange(256)
            content = edited_bytes(content, rng.choice(BYTE_EDITS), where, number)
        return content
    if kind < 0.2:
        return zip_of(members, rng, True)
    return zip_of(edited_members(members, rng), rng, False)


# --------------------------------------------------------------------------------------- cases


class Cases:
    """The cases of a seed: edits of the saved models in `tests/golden`."""

    def __init__(self, seed, folder):
        self.seed, self.path = seed, Path(folder) / "model.npz"
        self.folder = Path(folder) / "model"
        self.files = [(path, path.read_bytes(), read_archive(path)) for path in SAVED]
        self.parts = [part for path in SAVED for part in read_forests(path)[1]]

    def run(self, number):
        """Run one case; return the number of its outcome."""
        rng = random.Random(self.seed << 40 | number)
        kind = rng.random()
        if kind < 0.3:
            return self.run_arrays(rng)
        path, content, members = rng.choice(self.files)
        if kind < 0.32:
            edits = [
                (rng.choice(("header", *BYTE_EDITS)), rng.getrandbits(24), rng.randrange(256))
                for _ in range(rng.randint(1, 3))
            ]
            write_edited_folder(path, self.folder, edits)
            try:
                return not load_and_use(self.folder, rng.choice((None, "r")))
            except FileNotFoundError:  # the header names a file that does not exist
                return 0
        content = edited_file(content, members, rng)
        self.path.write_bytes(content)
        limit_memory(len(content))
        return not load_and_use(self.path)

    def run_arrays(self, rng):
        """Arrays and metadata as `Forest` takes them."""
        arrays, metadata = rng.choice(self.parts)
        arrays, metadata = dict(arrays), dict(metadata)
        others = list(arrays.values())
        for _ in range(rng.choice((1, 1, 2, 3))):
            name = rng.choice(sorted(arrays))
            try:
                arrays[name] = edited_array(arrays[name], rng, others)
            except (ValueError, TypeError, OverflowError, RuntimeError):  # of a cast by NumPy
                arrays[name] = arrays[name][:0]
        if rng.random() < 0.1:
            name = rng.choice(("n_features", "n_outputs", "n_shared_values", "steepness"))
            metadata[name] = rng.choice((0, 1, 2, 3, 5, 10**4))
        limit_memory(sum(array.nbytes for array in arrays.values()))
        try:
            forest = Forest(arrays, **copy.deepcopy(metadata))
        except (ValueError, TypeError) as error:
            assert str(error)
            return 2
        use(forest)
        return 3


def address_space():
    """Bytes of memory that this process has mapped."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * mmap.PAGESIZE


def limit_memory(size):
    """Let allocations fail beyond the limit for a file of `size` bytes."""
    limit = address_space() + MEMORY_FACTOR * size + FREE_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def release_memory():
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)


def prepare():
    """Import what is imported on first use, and keep mapped memory close to used memory."""
    M_ARENA_MAX = -8
    if hasattr(ctypes.CDLL(None), "mallopt"):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)  # otherwise every thread maps 64 MiB
    threading.stack_size(2**20)
    warnings.simplefilter("ignore")
    for path in SAVED:
        load_and_use(path)
    load_in_two_threads(SAVED[0])


def load_in_two_threads(path):
    model = skforest.load(path).set_params(n_jobs=2)
    model.predict(np.zeros((3, model.n_features_in_), dtype=np.float32))


def run_child(cases, first, shared, deadline):
    """Run cases from `first`; `shared` has the number of the current case, and the outcomes."""
    faulthandler.enable()
    for number in range(first, first + CASES_PER_CHILD):
        shared[0] = number
        signal.setitimer(signal.ITIMER_REAL, SECONDS)  # SIGALRM ends the process
        try:
            outcome = int(cases.run(number))
        except Exception:
            release_memory()
            outcome = OUTCOMES.index("failed")
            print(f"case {number} of seed {cases.seed} failed", file=sys.stderr)
            traceback.print_exc()
        release_memory()
        shared[2 + outcome] += 1
        shared[1] = number + 1
        if time.time() > deadline:
            break
    signal.setitimer(signal.ITIMER_REAL, 0)


def run(seed, first, n_cases, seconds):
    """Run cases in child processes, one after the other; return the number of failed cases."""
    shared = np.frombuffer(mmap.mmap(-1, 8 * (2 + len(OUTCOMES))), dtype=np.int64)
    failed = 2 + OUTCOMES.index("failed")
    start = time.time()
    deadline = start + seconds
    end = first + n_cases
    shared[1] = first
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as own:
        cases = Cases(seed, own)
        while shared[1] < end and time.time() < deadline:
            child = os.fork()
            if not child:
                prepare()
                run_child(cases, int(shared[1]), shared, deadline)
                os._exit(0)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if status:
                reason = signal.Signals(-status).name if status < 0 else f"exit status {status}"
                print(f"case {shared[0]} of seed {seed}: {reason}", file=sys.stderr)
                shared[failed] += 1
                shared[1] = shared[0] + 1
            counts = ", ".join(f"{name} {n}" for name, n in zip(OUTCOMES, shared[2:]))
            n = int(shared[1]) - first
            print(f"{n} cases in {time.time() - start:.0f} s: {counts}", flush=True)
    return int(shared[failed])


# ----------------------------------------------------------------------------- guided by coverage


def run_guided(arguments):
    """Let libFuzzer keep the files that reach new lines of Python, and damage them further."""
    import atheris

    folder = Path(tempfile.mkdtemp(prefix="skforest-fuzz-"))
    corpus = folder / "corpus"
    corpus.mkdir()
    for path in SAVED:
        (corpus / path.name).write_bytes(path.read_bytes())
    for name, module in list(sys.modules.items()):
        if name in (
            "skforest.export.persistence",
            "skforest.forest.io",
            "skforest.forest.storage",
        ):
            instrument_module(atheris, module)

    def test_one_input(content):
        path = folder / "model.npz"
        path.write_bytes(content)
        load_and_use(path)

    def mutate(content, max_size, seed):
        rng = random.Random(seed)
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                members = {name: archive.read(name) for name in archive.namelist()}
        except Exception:  # of many kinds, if the archive is damaged
            members = {}
        if not members:
            return atheris.Mutate(content, max_size)
        return edited_file(content, members, rng)[:max_size]

    prepare()
    limits = [f"-timeout={SECONDS}", "-rss_limit_mb=1024", "-max_len=65536"]
    command = [sys.argv[0], *limits, f"-artifact_prefix={folder}/", *arguments, str(corpus)]
    atheris.Setup(command, test_one_input, custom_mutator=mutate)
    atheris.Fuzz()


def instrument_module(atheris, module):
    """Count the branches of the functions of a module."""
    for name, thing in vars(module).items():
        if callable(thing) and getattr(thing, "__module__", None) == module.__name__:
            if hasattr(thing, "__code__"):
                setattr(module, name, atheris.instrument_func(thing))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--cases", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--repeat", action="store_true", help="run the first case only, here")
    parser.add_argument("--guided", action="store_true", help="use atheris")
    parser.add_argument("arguments", nargs="*", help="options of libFuzzer, after --")
    options = parser.parse_args()
    if options.guided:
        run_guided(options.arguments)
    elif options.repeat:
        faulthandler.enable()
        folder = tempfile.mkdtemp(prefix="skforest-fuzz-")
        print("files are kept in", folder)
        cases = Cases(options.seed, folder)
        prepare()
        print(OUTCOMES[int(cases.run(options.first))])
    else:
        sys.exit(run(options.seed, options.first, options.cases, options.seconds) > 0)


if __name__ == "__main__":
    main()
