//! The measurements that the threads' authors published, in their words and numbers.

/// What, and how much.
type Published = &'static [(&'static str, &'static str)];

pub(super) const TIMERS: Published = &[
    ("getattr, 4 threads, 2 processors, slow clock", "44 µs"),
    ("1 thread, 2 processors, slow clock", "35 µs"),
    ("1 thread, 1 processor, cycle counter as the clock", "29 µs"),
    ("the threads' part: mutexes and conditions", "9 µs (26 %)"),
    ("the slow clock's part", "6 µs (21 %)"),
    ("create", "four times a getattr, for its four requests"),
];

pub(super) const AFFINITY: Published = &[
    (
        "16 cores, 40 clients: requests queued to another core",
        "up to 60 % less than to the same core",
    ),
    ("getattr at best", "about 630,000 requests a second"),
    ("writes of 4 KiB at best", "253,440 a second (990 MB/s)"),
    ("reads of 4 KiB at best", "163,840 a second (640 MB/s)"),
    ("open question", "does hashing by object trump hashing by client?"),
];

pub(super) const AIO: Published = &[
    ("12 clients read one file, glibc's POSIX AIO", "195.8 MB/s, with 2 processes each 138.8"),
    ("the same, a new thread for each operation", "443.1 MB/s, with 2 processes each 502.6"),
    ("12 clients read a file each, either way", "430 MB/s"),
    ("why", "glibc serves a descriptor by one thread, first come first served"),
    ("a pool of threads", "\"surprisingly\" dearer than a new thread for each operation"),
    (
        "local reads at depth, one descriptor, on the machine of these measurements",
        "glibc 29,500 a second, other ways 133,000 to 188,000",
    ),
];

pub(super) const SHARE: Published = &[
    (
        "creates with commit on share, 2 cores",
        "20 % less than without, 12 to 13 % without debugging",
    ),
    ("the same on 4 cores", "3 % less"),
    ("replies handled at each commit", "about 14,000"),
    ("dependencies found, commits added", "none, none"),
    ("where the time went", "one lock around all uncommitted replies"),
];

pub(super) const BOTTLENECKS: Published = &[
    ("a fileserver before a RAID of more than 200 MB/s", "1 to 10 MB/s"),
    ("context switches", "far above 100,000 a second"),
    ("1", "a thread for each call: switches"),
    ("2", "one thread receives"),
    ("3", "one datagram a system call"),
    ("4", "blocking I/O"),
    ("5", "too many readv and writev a megabyte: 16 pieces of 1.4 KB each"),
];
