//! Our constants against the system's `linux/fuse.h`, printed by a small C program.

use super::std::fs;
use super::std::process::Command;
use crate::abi::{
    FOPEN_DIRECT_IO, LK_FLOCK, MAJOR, OPEN_KILL_SET_ID, Opcode, WRITE_CACHE, WRITE_KILL_SET_ID,
    init_flag, lock_type, open_flag, setattr_flag, size,
};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use wire::RenameHow;

const NEEDED: &str = "this test needs a C compiler and the kernel's headers: \
                      apt-get install gcc libc6-dev linux-libc-dev";

/// Structs and the offsets of their fields in decoder and encoder.
const LAYOUT: &[(&str, usize)] = &[
    ("sizeof(struct fuse_in_header)", size::IN_HEADER),
    ("offsetof(struct fuse_in_header, opcode)", 4),
    ("offsetof(struct fuse_in_header, unique)", 8),
    ("offsetof(struct fuse_in_header, nodeid)", 16),
    ("offsetof(struct fuse_in_header, uid)", 24),
    ("offsetof(struct fuse_in_header, gid)", 28),
    ("offsetof(struct fuse_in_header, pid)", 32),
    ("sizeof(struct fuse_attr)", size::ATTR),
    ("offsetof(struct fuse_attr, size)", 8),
    ("offsetof(struct fuse_attr, blocks)", 16),
    ("offsetof(struct fuse_attr, atime)", 24),
    ("offsetof(struct fuse_attr, mtime)", 32),
    ("offsetof(struct fuse_attr, ctime)", 40),
    ("offsetof(struct fuse_attr, atimensec)", 48),
    ("offsetof(struct fuse_attr, mtimensec)", 52),
    ("offsetof(struct fuse_attr, ctimensec)", 56),
    ("offsetof(struct fuse_attr, mode)", 60),
    ("offsetof(struct fuse_attr, nlink)", 64),
    ("offsetof(struct fuse_attr, uid)", 68),
    ("offsetof(struct fuse_attr, gid)", 72),
    ("offsetof(struct fuse_attr, rdev)", 76),
    ("offsetof(struct fuse_attr, blksize)", 80),
    ("sizeof(struct fuse_entry_out)", size::ENTRY_OUT),
    ("offsetof(struct fuse_entry_out, generation)", 8),
    ("offsetof(struct fuse_entry_out, attr)", 40),
    ("sizeof(struct fuse_attr_out)", size::ATTR_OUT),
    ("offsetof(struct fuse_attr_out, attr)", 16),
    ("sizeof(struct fuse_open_out)", size::OPEN_OUT),
    ("offsetof(struct fuse_open_out, open_flags)", 8),
    ("sizeof(struct fuse_statfs_out)", size::STATFS_OUT),
    ("offsetof(struct fuse_kstatfs, files)", 24),
    ("offsetof(struct fuse_kstatfs, bsize)", 40),
    ("offsetof(struct fuse_kstatfs, namelen)", 44),
    ("offsetof(struct fuse_kstatfs, frsize)", 48),
    ("sizeof(struct fuse_write_out)", size::WRITE_OUT),
    ("sizeof(struct fuse_getxattr_out)", 8),
    ("sizeof(struct fuse_dirent)", size::DIRENT),
    ("offsetof(struct fuse_dirent, off)", 8),
    ("offsetof(struct fuse_dirent, namelen)", 16),
    ("offsetof(struct fuse_dirent, type)", 20),
    ("offsetof(struct fuse_direntplus, dirent)", size::ENTRY_OUT),
    ("sizeof(struct fuse_init_out)", size::INIT_OUT),
    ("offsetof(struct fuse_init_out, flags)", 12),
    ("offsetof(struct fuse_init_out, max_background)", 16),
    ("offsetof(struct fuse_init_out, congestion_threshold)", 18),
    ("offsetof(struct fuse_init_out, max_write)", 20),
    ("offsetof(struct fuse_init_out, time_gran)", 24),
    ("offsetof(struct fuse_init_out, max_pages)", 28),
    ("offsetof(struct fuse_init_out, flags2)", 32),
    ("offsetof(struct fuse_init_in, max_readahead)", 8),
    ("offsetof(struct fuse_init_in, flags)", 12),
    ("offsetof(struct fuse_init_in, flags2)", 16),
    ("offsetof(struct fuse_setattr_in, size)", 16),
    ("offsetof(struct fuse_setattr_in, atime)", 32),
    ("offsetof(struct fuse_setattr_in, mtime)", 40),
    ("offsetof(struct fuse_setattr_in, atimensec)", 56),
    ("offsetof(struct fuse_setattr_in, mtimensec)", 60),
    ("offsetof(struct fuse_setattr_in, mode)", 68),
    ("offsetof(struct fuse_setattr_in, uid)", 76),
    ("offsetof(struct fuse_setattr_in, gid)", 80),
    ("sizeof(struct fuse_mknod_in)", 16),
    ("sizeof(struct fuse_mkdir_in)", 8),
    ("sizeof(struct fuse_rename_in)", 8),
    ("sizeof(struct fuse_rename2_in)", 16),
    ("offsetof(struct fuse_rename2_in, flags)", 8),
    ("sizeof(struct fuse_link_in)", 8),
    ("offsetof(struct fuse_open_in, flags)", 0),
    ("sizeof(struct fuse_create_in)", 16),
    ("offsetof(struct fuse_create_in, mode)", 4),
    ("offsetof(struct fuse_read_in, offset)", 8),
    ("offsetof(struct fuse_read_in, size)", 16),
    ("offsetof(struct fuse_fallocate_in, offset)", 8),
    ("offsetof(struct fuse_fallocate_in, length)", 16),
    ("offsetof(struct fuse_fallocate_in, mode)", 24),
    ("offsetof(struct fuse_lseek_in, offset)", 8),
    ("offsetof(struct fuse_lseek_in, whence)", 16),
    ("sizeof(struct fuse_lseek_out)", 8),
    ("offsetof(struct fuse_copy_file_range_in, off_in)", 8),
    ("offsetof(struct fuse_copy_file_range_in, nodeid_out)", 16),
    ("offsetof(struct fuse_copy_file_range_in, off_out)", 32),
    ("offsetof(struct fuse_copy_file_range_in, len)", 40),
    ("sizeof(struct fuse_write_in)", 40),
    ("offsetof(struct fuse_write_in, offset)", 8),
    ("offsetof(struct fuse_write_in, size)", 16),
    ("offsetof(struct fuse_write_in, write_flags)", 20),
    ("offsetof(struct fuse_write_in, flags)", 32),
    ("offsetof(struct fuse_release_in, fh)", 0),
    ("sizeof(struct fuse_flush_in)", 24),
    ("offsetof(struct fuse_flush_in, lock_owner)", 16),
    ("sizeof(struct fuse_lk_in)", 48),
    ("offsetof(struct fuse_lk_in, fh)", 0),
    ("offsetof(struct fuse_lk_in, owner)", 8),
    ("offsetof(struct fuse_lk_in, lk)", 16),
    ("offsetof(struct fuse_lk_in, lk_flags)", 40),
    ("sizeof(struct fuse_lk_out)", 24),
    ("offsetof(struct fuse_file_lock, end)", 8),
    ("offsetof(struct fuse_file_lock, type)", 16),
    ("offsetof(struct fuse_file_lock, pid)", 20),
    ("FUSE_COMPAT_SETXATTR_IN_SIZE", 8),
    ("offsetof(struct fuse_setxattr_in, flags)", 4),
    ("sizeof(struct fuse_getxattr_in)", 8),
    ("sizeof(struct fuse_mknod_in)", 16),
    ("offsetof(struct fuse_mknod_in, rdev)", 4),
    ("offsetof(struct fuse_mknod_in, umask)", 8),
    ("offsetof(struct fuse_access_in, mask)", 0),
    ("offsetof(struct fuse_interrupt_in, unique)", 0),
];

