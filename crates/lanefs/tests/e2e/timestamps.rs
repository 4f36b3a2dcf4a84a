//! Which call updates which time: as on the local file system, mounted with relatime as that is.

use crate::fixture::{Fixture, must, program};
use crate::script_comparison::same;
use rustix::fs::{Timespec, Timestamps, UTIME_NOW};
use std::fs::File;
use std::time::{Duration, SystemTime};

/// A python program: steps, and after each which times of which names are another or out of order.
const STEPS: &str = r#"
python3 - <<'EOF'
import os, time, mmap, errno, subprocess
def stamp(name):
    s = os.lstat(name)
    return (s.st_atime_ns, s.st_mtime_ns, s.st_ctime_ns)
def tick():
    before = time.clock_gettime_ns(5)
    while time.clock_gettime_ns(5) < before + 9_000_000: pass
def step(what, act, *names):
    tick()
    before = {name: stamp(name) if os.path.lexists(name) else None for name in names}
    try: result = act()
    except OSError as error: result = errno.errorcode[error.errno]
    if not isinstance(result, (str, type(None))): result = None
    said = []
    for name in names:
        if not os.path.lexists(name): said.append(name + ':missing'); continue
        after, old = stamp(name), before[name]
        if old is None: said.append(name + ':new'); continue
        changed = ''.join(field for field, a, b in zip('amc', after, old) if a != b)
        later = ''.join(field for field, a, b in zip('amc', after, old) if a > b)
        said.append(name + ':' + changed + ('' if later == changed else '(later ' + later + ')'))
    print(what, ' '.join(said), result or '')
def put(name, data, flags=os.O_WRONLY | os.O_CREAT):
    fd = os.open(name, flags, 0o644)
    if data: os.write(fd, data)
    os.close(fd)
def read(name, count=10, flags=0):
    fd = os.open(name, os.O_RDONLY | flags); os.read(fd, count); os.close(fd)
def mapped(name):
    with open(name, 'rb') as f: mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[0]
step('create', lambda: put('f', b'x' * 100), 'f', '.')
for again in 1, 2: step('read', lambda: read('f'), 'f')
step('write', lambda: put('f', b'y'), 'f', '.')
for again in 1, 2: step('read', lambda: read('f'), 'f')
step('chmod', lambda: os.chmod('f', 0o600), 'f', '.')
for again in 1, 2: step('read', lambda: read('f'), 'f')
step('chown', lambda: os.chown('f', 5, 5), 'f')
step('chown to the same', lambda: os.chown('f', 5, 5), 'f')
step('noatime', lambda: read('f', 10, os.O_NOATIME), 'f')
step('read', lambda: read('f'), 'f')
step('setxattr', lambda: os.setxattr('f', 'user.k', b'v'), 'f')
step('read', lambda: read('f'), 'f')
step('getxattr', lambda: os.getxattr('f', 'user.k'), 'f')
step('removexattr', lambda: os.removexattr('f', 'user.k'), 'f')
step('read', lambda: read('f'), 'f')
step('link', lambda: os.link('f', 'g'), 'f', '.')
step('read', lambda: read('g'), 'f')
step('unlink', lambda: os.unlink('g'), 'f', '.')
step('rename', lambda: os.rename('f', 'g'), 'g', '.')
step('rename back', lambda: os.rename('g', 'f'), 'f', '.')
step('read at the end', lambda: read('f'), 'f')
step('chmod', lambda: os.chmod('f', 0o644), 'f')
step('open and close', lambda: read('f', 0), 'f')
step('truncate', lambda: os.truncate('f', 50), 'f')
step('truncate to the same', lambda: os.truncate('f', 50), 'f')
step('truncate longer', lambda: os.truncate('f', 5000), 'f')
step('write nothing', lambda: put('f', b''), 'f')
step('O_TRUNC', lambda: put('f', b'', os.O_WRONLY | os.O_TRUNC), 'f')
step('O_TRUNC of nothing', lambda: put('f', b'', os.O_WRONLY | os.O_TRUNC), 'f')
step('read nothing', lambda: read('f'), 'f')
step('write', lambda: put('f', b'z' * 5000), 'f')
step('mmap read', lambda: mapped('f'), 'f')
for second in -5, -1.5, 0, 2**31 + 1, 2**32 - 1, 15e9:
    ns = int(second * 10**9) + 123456789
    def set_it(): os.utime('f', ns=(ns, ns + 7))
    step('utimens %r' % second, set_it, 'f')
    print(stamp('f')[:2])
