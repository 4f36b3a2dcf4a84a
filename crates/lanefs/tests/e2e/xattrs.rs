//! Extended attributes: what each call answers is what the local file system answers.

use crate::fixture::{Fixture, must, program};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::path::Path;

/// Calls with their results, a line each; `as_user` runs the rest of a child process as another user.
const CALLS: &str = r#"
import ctypes, errno, os, socket, stat, sys
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    got = getattr(libc, name)(*args)
    return got if got >= 0 else errno.errorcode[ctypes.get_errno()]
def said(*words):
    text = ' '.join(str(word) for word in words)
    print(text if len(text) < 300 else text[:200] + '... %d' % len(text)); sys.stdout.flush()
def put(path, name, value=b'v', size=None, flags=0, how='lsetxattr'):
    return call(how, path, name, value, ctypes.c_size_t(len(value) if size is None else size), flags)
def get(path, name, size=70000, how='lgetxattr'):
    buffer = ctypes.create_string_buffer(max(size, 1))
    got = call(how, path, name, buffer if size else None, ctypes.c_size_t(size))
    return buffer.raw[:got][:40] if isinstance(got, int) and size else got
def names(path, size=70000, how='llistxattr'):
    buffer = ctypes.create_string_buffer(max(size, 1))
    got = call(how, path, buffer if size else None, ctypes.c_size_t(size))
    return sorted(buffer.raw[:got].split(b'\0')) if isinstance(got, int) and size else got
def drop(path, name, how='lremovexattr'): return call(how, path, name)
def as_user(uid, act):
    child = os.fork()
    if child == 0:
        if uid: os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
        try: act()
        except Exception as error: print('died:', error)
        sys.stdout.flush(); os._exit(0)
    os.waitpid(child, 0)
def fresh(path, mode=0o666, uid=5001):
    if os.path.lexists(path): os.unlink(path)
    open(path, 'w').close(); os.chmod(path, mode); os.chown(path, uid, uid)
os.umask(0)

for name in (b'', b'user', b'user.', b'USER.x', b'x', b'bogus.x', b'system.x', b'system.posix_acl_access',
             b'system.posix_acl_default', b'security.x', b'security.', b'security.capability', b'trusted.x', b'trusted.',
             b'user.x', b'user..', b'user.\xff\x01', b'user.' + b'n' * 250, b'user.' + b'n' * 251,
             b'trusted.' + b'n' * 247, b'trusted.' + b'n' * 248, b'n' * 255, b'n' * 256, b'n' * 5000):
    for uid in 0, 5001, 5002:
        fresh(b'f')
        as_user(uid, lambda: said('name', name[:20], len(name), uid, put(b'f', name), get(b'f', name), names(b'f'),
            # Linux lets anybody set capabilities that are empty; the server does not.
            'capability' if b'capability' in name else put(b'f', name, b'', 0, 2), drop(b'f', name), drop(b'f', name), get(b'f', name)))
fresh(b'f')
for size in 0, 1, 100, 3000, 65537, 1 << 20:
    said('size', size, put(b'f', b'user.s', b'x' * size), get(b'f', b'user.s', 0), names(b'f'))
said('null', put(b'f', b'user.null', None, 0), get(b'f', b'user.null'))
fresh(b'f')
for flags in 1, 2, 3, 4, 0, 1, 2, 0x80000000 - 1:
    said('flags of nothing', flags, put(b'f', b'user.none', flags=flags), drop(b'f', b'user.none'))
    said('flags', flags, put(b'f', b'user.f', b'%d' % flags, flags=flags), get(b'f', b'user.f'))
fresh(b'f')
for name, value in ((b'user.a', b'12345'), (b'user.bb', b''), (b'trusted.t', b'hidden'), (b'security.s', b'told')):
    said('for sizes', name, put(b'f', name, value))
for uid in 0, 5001, 5002:
    def sizes():
        for size in 0, 1, 4, 5, 6, 70000: said('get', uid, size, get(b'f', b'user.a', size), get(b'f', b'user.bb', size), get(b'f', b'trusted.t', size))
        whole = names(b'f', 0)
        for size in 0, 1, whole - 1, whole, whole + 1, 65536, 70000: said('list', uid, size, names(b'f', size))
    as_user(uid, sizes)
for mode in 0o000, 0o200, 0o400, 0o600, 0o004, 0o002:
    fresh(b'f', mode)
    put(b'f', b'user.x', b'old'); put(b'f', b'trusted.x', b'old'); put(b'f', b'security.x', b'old')
    for uid in 5001, 5002, 0:
        for name in b'user.x', b'trusted.x', b'security.x':
            as_user(uid, lambda: said('mode %o' % mode, uid, name, get(b'f', name), put(b'f', name, b'new'), names(b'f'), drop(b'f', name), put(b'f', name, b'old')))
