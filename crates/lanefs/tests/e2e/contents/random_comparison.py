"""The same done to two files, one of them on a mount, which are the same after every step.

random_comparison.py LOCAL HERE THERE SEED COUNT: HERE and THERE are one file over two mounts.
"""
import ctypes
import mmap
import os
import random
import sys

KEEP, PUNCH, ZERO = 1, 2, 16
SIZE_MAX = 600_000
local, here, there, seed, count = sys.argv[1:4] + [int(number) for number in sys.argv[4:]]
prng = random.Random(seed)
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]


def fallocate(fd, mode, at, length):
    if libc.fallocate(fd, mode, at, length) != 0:
        return -ctypes.get_errno()
    return 0


def read(fd, at, length):
    found = b""
    while len(found) < length:
        piece = os.pread(fd, length - len(found), at + len(found))
        if not piece:
            break
        found += piece
    return found


def copy(fd, to, at, target, length):
    """As often as it takes; where the ranges overlap the kernel refuses at once."""
    done = 0
    while done < length:
        try:
            moved = os.copy_file_range(fd, to, length - done, at + done, target + done)
        except OSError as error:
            return -error.errno
        if moved == 0:
            break
        done += moved
    return done


def mapped(fd, at, data):
    """Writes through a mapping, up to the file's end."""
    size = os.fstat(fd).st_size
    if at >= size:
        return 0
    with mmap.mmap(fd, size) as pages:
        data = data[: size - at]
        pages[at : at + len(data)] = data
        pages.flush()
    return len(data)


def holes(fd, size):
    """Every place that SEEK_DATA leaves out reads as zeros, and the end is a hole."""
    at = 0
    while at < size:
        try:
            data = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            assert error.errno == 6, error
            data = size
        assert at <= data <= size, (at, data, size)
        assert read(fd, at, data - at) == bytes(data - at), (at, data)
        if data == size:
            break
        at = os.lseek(fd, data, os.SEEK_HOLE)
        assert data < at <= size, (data, at, size)


def step(fd, kind, at, length, data, other):
    if kind == "write":
        return os.pwrite(fd, data, at)
    if kind == "append":
        appender = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_APPEND)
        done = os.write(appender, data)
        os.close(appender)
        return done
    if kind == "truncate":
        return os.ftruncate(fd, at)
    if kind == "mapped":
        return mapped(fd, at, data)
    if kind == "copy":
        return copy(fd, fd, at, other, length)
    return fallocate(fd, kind, at, length)


KINDS = ["write"] * 4 + ["append", "truncate", "mapped", "copy"]
KINDS += [0, KEEP, PUNCH | KEEP, PUNCH | KEEP, ZERO, ZERO | KEEP, 8, 32]
model = os.open(local, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
mounts = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC) for path in (here, there)]
for number in range(count):
    kind = prng.choice(KINDS)
    at, other, length = prng.randrange(SIZE_MAX), prng.randrange(SIZE_MAX), prng.randrange(1, 90_000)
    if prng.random() < 0.3:
        at, length = at & ~4095, length & ~4095 or 4096
    data = prng.randbytes(length)
    if kind in (8, 32):
        # Collapse and insert: a refusal, whatever the other file system says.
        assert fallocate(mounts[0], kind, at & ~4095, 4096) == -95
        continue
    size = os.fstat(model).st_size
    if kind == "append" and size + length > 2 * SIZE_MAX:
        kind = "truncate"
    who = mounts[number % 2]
    results = [step(fd, kind, at, length, data, other) for fd in (model, who)]
    assert results[0] == results[1], (number, kind, at, length, results)
    size = os.fstat(model).st_size
    for fd in mounts:
        assert os.fstat(fd).st_size == size, (number, kind, os.fstat(fd).st_size, size)
    wanted = read(model, 0, size)
    found = read(mounts[(number + 1) % 2], 0, size)
    if wanted != found:
        first = next(i for i in range(size) if wanted[i : i + 1] != found[i : i + 1])
        sys.exit(f"step {number} {kind} {at}+{length}: differs from byte {first} of {size}")
    if number % 7 == 0:
        holes(who, size)
print("same")
