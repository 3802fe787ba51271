"""Seeded faults: the short suite must fail with each of the patches in this folder.

    python tests/mutants/run.py                       # all of them
    python tests/mutants/run.py tree_files c_boxes    # those whose names contain one of these
    python tests/mutants/run.py --list                # does each still apply? No test is run
    python tests/mutants/run.py --folder NEW          # those in another folder

A patch is one fault in unified diff, as somebody could make it. Its first line says what a user
would see, its second one names the test files that could notice it. It applies where its lines
occur exactly once, wherever that is, so edits elsewhere in the file do no harm.

Patches are applied one at a time in a copy of the source tree, which is built again where a kernel
has changed. The exit code is 1 if a fault survives, if a patch does not apply any more, or if the
test that fails with a fault fails without it, too.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COPIED = "skforest", "tests", "docs", "build", "setup.py", "pyproject.toml", "README.md", "LICENSE"
TIME_LIMIT = 900  # seconds for the tests of one fault; an endless loop is noticed, too
RESTORED = "skforest", "tests", "build"  # what patches change
SUFFIXES = ".pyx", ".pxd", ".h"
FAILS = 1  # exit code of pytest if a test failed, or 2: if a module could not be imported


def read(patch):
    """What a user would see, the test files, and the hunks as (file, old text, new text)."""
    user, tests, *lines = patch.read_text(encoding="utf-8").splitlines()
    assert tests.startswith("Tests: tests/"), f"{patch.name}: the second line must be Tests: ..."
    hunks, path = [], None
    for line in lines:
        if line.startswith("+++ b/"):
            path = line.removeprefix("+++ b/").split("\t")[0]
        elif line.startswith("@@"):
            hunks.append((path, [], []))
        elif hunks and not line.startswith(("--- ", "\\")):
            mark, text = line[:1] or " ", line[1:]
            if mark in " -":
                hunks[-1][1].append(text)
            if mark in " +":
                hunks[-1][2].append(text)
    return user, tests.split()[1:], [(p, "\n".join(o), "\n".join(n)) for p, o, n in hunks]


def patched(folder, hunks):
    """The texts of the files that a patch changes, by name; ValueError where it does not fit."""
    texts = {}
    for name, old, new in hunks:
        path = folder / name
        if not old and not path.exists():
            texts[name] = new + "\n"
            continue
        if name not in texts:
            texts[name] = path.read_text(encoding="utf-8") if path.exists() else ""
        if (n := texts[name].count(old + "\n")) != 1:
            raise ValueError(f"its lines occur {n} times in {name}")
        texts[name] = texts[name].replace(old + "\n", new + "\n")
    return texts


class Copy:
    """A built copy of the source tree that faults are applied to."""

    def __init__(self, folder):
        self.folder = folder
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                skipped = shutil.ignore_patterns("__pycache__", "_build", "debug*", "*sanitize*")
                shutil.copytree(source, folder / name, ignore=skipped)
            elif source.exists():
                shutil.copy2(source, folder / name)
        self.build()
        self.built = folder.with_name("built")
        for name in RESTORED:
            shutil.copytree(folder / name, self.built / name)

    def run(self, *command):
        own = {"PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        own |= {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
        try:
            return subprocess.run(
                [sys.executable, *command],
                cwd=self.folder,
                env=os.environ | own,
                timeout=TIME_LIMIT,
                capture_output=True,
                text=True,
            )
        except subprocess.TimeoutExpired:
            return None

    def build(self):
        done = self.run("setup.py", "--quiet", "build_ext", "--inplace")
        if done is None or done.returncode:
            raise RuntimeError(done.stderr[-3000:] if done else "the build takes too long")

    def apply(self, hunks):
        """Apply a patch; ValueError where it does not fit."""
        changed = set()
        for name, text in patched(self.folder, hunks).items():
            path = self.folder / name
            before = path.stat() if path.exists() else None
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            if path.suffix == ".h" and before:
                # The build compiles every kernel when a header changes; only these include it.
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
                for library in self.folder.glob("build/*/lib-*/**/*.*"):
                    if library.name.split(".")[0] in self.users(path.stem):
                        library.unlink()
            changed.add(path.suffix)
        if changed & set(SUFFIXES):
            self.build()

    def users(self, header):
        """Names of the files that include a header, directly or through others."""
        users, texts = {header}, {}
        for path in self.folder.glob("skforest/**/*.*"):
            if path.suffix in SUFFIXES:
                texts[path.stem] = texts.get(path.stem, "") + path.read_text(encoding="utf-8")
        while more := {
            name
            for name, text in texts.items()
            if name not in users
            and any(re.search(rf'\b{u}\.h"|from \S*\b{u} cimport', text) for u in users)
        }:
            users |= more
        return users

    def restore(self):
        """Undo a patch, and what was built with it."""
        for name in RESTORED:
            for path in (self.folder / name).rglob("*"):
                if path.is_file() and not (self.built / path.relative_to(self.folder)).exists():
                    path.unlink()
        for source in self.built.rglob("*"):
            path, of_source = self.folder / source.relative_to(self.built), source.stat()
            if source.is_file() and (
                not path.exists()
                or path.stat().st_mtime_ns != of_source.st_mtime_ns
                or path.stat().st_size != of_source.st_size
                or path.suffix in SUFFIXES
            ):
                shutil.copy2(source, path)

    def test(self, *tests):
        done = self.run("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests)
        if done is None:
            return FAILS, None
        failed = re.search(r"^(?:FAILED|ERROR) (tests/.*?)( - .*)?$", done.stdout, re.MULTILINE)
        return done.returncode, failed and failed[1]


def judge(copy, patch):
    """What became of a fault: a word, and more about it."""
    user, tests, hunks = read(patch)
    try:
        copy.apply(hunks)
    except ValueError as error:
        copy.restore()
        return "DOES NOT APPLY", str(error)
    except RuntimeError as error:
        copy.restore()
        return "DOES NOT BUILD", str(error)
    code, failed = copy.test(*tests)
    copy.restore()
    if code == 0:
        return "SURVIVED", user
    if code > 2:
        return "NOT TESTED", f"pytest ended with {code}: are all test files still there?"
    # Below 0: a signal ended the process.
    if failed and copy.test(failed)[0]:
        return "FAILS ANYWAY", f"{failed} also fails without the fault"
    return "caught", failed or f"exit code {code}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="only patches whose names contain one of these")
    parser.add_argument("--list", action="store_true", help="what users would see; nothing is run")
    parser.add_argument("--folder", type=Path, default=HERE, help="of the patches; default: this")
    arguments = parser.parse_args()
    patches = sorted(arguments.folder.glob("*.patch"))
    if arguments.names:
        patches = [p for p in patches if any(name in p.stem for name in arguments.names)]
    bad = 0
    if arguments.list:
        for patch in patches:
            user, _, hunks = read(patch)
            try:
                patched(ROOT, hunks)
            except ValueError as error:
                bad, user = bad + 1, f"DOES NOT APPLY: {error}"
            print(f"{patch.stem}: {user}")
        return int(bad > 0)
    with tempfile.TemporaryDirectory(prefix="skforest-mutants-") as folder:
        copy = Copy(Path(folder) / "copy")
        for patch in patches:
            start = time.perf_counter()
            word, more = judge(copy, patch)
            bad += word != "caught"
            print(
                f"{word:<15}{patch.stem:<40}{time.perf_counter() - start:4.0f} s  {more}",
                flush=True,
            )
    print(f"{len(patches) - bad} of {len(patches)} faults are noticed")
    return int(bad > 0 or not patches)


if __name__ == "__main__":
    sys.exit(main())
