//! Storages over other storages: a layer says what it does differently, and the rest goes through.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Entry, File, FileLock, Metadata, OpenMode, Storage};

/// A storage over another one. Every call of [`Storage`] goes to the one below unless the layer says otherwise.
pub trait Layer: Send + Sync + Debug {
    /// The storage below.
    fn below(&self) -> &dyn Storage;

    /// See [`Storage::open`].
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.below().open(path, mode)
    }

    /// See [`Storage::list`].
    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        self.below().list(dir)
    }

    /// See [`Storage::metadata`].
    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        self.below().metadata(path)
    }

    /// See [`Storage::set_modified`].
    fn set_modified(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        self.below().set_modified(path, modified_ms)
    }

    /// See [`Storage::rename`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below().rename(from, to)
    }

    /// See [`Storage::remove_file`].
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.below().remove_file(path)
    }

    /// See [`Storage::create_dir`].
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.below().create_dir(path)
    }

    /// See [`Storage::remove_dir`].
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.below().remove_dir(path)
    }

    /// See [`Storage::sync_dir`].
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.below().sync_dir(dir)
    }

    /// See [`Storage::lock`].
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.below().lock(path)
    }

    /// See [`Storage::lock_dir`].
    fn lock_dir(&self, dir: &Path) -> io::Result<Box<dyn FileLock>> {
        self.below().lock_dir(dir)
    }

    /// See [`Storage::canonicalize`].
    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        self.below().canonicalize(path)
    }

    /// See [`Storage::now_ms`].
    fn now_ms(&self) -> i64 {
        self.below().now_ms()
    }

    /// See [`Storage::monotonic`].
    fn monotonic(&self) -> Duration {
        self.below().monotonic()
    }
}

impl<T: Layer> Storage for T {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Layer::open(self, path, mode)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        Layer::list(self, dir)
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        Layer::metadata(self, path)
    }

    fn set_modified(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        Layer::set_modified(self, path, modified_ms)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Layer::rename(self, from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        Layer::remove_file(self, path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        Layer::create_dir(self, path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        Layer::remove_dir(self, path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        Layer::sync_dir(self, dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        Layer::lock(self, path)
    }

    fn lock_dir(&self, dir: &Path) -> io::Result<Box<dyn FileLock>> {
        Layer::lock_dir(self, dir)
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        Layer::canonicalize(self, path)
    }

    fn now_ms(&self) -> i64 {
        Layer::now_ms(self)
    }

    fn monotonic(&self) -> Duration {
        Layer::monotonic(self)
    }
}

/// An open file over another one. Every call of [`File`] goes to the one below unless the layer says otherwise.
pub trait FileLayer: Send + Sync + Debug {
    /// The file below.
    fn below(&self) -> &dyn File;

    /// See [`File::len`].
    fn len(&self) -> io::Result<u64> {
        self.below().len()
    }

    /// See [`File::is_empty`].
    fn is_empty(&self) -> io::Result<bool> {
        self.below().is_empty()
    }

    /// See [`File::read_at`].
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.below().read_at(buffer, position)
    }

    /// See [`File::write_at`].
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        self.below().write_at(bytes, position)
    }

    /// See [`File::set_len`].
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.below().set_len(len)
    }

    /// See [`File::sync_data`].
    fn sync_data(&self) -> io::Result<()> {
        self.below().sync_data()
    }

    /// See [`File::start_write_back`].
    fn start_write_back(&self) {
        self.below().start_write_back();
    }

    /// See [`File::map`].
    fn map(&self, len: u64) -> io::Result<Bytes> {
        self.below().map(len)
    }
}

impl<T: FileLayer> File for T {
    fn len(&self) -> io::Result<u64> {
        FileLayer::len(self)
    }

    fn is_empty(&self) -> io::Result<bool> {
        FileLayer::is_empty(self)
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        FileLayer::read_at(self, buffer, position)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<usize> {
        FileLayer::write_at(self, bytes, position)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        FileLayer::set_len(self, len)
    }

    fn sync_data(&self) -> io::Result<()> {
        FileLayer::sync_data(self)
    }

    fn start_write_back(&self) {
        FileLayer::start_write_back(self);
    }

    fn map(&self, len: u64) -> io::Result<Bytes> {
        FileLayer::map(self, len)
    }
}