def kinds():
    os.mkdir(b'dir'); os.symlink(b'f', b'link'); os.symlink(b'nowhere', b'dangling'); os.mkfifo(b'fifo')
    os.mknod(b'dev', stat.S_IFCHR | 0o666, os.makedev(1, 3)); socket.socket(socket.AF_UNIX).bind('sock')
    fresh(b'f')
    for path in b'dir', b'link', b'dangling', b'fifo', b'dev', b'sock':
        os.lchown(path, 5001, 5001)
        for uid in 0, 5001, 5002:
            for name in b'user.k', b'trusted.k', b'security.k', b'system.posix_acl_access', b'system.posix_acl_default', b'bogus.k':
                as_user(uid, lambda: said(path, uid, name, put(path, name), get(path, name), names(path), drop(path, name), get(path, name, 0)))
    for path in b'link', b'dangling':
        said('through', path, put(path, b'user.t', how='setxattr'), get(path, b'user.t', how='getxattr'), names(path, how='listxattr'), names(path), drop(path, b'user.t', how='removexattr'))
kinds()
for mode in 0o777, 0o1777, 0o1755, 0o1770:
    for owner in 0, 5001:
        os.mkdir(b's'); os.chown(b's', owner, owner); os.chmod(b's', mode); put(b's', b'user.old')
        for uid in 5001, 5002, 0:
            as_user(uid, lambda: said('sticky %o' % mode, owner, uid, put(b's', b'user.k'), get(b's', b'user.k'), get(b's', b'user.old'), drop(b's', b'user.old'), put(b's', b'user.old')))
        os.rmdir(b's')
fresh(b'f')
for flags in os.O_RDONLY, os.O_WRONLY, os.O_PATH:
    fd = os.open(b'f', flags)
    said('fd', flags, put(fd, b'user.fd', how='fsetxattr'), get(fd, b'user.fd', how='fgetxattr'), names(fd, how='flistxattr'), drop(fd, b'user.fd', how='fremovexattr'))
os.unlink(b'f')
said('removed', put(b'f', b'user.k'), get(b'f', b'user.k'), names(b'f'), drop(b'f', b'user.k'), put(b'f/x', b'user.k'))
fresh(b'f')
fd = os.open(b'f', os.O_RDWR); os.unlink(b'f')
said('unlinked', put(fd, b'user.fd', how='fsetxattr'), get(fd, b'user.fd', how='fgetxattr'), names(fd, how='flistxattr'))
"#;

#[test]
fn every_call_answers_as_on_the_local_file_system() {
    let Some(fixture) = Fixture::new("xattrs") else { return };
    let up = fixture.up(&["--lanes", "2"]);
    let said = |dir: &Path| must(program("python3").args(["-c", CALLS]).arg(dir));
    let mounted = up.dir.join("dir");
    std::fs::create_dir(&mounted).unwrap();
    let (here, there) = (said(&fixture.make_dir("local")), said(&mounted));
    assert!(here.lines().count() > 200 && !here.contains("died"), "{here}");
    let pairs = here.lines().zip(there.lines());
    let differs: Vec<_> = pairs.filter(|(local, mount)| local != mount).collect();
    assert!(differs.is_empty(), "on ext4, on the mount: {differs:#?}");
    assert_eq!(here.lines().count(), there.lines().count());
    up.stop();
}

#[test]
fn a_file_without_an_selinux_label_says_that_labels_are_not_supported() {
    let Some(fixture) = Fixture::new("labels") else { return };
    let up = fixture.up(&[]);
    let label = "security.selinux";
    let value = |path: &Path| {
        let mut value = [0; 100];
        rustix::fs::getxattr(path, label, &mut value).map(|count| value[..count].to_vec())
    };
    let [plain, labelled] = ["plain", "labelled"].map(|name| up.dir.join(name));
    for path in [&plain, &labelled] {
        std::fs::write(path, "x").unwrap();
        assert_eq!(value(path), Err(Errno::OPNOTSUPP));
    }
    let set = rustix::fs::setxattr(&labelled, label, b"a:b:c", XattrFlags::empty());
    // A kernel with SELinux answers by itself.
    if set.is_ok() {
        assert_eq!(value(&labelled), Ok(b"a:b:c".to_vec()));
        assert_eq!(value(&plain), Err(Errno::OPNOTSUPP));
    }
    up.stop();
}
