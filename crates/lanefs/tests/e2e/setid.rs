//! What running a file gives, its contents' change takes away: as on the local file system.

use crate::fixture::{Fixture, must, program, skip};
use crate::script_comparison::{has, same};

#[test]
fn a_write_takes_set_id_bits_away() {
    let Some(fixture) = Fixture::new("set-id") else { return };
    let up = fixture.up(&[]);
    same(
        &fixture,
        &up.dir,
        r#"
        fresh() { rm -f f; echo 12345 >f; chown 5001:5002 f; chmod $1 f; }
        for mode in 4755 2745 6777 755; do
            for who in 5001:5002 0:0 5001:9:5002 5001:9; do
                for how in 'echo x >>f' 'echo x 1<>f' ': >f' ': >>f' 'truncate -s 3 f' 'truncate -s 9 f' \
                    'chgrp 5002 f' 'chown 5001 f' 'chown 5001:5002 f' 'chmod 6755 f' 'chmod g+s f' \
                    'dd if=/dev/zero of=f bs=1 count=3 conv=notrunc status=none' 'cat f >/dev/null' 'touch f' \
                    'fallocate -l 9 f' 'fallocate -p -o 1 -l 3 f' 'fallocate -z -l 99 f' \
                    'exec 3<>f; echo a >&3; echo b >&3' 'cp /bin/true f' 'ln f g; mv g f' 'dd of=f count=0 status=none'; do
                    fresh $mode
                    as $who sh -c "$how" 2>/dev/null
                    echo "$mode $who $how: $? $(stat -c '%a %s' f)"
                done
            done
        done
        umask 0; as 5001:5002 sh -c 'umask 0; install -m 6755 /bin/true made 2>&1'; ls made 2>&1
        mkdir d; chmod 6777 d; chown 5001:5002 d; stat -c %a d; as 5001:5002 chgrp 5002 d; stat -c %a d
        touch d/f; mkdir d/e; stat -c '%a %g' d/f d/e; chmod 777 d; stat -c %a d
    "#,
    );
    up.stop();
}

#[test]
fn a_write_takes_capabilities_away() {
    if !has("setcap") || !has("getcap") {
        return skip("capabilities", "needs setcap and getcap (package libcap2-bin)");
    }
    let Some(fixture) = Fixture::new("capabilities") else { return };
    let up = fixture.up(&[]);
    same(
        &fixture,
        &up.dir,
        r#"
        for how in 'echo x >>f' ': >f' ': >>f' 'truncate -s 1 f' 'chown 0 f' 'chown 5001 f' 'chmod 700 f' \
            'chmod 4755 f' 'touch f' 'cat f >/dev/null' 'exec 3<>f; echo a >&3; echo b >&3' 'mv f g; mv g f' \
            'cp -a f g; mv g f' 'setcap -r f' 'as 5001:1 setcap cap_chown+ep f' 'as 5001:1 sh -c "echo y >>f"'; do
            rm -f f; cp /bin/true f; chmod 4777 f
            try setcap cap_net_raw,cap_chown+ep f; getcap -n f
            eval "$how" 2>/dev/null; echo "$how: $? $(stat -c %a f) $(getcap -n f)"
        done
    "#,
    );
    up.stop();
}

#[test]
fn the_other_mount_sees_and_does_the_same() {
    let Some(fixture) = Fixture::new("set-id-two") else { return };
    let up = fixture.up(&[]);
    let other = fixture.mount(&up.address, "other", &["--export", "up"]);
    let sh = |text: &str, dir: &std::path::Path| {
        must(program("sh").args(["-c", text]).current_dir(dir)).trim().to_owned()
    };
    let write = "setpriv --reuid=5001 --regid=5001 --clear-groups sh -c 'echo x >>f'";
    sh("echo 1 >f; chmod 6777 f; stat -c %a f", &up.dir);
    assert_eq!(sh("stat -c %a f", &other.dir), "6777");
    sh(write, &other.dir);
    assert_eq!(sh("stat -c %a f", &up.dir), "777");
    sh("chmod 4777 f", &other.dir);
    sh(write, &up.dir);
    assert_eq!(sh("stat -c %a f", &other.dir), "777");
    other.stop();
    up.stop();
}