step('read after', lambda: read('f'), 'f')
step('atime of old', lambda: os.utime('f', ns=(10**9, time.time_ns())), 'f')
for again in 1, 2: step('read', lambda: read('f'), 'f')
step('atime beyond', lambda: os.utime('f', ns=(time.time_ns() + 10**12, 10**9)), 'f')
step('read', lambda: read('f'), 'f')
step('touch -a', lambda: subprocess.run(['touch', '-a', 'f']) and None, 'f')
step('touch -m', lambda: subprocess.run(['touch', '-m', 'f']) and None, 'f')
step('touch', lambda: subprocess.run(['touch', 'f']) and None, 'f')
step('mkdir', lambda: os.mkdir('d'), 'd', '.')
for again in 1, 2: step('list', lambda: os.listdir('d'), 'd')
step('in it', lambda: put('d/x', b''), 'd', '.')
for again in 1, 2: step('list', lambda: os.listdir('d'), 'd')
step('lookup', lambda: os.stat('d/x'), 'd')
step('write in it', lambda: put('d/x', b'1'), 'd')
step('move in', lambda: os.rename('f', 'd/f'), 'd/f', 'd', '.')
step('move over', lambda: os.rename('d/f', 'd/x'), 'd/x', 'd')
step('list', lambda: os.listdir('d'), 'd')
step('chmod', lambda: os.chmod('d', 0o700), 'd')
for again in 1, 2: step('list', lambda: os.listdir('d'), 'd')
step('move dir', lambda: os.rename('d', 'e'), 'e', '.')
step('unlink in it', lambda: os.unlink('e/x'), 'e')
step('rmdir', lambda: os.rmdir('e'), '.')
step('symlink', lambda: os.symlink('target', 'l'), 'l', '.')
for again in 1, 2: step('readlink', lambda: os.readlink('l') and None, 'l')
step('lchown', lambda: os.lchown('l', 5, 5), 'l')
for again in 1, 2: step('readlink', lambda: os.readlink('l') and None, 'l')
step('lutime', lambda: os.utime('l', ns=(5, 6), follow_symlinks=False), 'l')
step('fifo', lambda: os.mkfifo('p'), 'p', '.')
step('failing unlink', lambda: os.unlink('nothing'), '.')
step('failing mkdir', lambda: os.mkdir('l'), 'l', '.')
put('s', b'#!/bin/sh\n'); os.chmod('s', 0o755)
step('execute', lambda: subprocess.run(['./s']) and None, 's')
step('execute', lambda: subprocess.run(['./s']) and None, 's')
EOF
"#;

#[test]
fn each_call_updates_its_times() {
    let Some(fixture) = Fixture::new("times") else { return };
    let up = fixture.up(&["--leases", "off"]);
    same(&fixture, &up.dir, STEPS);
    up.stop();
}

/// What is read from a cache sets no time of access.
#[test]
fn each_call_updates_its_times_with_leases() {
    let Some(fixture) = Fixture::new("times_leases") else { return };
    let server = fixture.serve("127.0.0.1:0");
    let mount = fixture.mount(&server.address, "mnt", &["--export", "up", "--leases", "on"]);
    let fields = "zip('amc', after, old)";
    assert!(STEPS.contains(fields));
    same(&fixture, &mount.dir, &STEPS.replace(fields, "list(zip('amc', after, old))[1:]"));
    mount.stop();
}

#[test]
fn times_are_set_by_those_with_the_right() {
    let Some(fixture) = Fixture::new("times-who") else { return };
    let up = fixture.up(&[]);
    same(
        &fixture,
        &up.dir,
        r#"
        touch own other ro; chown 5001:5001 own; chmod 666 other; chmod 644 ro
        for f in own other ro; do for how in '' -a -m '-d @5' '-a -d @5' '-m -d @5'; do
            try as 5001:5001 touch $how $f; done; done
        try touch -h -d @77 nothing; ln -s own l; try as 5001:5001 touch -h -d @5 l; try touch -h -d @-9.5 l
        stat -c '%n %X %Y' l own | sed 's/ 1[0-9]\{9\}/ now/g'; stat -c %.9Y l
    "#,
    );
    up.stop();
}

