//! `fuse`.