/// Constants of every version of the header.
const NUMBERS: &[(&str, u64)] = &[
    ("FUSE_KERNEL_VERSION", MAJOR as u64),
    ("FUSE_ROOT_ID", wire::InodeNo::ROOT.0),
    ("FOPEN_DIRECT_IO", FOPEN_DIRECT_IO as u64),
    ("FUSE_WRITE_CACHE", WRITE_CACHE as u64),
    ("FUSE_WRITE_KILL_SUIDGID", WRITE_KILL_SET_ID as u64),
    ("FUSE_OPEN_KILL_SUIDGID", OPEN_KILL_SET_ID as u64),
    ("FATTR_KILL_SUIDGID", setattr_flag::KILL_SET_ID as u64),
    ("FUSE_ASYNC_READ", init_flag::ASYNC_READ),
    ("FUSE_POSIX_LOCKS", init_flag::POSIX_LOCKS),
    ("FUSE_FLOCK_LOCKS", init_flag::FLOCK_LOCKS),
    ("FUSE_LK_FLOCK", LK_FLOCK as u64),
    ("F_RDLCK", lock_type::READ as u64),
    ("F_WRLCK", lock_type::WRITE as u64),
    ("F_UNLCK", lock_type::UNLOCK as u64),
    ("FUSE_BIG_WRITES", init_flag::BIG_WRITES),
    ("FUSE_DONT_MASK", init_flag::DONT_MASK),
    ("FUSE_AUTO_INVAL_DATA", init_flag::AUTO_INVAL_DATA),
    ("FUSE_DO_READDIRPLUS", init_flag::DO_READDIRPLUS),
    ("FUSE_READDIRPLUS_AUTO", init_flag::READDIRPLUS_AUTO),
    ("FUSE_ASYNC_DIO", init_flag::ASYNC_DIO),
    ("FUSE_PARALLEL_DIROPS", init_flag::PARALLEL_DIROPS),
    ("FUSE_MAX_PAGES", init_flag::MAX_PAGES),
    ("FUSE_HANDLE_KILLPRIV_V2", init_flag::HANDLE_KILLPRIV_V2),
    ("FATTR_MODE", setattr_flag::MODE as u64),
    ("FATTR_UID", setattr_flag::UID as u64),
    ("FATTR_GID", setattr_flag::GID as u64),
    ("FATTR_SIZE", setattr_flag::SIZE as u64),
    ("FATTR_ATIME", setattr_flag::ATIME as u64),
    ("FATTR_MTIME", setattr_flag::MTIME as u64),
    ("FATTR_FH", setattr_flag::FH as u64),
    ("FATTR_ATIME_NOW", setattr_flag::ATIME_NOW as u64),
    ("FATTR_MTIME_NOW", setattr_flag::MTIME_NOW as u64),
    ("O_ACCMODE", open_flag::ACCESS_MODE as u64),
    ("O_RDONLY", open_flag::READ_ONLY as u64),
    ("O_WRONLY", open_flag::WRITE_ONLY as u64),
    ("O_EXCL", open_flag::EXCLUSIVE as u64),
    ("O_TRUNC", open_flag::TRUNCATE as u64),
    ("O_APPEND", open_flag::APPEND as u64),
    ("1 << 0 /* RENAME_NOREPLACE */", RenameHow::NoReplace as u64),
    ("1 << 1 /* RENAME_EXCHANGE */", RenameHow::Exchange as u64),
    ("1 << 2 /* RENAME_WHITEOUT */", RenameHow::Whiteout as u64),
    ("FUSE_LOOKUP", Opcode::Lookup as u64),
    ("FUSE_FORGET", Opcode::Forget as u64),
    ("FUSE_GETATTR", Opcode::Getattr as u64),
    ("FUSE_SETATTR", Opcode::Setattr as u64),
    ("FUSE_READLINK", Opcode::Readlink as u64),
    ("FUSE_SYMLINK", Opcode::Symlink as u64),
    ("FUSE_MKNOD", Opcode::Mknod as u64),
    ("FUSE_MKDIR", Opcode::Mkdir as u64),
    ("FUSE_UNLINK", Opcode::Unlink as u64),
    ("FUSE_RMDIR", Opcode::Rmdir as u64),
    ("FUSE_RENAME", Opcode::Rename as u64),
    ("FUSE_LINK", Opcode::Link as u64),
    ("FUSE_OPEN", Opcode::Open as u64),
    ("FUSE_READ", Opcode::Read as u64),
    ("FUSE_WRITE", Opcode::Write as u64),
    ("FUSE_STATFS", Opcode::Statfs as u64),
    ("FUSE_RELEASE", Opcode::Release as u64),
    ("FUSE_FSYNC", Opcode::Fsync as u64),
    ("FUSE_SETXATTR", Opcode::Setxattr as u64),
    ("FUSE_GETXATTR", Opcode::Getxattr as u64),
    ("FUSE_LISTXATTR", Opcode::Listxattr as u64),
    ("FUSE_REMOVEXATTR", Opcode::Removexattr as u64),
    ("FUSE_FLUSH", Opcode::Flush as u64),
    ("FUSE_INIT", Opcode::Init as u64),
    ("FUSE_OPENDIR", Opcode::Opendir as u64),
    ("FUSE_READDIR", Opcode::Readdir as u64),
    ("FUSE_RELEASEDIR", Opcode::Releasedir as u64),
    ("FUSE_FSYNCDIR", Opcode::Fsyncdir as u64),
    ("FUSE_GETLK", Opcode::Getlk as u64),
    ("FUSE_SETLK", Opcode::Setlk as u64),
    ("FUSE_SETLKW", Opcode::Setlkw as u64),
    ("FUSE_ACCESS", Opcode::Access as u64),
    ("FUSE_CREATE", Opcode::Create as u64),
    ("FUSE_INTERRUPT", Opcode::Interrupt as u64),
    ("FUSE_DESTROY", Opcode::Destroy as u64),
    ("FUSE_BATCH_FORGET", Opcode::BatchForget as u64),
    ("FUSE_READDIRPLUS", Opcode::Readdirplus as u64),
    ("FUSE_RENAME2", Opcode::Rename2 as u64),
    ("51 /* FUSE_TMPFILE */", Opcode::Tmpfile as u64),
    ("52 /* FUSE_STATX */", Opcode::Statx as u64),
];