/// The server's clock follows the machine's once a second.
#[test]
fn now_lies_between_before_and_after() {
    const SLACK: Duration = Duration::from_secs(1);
    let Some(fixture) = Fixture::new("times_now") else { return };
    let up = fixture.up(&[]);
    let file = File::create(up.dir.join("f")).unwrap();
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    for _ in 0..20 {
        let before = SystemTime::now() - SLACK;
        let times = Timestamps { last_access: now, last_modification: now };
        rustix::fs::futimens(&file, &times).unwrap();
        let found = file.metadata().unwrap();
        let after = SystemTime::now() + SLACK;
        for time in [found.accessed().unwrap(), found.modified().unwrap()] {
            assert!((before..=after).contains(&time), "{before:?} {time:?} {after:?}");
        }
    }
    up.stop();
}

/// Reads through one mount show at the other, and the first one counts.
#[test]
fn a_read_is_seen_at_the_other_mount_and_counts_once() {
    let Some(fixture) = Fixture::new("times-two") else { return };
    let up = fixture.up(&[]);
    let other = fixture.mount(&up.address, "other", &["--export", "up"]);
    let sh = |text: &str, dir: &std::path::Path| {
        must(program("bash").args(["-c", text]).current_dir(dir)).trim().to_owned()
    };
    sh(
        "for n in {1..100}; do echo $n >f$n; touch -a -d @100 f$n; done; mkdir d; ln -s x l",
        &up.dir,
    );
    assert_eq!(sh("stat -c %X f1", &other.dir), "100");
    sh("cat f* >/dev/null", &other.dir);
    let before = sh("stat -c '%n %.9X' f*", &up.dir);
    assert!(!before.contains(" 100."), "{before}");
    for _ in 0..3 {
        sh("cat f* >/dev/null", &other.dir);
        sh("cat f* >/dev/null; ls d; readlink l", &up.dir);
    }
    assert_eq!(sh("stat -c '%n %.9X' f*", &up.dir), before, "the first read counts");
    other.stop();
    up.stop();
}

#[test]
fn the_time_of_birth_stays() {
    let Some(fixture) = Fixture::new("birth") else { return };
    let mut up = fixture.up(&["--lanes", "2"]);
    let script = r#"
        mkdir d e
        for made in ': >d/x' 'mkdir d/x' 'ln -s nowhere d/x' 'mkfifo d/x' 'mknod d/x c 1 3'; do
            eval "$made"; birth=$(stat -c %.9W d/x)
            test "$birth" = "$(stat -c %.9Z d/x)" && echo "$made: as old as its other times"
            for how in 'chown -h 7 d/x' 'mv d/x e/x; mv e/x d/x' 'ln d/x e/y; rm e/y' 'touch -hd 1999-01-01 d/x' \
                'setfattr -hn trusted.k -v v d/x' 'test ! -f d/x || echo contents >d/x'; do
                eval "$how" 2>/dev/null; echo "$how $?"
                test "$birth" = "$(stat -c %.9W d/x)" || echo "$made: born again by $how"
            done
            rm -r d/x
        done
        test $(stat -c %W d) -ge $(stat -c %W .) && echo "the directory is older"
    "#;
    same(&fixture, &up.dir, script);
    let birth = |dir: &std::path::Path| {
        must(program("stat").args(["-c", "%w"]).arg(dir.join("d"))).trim().to_owned()
    };
    let born = birth(&up.dir);
    assert!(born.starts_with("20"), "{born}");
    let other = fixture.mount(&up.address, "other", &["--export", "up"]);
    assert_eq!(birth(&other.dir), born, "at the other mount");
    up.kill_server();
    assert_eq!(birth(&other.dir), born, "after a restart");
    let said = must(&mut fixture.lanefs(["stat", &up.url("/d")]));
    assert!(said.contains(&format!("\n Birth: {born}\n")), "{said}\n{born}");
    other.stop();
    up.stop();
}
