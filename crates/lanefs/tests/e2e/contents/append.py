"""append.py FILE NAME COUNT: appends lines, each with one write."""
import os
import sys

path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for number in range(count):
    line = f"{name} {number:06}\n".encode() * (1 + number % 3)
    assert os.write(fd, line) == len(line)
