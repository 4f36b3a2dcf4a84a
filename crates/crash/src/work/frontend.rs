//! The two frontends of a client: the Rust API, and a mount through the kernel.

use anyhow::{Context as _, Result, bail};
use library::{OpenFor, SetAttr, Volume};
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The operations of a client. Paths are relative to the root.
pub(crate) trait Frontend {
    /// Creates an empty file; fails if the name exists.
    fn create(&mut self, path: &str, mode: u32) -> Result<()>;
    fn write(&mut self, path: &str, bytes: &[u8]) -> Result<()>;
    fn mkdir(&mut self, path: &str, mode: u32) -> Result<()>;
    fn symlink(&mut self, target: &str, path: &str) -> Result<()>;
    fn rename(&mut self, from: &str, to: &str) -> Result<()>;
    fn unlink(&mut self, path: &str) -> Result<()>;
    fn rmdir(&mut self, path: &str) -> Result<()>;
    fn chmod(&mut self, path: &str, mode: u32) -> Result<()>;
    /// Makes a file durable.
    fn sync(&mut self, path: &str) -> Result<()>;
    /// Operations that only a kernel offers; `None` without one.
    fn kernel(&mut self) -> Option<&mut dyn KernelFrontend>;
}

/// The operations of a mount only.
pub(crate) trait KernelFrontend {
    fn link(&mut self, from: &str, to: &str) -> Result<()>;
    fn append(&mut self, path: &str, record: &str) -> Result<()>;
}

/// A mount point.
pub(crate) struct MountFrontend {
    dir: PathBuf,
}

impl MountFrontend {
    /// For a mount point.
    pub(crate) const fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }
}

impl Frontend for MountFrontend {
    fn create(&mut self, path: &str, mode: u32) -> Result<()> {
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(mode).open(self.at(path))?;
        Ok(())
    }

    fn write(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        let file = fs::OpenOptions::new().write(true).open(self.at(path))?;
        Ok(file.write_all_at(bytes, 0)?)
    }

    fn mkdir(&mut self, path: &str, mode: u32) -> Result<()> {
        Ok(fs::DirBuilder::new().mode(mode).create(self.at(path))?)
    }

    fn symlink(&mut self, target: &str, path: &str) -> Result<()> {
        Ok(std::os::unix::fs::symlink(target, self.at(path))?)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        Ok(fs::rename(self.at(from), self.at(to))?)
    }

    fn unlink(&mut self, path: &str) -> Result<()> {
        Ok(fs::remove_file(self.at(path))?)
    }

    fn rmdir(&mut self, path: &str) -> Result<()> {
        Ok(fs::remove_dir(self.at(path))?)
    }

    fn chmod(&mut self, path: &str, mode: u32) -> Result<()> {
        let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(mode);
        Ok(fs::set_permissions(self.at(path), mode)?)
    }

    fn sync(&mut self, path: &str) -> Result<()> {
        Ok(fs::File::open(self.at(path))?.sync_all()?)
    }

    fn kernel(&mut self) -> Option<&mut dyn KernelFrontend> {
        Some(self)
    }
}

impl KernelFrontend for MountFrontend {
    fn link(&mut self, from: &str, to: &str) -> Result<()> {
        Ok(fs::hard_link(self.at(from), self.at(to))?)
    }

    fn append(&mut self, path: &str, record: &str) -> Result<()> {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(self.at(path))?;
        let written_bytes = file.write(record.as_bytes())?;
        if written_bytes != record.len() {
            bail!("{written_bytes} of {} bytes were appended", record.len());
        }
        Ok(())
    }
}

/// A volume of the Rust API.
pub(crate) struct LibraryFrontend {
    volume: Volume,
}

impl LibraryFrontend {
    /// For a volume.
    pub(crate) const fn new(volume: Volume) -> Self {
        Self { volume }
    }
}

/// The path from the root.
pub(crate) fn rooted(path: &str) -> PathBuf {
    Path::new("/").join(path)
}

impl Frontend for LibraryFrontend {
    fn create(&mut self, path: &str, mode: u32) -> Result<()> {
        let file = self.volume.create(&rooted(path), mode, true)?;
        self.volume.close(file).context("close")
    }

    fn write(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        let file = self.volume.open(&rooted(path), OpenFor::Write)?;
        self.volume.write_at(&file, 0, bytes)?;
        self.volume.close(file).context("close")
    }

    fn mkdir(&mut self, path: &str, mode: u32) -> Result<()> {
        Ok(self.volume.mkdir(&rooted(path), mode).map(drop)?)
    }

    fn symlink(&mut self, target: &str, path: &str) -> Result<()> {
        Ok(self.volume.symlink(OsStr::new(target), &rooted(path)).map(drop)?)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        Ok(self.volume.rename(&rooted(from), &rooted(to))?)
    }

    fn unlink(&mut self, path: &str) -> Result<()> {
        Ok(self.volume.unlink(&rooted(path))?)
    }

    fn rmdir(&mut self, path: &str) -> Result<()> {
        Ok(self.volume.rmdir(&rooted(path))?)
    }

    fn chmod(&mut self, path: &str, mode: u32) -> Result<()> {
        let path = rooted(path);
        let attr = self.volume.lstat(&path)?;
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        Ok(self.volume.set_attr(attr.inode, &path, &set).map(drop)?)
    }

    fn sync(&mut self, path: &str) -> Result<()> {
        let file = self.volume.open(&rooted(path), OpenFor::Read)?;
        self.volume.sync_file(&file)?;
        self.volume.close(file).context("close")
    }

    fn kernel(&mut self) -> Option<&mut dyn KernelFrontend> {
        None
    }
}