/// Opens a file in one directory, lets root give it bits or capabilities in the other (the same one,
/// seen by another mount), and has another user change its contents through the open file.
const GIVEN_LATER: &str = r#"
import ctypes, errno, mmap, os, struct, sys
opened, given = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
CAPABLE = struct.pack('<IIIII', 0x02000001, 0x1, 0, 0, 0)
def fallocate(fd, mode):
    if libc.fallocate(fd, mode, 1000, 5000): raise OSError(ctypes.get_errno(), 'fallocate')
def direct(fd):
    page = mmap.mmap(-1, 4096); page.write(b'd' * 4096); os.pwrite(fd, page, 4096)
def copy(fd):
    source = os.open(os.path.join(opened, 'source'), os.O_RDONLY)
    os.copy_file_range(source, fd, 5, 0, 3)
def splice(fd):
    there, here = os.pipe(); os.write(here, b'spliced'); os.splice(there, fd, 7)
def sendfile(fd):
    os.sendfile(fd, os.open(os.path.join(opened, 'source'), os.O_RDONLY), 0, 9)
def mapped(fd):
    with mmap.mmap(fd, 4096) as m: m[5] = 65; m.flush()
HOW = {'write': lambda fd: os.write(fd, b'x'), 'writev': lambda fd: os.writev(fd, [b'x', b'y']),
       'nothing': lambda fd: os.write(fd, b''), 'read': lambda fd: os.read(fd, 9),
       'ftruncate': lambda fd: os.ftruncate(fd, 5), 'reserve': lambda fd: fallocate(fd, 0),
       'punch': lambda fd: fallocate(fd, 3), 'zero': lambda fd: fallocate(fd, 16), 'direct': direct,
       'copy': copy, 'splice': splice, 'sendfile': sendfile, 'mapped': mapped}
IDS = {'stranger': (5001, 5001, []), 'member': (5001, 5001, [5002]), 'root': (0, 0, [])}
def state(path):
    try: capable = bool(os.getxattr(path, 'security.capability'))
    except OSError as error: capable = errno.errorcode[error.errno]
    return '%o %s' % (os.stat(path).st_mode & 0o7777, capable)
open(os.path.join(opened, 'source'), 'w').write('0123456789' * 10)
for how, act in HOW.items():
    for who, ids in IDS.items():
        for mode in (0o4777, 0o2777, 0o6755, 0o2767, 0o777):
            for capable in (False, True):
                flags = os.O_RDWR | (os.O_DIRECT if how == 'direct' else 0)
                fd = os.open(os.path.join(opened, 'f'), flags | os.O_CREAT, 0o666)
                os.truncate(fd, 8192)
                path = os.path.join(given, 'f')
                os.chown(path, 0, 5002); os.chmod(path, mode)
                if capable: os.setxattr(path, 'security.capability', CAPABLE)
                before = state(path)
                child = os.fork()
                if child == 0:
                    uid, gid, groups = ids
                    os.setgroups(groups); os.setresgid(gid, gid, gid); os.setresuid(uid, uid, uid)
                    try: act(fd)
                    except OSError as error: print(errno.errorcode[error.errno], end=' ')
                    sys.stdout.flush(); os._exit(0)
                os.waitpid(child, 0)
                print(how, who, before, '->', state(path), os.fstat(fd).st_size)
                os.close(fd); os.unlink(path)
"#;

#[test]
fn privileged_bits_set_while_a_file_is_open_are_cleared_by_the_next_change() {
    let Some(fixture) = Fixture::new("set-id-later") else { return };
    let up = fixture.up(&["--lanes", "2"]);
    let other = fixture.mount(&up.address, "other", &["--export", "up"]);
    let local = fixture.make_dir("local");
    let said = |opened: &std::path::Path, given: &std::path::Path| {
        must(program("python3").args(["-c", GIVEN_LATER]).arg(opened).arg(given))
    };
    let expected = said(&local, &local);
    assert_eq!(expected.lines().count(), 13 * 3 * 5 * 2, "{expected}");
    for (opened, given) in [(&up.dir, &up.dir), (&up.dir, &other.dir), (&other.dir, &up.dir)] {
        let found = said(opened, given);
        let differs = expected.lines().zip(found.lines()).find(|(local, mount)| local != mount);
        assert_eq!(differs, None, "on ext4, on the mount");
        assert_eq!(found.lines().count(), expected.lines().count());
    }
    other.stop();
    up.stop();
}