/// Macros that older headers lack.
const NEWER: &[(&str, u64)] = &[
    ("FUSE_INIT_EXT", init_flag::INIT_EXT),
    ("FUSE_DIRECT_IO_ALLOW_MMAP", init_flag::DIRECT_IO_ALLOW_MMAP),
    ("FUSE_OVER_IO_URING", init_flag::OVER_IO_URING),
];

#[test]
fn our_constants_are_the_headers() {
    let opcodes = NUMBERS.iter().filter(|(name, _)| name.starts_with("FUSE_")).count();
    assert!(opcodes > Opcode::ALL.len(), "every op code is in the list");
    let mut source = String::from(
        "#include <stdio.h>\n#include <stddef.h>\n#include <fcntl.h>\n#include <linux/fuse.h>\n\
         #define ASK(what) printf(\"%llu\\n\", (unsigned long long)(what));\n\
         int main(void) {\n",
    );
    let mut wanted: Vec<(&str, String)> = Vec::new();
    for (what, number) in LAYOUT {
        source += &format!("ASK({what})\n");
        wanted.push((what, number.to_string()));
    }
    for (what, number) in NUMBERS {
        source += &format!("ASK({what})\n");
        wanted.push((what, number.to_string()));
    }
    for (what, number) in NEWER {
        source += &format!("#ifdef {what}\nASK({what})\n#else\nASK({number}ull)\n#endif\n");
        wanted.push((what, number.to_string()));
    }
    source += "return 0; }\n";
    let found = run_c(&source);
    let found: Vec<_> = found.lines().collect();
    assert_eq!(found.len(), wanted.len());
    for ((what, wanted), found) in wanted.iter().zip(found) {
        assert_eq!(found, wanted, "{what}");
    }
}

/// Compiles and runs a C program; returns its output.
fn run_c(source: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (source_path, program) = (folder.path().join("ask.c"), folder.path().join("ask"));
    fs::write(&source_path, source).unwrap();
    let compiled = Command::new("cc").arg("-o").arg(&program).arg(&source_path).output();
    let compiled = compiled.unwrap_or_else(|error| panic!("cc: {error}; {NEEDED}"));
    let complaint = String::from_utf8_lossy(&compiled.stderr).into_owned();
    assert!(compiled.status.success(), "{complaint}\n{NEEDED}");
    let printed = Command::new(&program).output().unwrap().stdout;
    String::from_utf8(printed).unwrap()
}
