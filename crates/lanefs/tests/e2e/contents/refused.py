"""refused.py FILE OTHER: what is not done says so as on other file systems."""
import array
import ctypes
import errno
import fcntl
import os
import select
import sys

fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_TRUNC)
other = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT | os.O_TRUNC)
os.write(fd, b"x" * 10000)
FICLONE, FIONREAD, FIGETBSZ, FIEMAP = 0x40049409, 0x541B, 2, 0xC020660B
GETFLAGS, SETFLAGS, GETVERSION, GETXATTR = 0x80086601, 0x40086602, 0x80087601, 0x801C581F


def ioctl(number):
    value = array.array("i", [0] * 64)
    try:
        fcntl.ioctl(fd, number, value, True)
    except OSError as error:
        return errno.errorcode[error.errno]
    return value[0]


for number in (GETFLAGS, SETFLAGS, GETVERSION, GETXATTR, 0x5401):
    assert ioctl(number) == "ENOTTY", hex(number)
assert ioctl(FIEMAP) in ("ENOTSUP", "EOPNOTSUPP")
assert ioctl(FIGETBSZ) > 0
os.lseek(fd, 9000, os.SEEK_SET)
assert ioctl(FIONREAD) == 1000
try:
    fcntl.ioctl(other, FICLONE, fd)
    sys.exit("a clone")
except OSError as error:
    assert error.errno == errno.EOPNOTSUPP, error

both = select.POLLIN | select.POLLOUT
poll = select.poll()
poll.register(fd, both)
assert poll.poll(0) == [(fd, both)], "a file is always ready"

assert os.copy_file_range(fd, other, 9000, 5, 3) == 9000
assert os.pread(other, 20000, 0) == b"\0\0\0" + b"x" * 9000
assert os.copy_file_range(fd, other, 10, 10000, 0) == 0, "nothing behind the end"
copied = 0
os.ftruncate(fd, 1 << 20)
while piece := os.copy_file_range(fd, other, 1 << 30, copied, copied):
    copied += piece
assert copied == 1 << 20
assert os.pread(other, 1 << 20, 0) == os.pread(fd, 1 << 20, 0)
try:
    os.copy_file_range(fd, fd, 100, 0, 50)
    sys.exit("a copy over itself")
except OSError as error:
    assert error.errno == errno.EINVAL, error
assert ctypes.CDLL(None).syncfs(fd) == 0
print("same")
