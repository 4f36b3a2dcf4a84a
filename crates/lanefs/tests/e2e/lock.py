"""Locks files as it is told, line by line: `lock.py FILE ...`, answers on stdout.

flock sh|ex|un [nb]     lockf r|w|u START LEN [nb]     ofd r|w|u START LEN [nb]
get r|w START LEN       open       close        add COUNT        end
`on N ...` does it with the Nth file, else it is the first; `open` opens the first once more.
`signal` lets SIGUSR1 interrupt what blocks. Each line is answered with `ok`, or with errno's name.
"""
import errno
import fcntl
import os
import signal
import struct
import sys

OFD = {False: 37, True: 38}  # F_OFD_SETLK, F_OFD_SETLKW
TYPES = {"r": fcntl.F_RDLCK, "w": fcntl.F_WRLCK, "u": fcntl.F_UNLCK}
FLOCKS = {"sh": fcntl.LOCK_SH, "ex": fcntl.LOCK_EX, "un": fcntl.LOCK_UN}
LAYOUT = "hhqqi4x"


def row(kind, start, length):
    return struct.pack(LAYOUT, TYPES[kind], os.SEEK_SET, int(start), int(length), 0)


class Interrupted(Exception):
    pass


def interrupt(*_):
    raise Interrupted


def add(files, count):
    for _ in range(count):
        fcntl.lockf(files[0], fcntl.LOCK_EX, 8, 0)
        number = int(os.pread(files[0], 32, 0) or b"0")
        os.pwrite(files[0], b"%-16d" % (number + 1), 0)
        fcntl.lockf(files[0], fcntl.LOCK_UN, 8, 0)


def do(files, path, words):
    if words[0] == "on":
        return do(files[int(words[1]):], path, words[2:])
    waits = words[-1] != "nb"
    what = words[0]
    if what == "flock":
        fcntl.flock(files[0], FLOCKS[words[1]] | (0 if waits else fcntl.LOCK_NB))
    elif what == "lockf":
        command = fcntl.F_SETLKW if waits else fcntl.F_SETLK
        fcntl.fcntl(files[0], command, row(*words[1:4]))
    elif what == "ofd":
        fcntl.fcntl(files[0], OFD[waits], row(*words[1:4]))
    elif what == "get":
        found = fcntl.fcntl(files[0], fcntl.F_GETLK, row(*words[1:4]))
        kind, _, start, length, pid = struct.unpack(LAYOUT, found)
        name = {number: name for name, number in TYPES.items()}[kind]
        return f"{name} {start} {length} {pid}"
    elif what == "open":
        files.append(os.open(path, os.O_RDWR))
    elif what == "close":
        os.close(files.pop())
    elif what == "add":
        add(files, int(words[1]))
    elif what == "fsync":
        os.fsync(files[0])
    elif what == "signal":
        signal.signal(signal.SIGUSR1, interrupt)
    return "ok"


def main():
    path = sys.argv[1]
    files = [os.open(path, os.O_RDWR | os.O_CREAT, 0o644) for path in sys.argv[1:]]
    print(f"pid {os.getpid()}", flush=True)
    for line in sys.stdin:
        words = line.split()
        if words == ["end"]:
            break
        try:
            answer = do(files, path, words)
        except Interrupted:
            answer = "EINTR"
        except OSError as error:
            names = {errno.EDEADLK: "EDEADLK"}  # The number has two.
            answer = names.get(error.errno) or errno.errorcode[error.errno]
        print(f"{' '.join(words)}: {answer}", flush=True)


main()
