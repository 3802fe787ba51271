"""The extension modules, and nothing else: all metadata is in pyproject.toml.

Four switches, environment variables that are off when unset, empty or 0:

SKFOREST_DEBUG     bounds, initialisation and None checks, C assertions, -O1 -g1
SKFOREST_NO_SIMD   no function multiversioning: one plain variant of every loop
SKFOREST_SANITIZE  sanitizers of gcc or clang: that of threads if it is "thread", else those of
                   addresses and undefined behaviour, see `make sanitize`
SKFOREST_WERROR    warnings, of Cython and of the C compiler, are errors

32-bit and big-endian processors are refused. A source distribution has the same bytes whenever it
is built; SOURCE_DATE_EPOCH sets the time of its files.
"""

import gzip
import multiprocessing
import os
import sys
import sysconfig
import tarfile
from pathlib import Path

# Kernels read eight bytes of a row as one little-endian word; sizes of arrays have 64 bits.
if sys.byteorder != "little" or sys.maxsize < 2**32:
    raise SystemExit(
        "skforest needs a 64-bit little-endian processor, such as x86-64 or arm64; this Python is "
        f"for {sys.maxsize.bit_length() + 1} bits, {sys.byteorder}-endian"
    )

from Cython.Build import cythonize
from Cython.Compiler import Options
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist


def switch(name):
    return os.environ.get(name, "") not in ("", "0")


DEBUG = switch("SKFOREST_DEBUG")
NO_SIMD = switch("SKFOREST_NO_SIMD")
SANITIZE = switch("SKFOREST_SANITIZE")
THREADS = os.environ.get("SKFOREST_SANITIZE") == "thread"
WERROR = switch("SKFOREST_WERROR")

# Each mode has its own folder of C and object files. A timestamp cannot tell that a switch
# was turned, so a shared folder would hand the files of one mode to the other.
MODE = "debug" if DEBUG else "thread" if THREADS else "release"
BUILD = f"build/{MODE}{'-nosimd' * NO_SIMD}{'-sanitize' * SANITIZE}{'-werror' * WERROR}"
# The two builds of a Python version, with and without an interpreter lock, have the same tag.
FREE = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
LIB = f"{BUILD}/lib-{sys.implementation.cache_tag}{FREE}"

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "initializedcheck": DEBUG,
    "nonecheck": DEBUG,
    # Also off when debugging: with bounds checks on, a negative index is then an error.
    "wraparound": False,
    "cdivision": True,
    "embedsignature": True,
    "freethreading_compatible": True,
}

# No contraction to fused multiply-add: the variants of a loop would differ in the last bits.
# No -ffast-math, which changes the floating point mode of the whole process, and no
# -march=native: what is built here runs on any processor of its kind.
UNIX_FLAGS = ["-O1", "-g1", "-UNDEBUG"] if DEBUG else ["-O3", "-g0"]
UNIX_FLAGS += ["-ffp-contract=off", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math"]
LINK_FLAGS = []
if SANITIZE:
    LINK_FLAGS = ["-fsanitize=thread" if THREADS else "-fsanitize=address,undefined"]
    UNIX_FLAGS += ["-O1", "-g1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined"]
    UNIX_FLAGS += LINK_FLAGS
MSVC_FLAGS = ["/Od", "/Zi", "/UNDEBUG"] if DEBUG else ["/O2"]
MSVC_FLAGS += ["/fp:precise"]
if WERROR:
    # The three exceptions are what Cython's own generated code is known to trigger.
    UNIX_FLAGS += ["-Wall", "-Wextra", "-Werror"]
    UNIX_FLAGS += [f"-Wno-{w}" for w in ("unused-parameter", "cast-function-type")]
    UNIX_FLAGS += ["-Wno-missing-field-initializers"]
    Options.warning_errors = True


class BuildExt(build_ext):
    """Flags by compiler, known only here, and the extensions in parallel."""

    def finalize_options(self):
        super().finalize_options()
        # For editable installs, too, instead of a folder that they delete: a wheel that is built
        # next needs no compiler.
        self.build_lib = LIB

    def build_extensions(self):
        msvc = self.compiler.compiler_type == "msvc"
        for extension in self.extensions:
            extension.extra_compile_args = MSVC_FLAGS if msvc else UNIX_FLAGS
            extension.extra_link_args = [] if msvc else LINK_FLAGS
        if not msvc:
            self.parallel = self.parallel or os.cpu_count()
        super().build_extensions()


class SDist(sdist):
    """An archive without the order, the owners and the times of the files on this disk."""

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, **owner):
        time = int(os.environ.get("SOURCE_DATE_EPOCH", 1580601600))  # 2 February 2020
        path = f"{base_name}.tar.gz"
        with (
            gzip.GzipFile(path, "wb", mtime=time) as stream,
            tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for name in sorted(p.as_posix() for p in Path(base_dir).rglob("*") if p.is_file()):
                info = archive.gettarinfo(name)
                info.uid = info.gid = 0
                info.uname = info.gname = ""
                info.mode = 0o755 if info.mode & 0o100 else 0o644
                info.mtime = time
                with open(name, "rb") as file:
                    archive.addfile(info, file)
        return path


# What Cython adds for memoryviews, once for all kernels: they compile in a third of the time.
# Every kernel that makes an array of a pointer needs a variable that is a memoryview.
MEMORYVIEWS = "skforest._kernels.base.memoryviews"


def extensions():
    sources = sorted(Path("skforest").rglob("*.pyx"))
    if not sources:  # otherwise a wheel without extensions would be built, and look fine
        raise SystemExit("no skforest/**/*.pyx: the source tree is incomplete")
    # Cython knows which .pxd files a kernel needs; a change of a header compiles all of them.
    depends = ["setup.py", *sorted(p.as_posix() for p in Path("skforest").rglob("*.h"))]
    kernels = [
        Extension(
            ".".join(source.with_suffix("").parts),
            [source.as_posix()],
            include_dirs=["skforest/_kernels"],
            depends=depends,
            define_macros=[("SKFOREST_NO_SIMD", "1")] if NO_SIMD else [],
        )
        for source in sources
    ]
    return [*kernels, Extension(MEMORYVIEWS, [MEMORYVIEWS.replace(".", "/") + ".c"])]


# Cython works in parallel, too, where its processes inherit the options above.
CAN_FORK = multiprocessing.get_start_method() == "fork"

setup(
    ext_modules=cythonize(
        extensions(),
        shared_utility_qualified_name=MEMORYVIEWS,
        build_dir=f"{BUILD}/cython",
        compiler_directives=DIRECTIVES,
        nthreads=(os.cpu_count() or 0) if CAN_FORK else 0,
    ),
    cmdclass={"build_ext": BuildExt, "sdist": SDist},
    options={"build": {"build_base": BUILD, "build_lib": LIB}},
)
