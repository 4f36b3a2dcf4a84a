"""mapped.py HERE THERE: mappings, sendfile and O_DIRECT of one file over two mounts."""
import mmap
import os
import sys

here, there = [os.open(path, os.O_RDWR | os.O_CREAT) for path in sys.argv[1:]]
out = os.memfd_create("out")


def sent(fd):
    os.ftruncate(out, 0)
    os.sendfile(out, fd, 0, 6)
    return os.pread(out, 6, 0)


os.pwrite(here, b"x" * 8192, 0)
shared = mmap.mmap(here, 8192)
shared[0:4] = b"page"
assert os.pread(here, 4, 0) == b"page", "a read on the same mount sees what a mapping has"
shared.flush()
assert os.pread(there, 4, 0) == b"page", "msync shows it to everybody"
os.pwrite(here, b"direct", 100)
assert shared[100:106] == b"direct", "a mapping sees a write on the same mount"
os.pwrite(there, b"remote", 200)
assert os.fstat(here).st_size == 8192
assert shared[200:206] == b"remote", "a mapping sees another mount's write at the next access"
os.pwrite(there, b"second", 0)
os.fstat(here)
assert sent(here) == b"second", "so does sendfile"
with mmap.mmap(here, 8192, mmap.MAP_PRIVATE) as private:
    private[0:6] = b"mine  "
    assert os.pread(here, 6, 0) == b"second"
    assert private[0:6] == b"mine  "
shared[8190:8192] = b"!!"
shared.close()
os.fsync(here)
assert os.pread(there, 10, 8188) == b"xx!!", "what is mapped ends with the file"

pages = mmap.mmap(-1, 8192)
pages[:] = b"d" * 8192
for flags in (os.O_DIRECT, os.O_SYNC, os.O_DSYNC, os.O_DIRECT | os.O_SYNC):
    fd = os.open(sys.argv[1], os.O_RDWR | flags)
    assert os.pwritev(fd, [pages], 4096) == 8192
    assert os.pwrite(fd, b"odd", 4097) == 3, "no alignment is asked for"
    assert os.pread(there, 6, 4095) == os.pread(fd, 6, 4095)
    assert os.pread(there, 5, 4096) == b"doddd"
    os.close(fd)
assert os.pwritev(here, [b"S"], 0, os.RWF_DSYNC) == 1
assert os.pwritev(here, [b"A"], 0, os.RWF_APPEND) == 1
assert os.pread(there, 2, 12287) == b"dA"
print("same")
