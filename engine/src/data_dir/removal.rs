//! Removing a partition: gone in one step, its files one by one after that.

use super::*;

impl DataDir {
    /// Removes a partition that is not in use, with all its files. Its directory is first renamed and its checkpoint
    /// entries dropped; from then on it does not come back, even if removing the files fails or is interrupted (they
    /// are listed in [`DataDir::foreign`] then, and [`DataDir::purge_removed`] tries again). `Locked` if it is in use,
    /// `NotFound` if it has no directory.
    pub fn remove(&self, name: &TopicPartition) -> Result<()> {
        self.refuse_alone("remove")?;
        let moved = {
            let mut state = self.open_state()?;
            let path = self.partition_path(name);
            match state.partitions.get(name) {
                None => return Err(Error::new(ErrorKind::NotFound, "remove", "there is no such partition").at(&path)),
                Some(Use::Open(_)) => {
                    return Err(Error::new(ErrorKind::Locked, "remove", "it is open: close its log first").at(&path));
                }
                Some(Use::Untouched | Use::Clean | Use::Unclean) => {}
            }
            let moved = self.unused_delete_name(name)?;
            self.storage.rename(&path, &self.path.join(&moved)).map_err(|e| Error::io("remove", &path, e))?;
            state.partitions.remove(name);
            state.forget(name);
            state.foreign.push(Foreign { name: moved.clone(), kind: ForeignKind::Removed(name.clone()) });
            moved
        };
        self.note_change(name);
        self.storage.sync_dir(&self.path).map_err(|e| Error::io("sync the data directory", &self.path, e))?;
        self.write_checkpoints()?;
        self.purge(&moved)
    }

    /// Removes the files of partitions that were removed earlier, here or by a broker. Returns how many partitions
    /// that were.
    pub fn purge_removed(&self) -> Result<usize> {
        let removed: Vec<String> = {
            let state = self.open_state()?;
            state.foreign.iter().filter(|f| matches!(f.kind, ForeignKind::Removed(_))).map(|f| f.name.clone()).collect()
        };
        for name in &removed {
            self.purge(name)?;
        }
        Ok(removed.len())
    }

    /// Removes a directory that lies under its `-delete` name.
    fn purge(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        remove_tree(&*self.storage, &path)?;
        self.storage.sync_dir(&self.path).map_err(|e| Error::io("sync the data directory", &self.path, e))?;
        self.state().foreign.retain(|foreign| foreign.name != name);
        Ok(())
    }

    fn unused_delete_name(&self, name: &TopicPartition) -> Result<String> {
        // A broker uses random ids. Any id does that no other directory has; a time keeps it readable.
        let mut id = u128::from(self.storage.now_ms().unsigned_abs()) << 64;
        loop {
            let candidate = name.delete_name(id);
            let path = self.path.join(&candidate);
            match self.storage.metadata(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(candidate),
                Err(e) => return Err(Error::io("look at", &path, e)),
                Ok(_) => id += 1,
            }
        }
    }
}

/// Removes a directory with everything in it. Links are removed, not followed. Needs no free space.
fn remove_tree(storage: &dyn Storage, root: &Path) -> Result<()> {
    let gone = |result: io::Result<()>, path: &Path| match result {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path, e)),
        _ => Ok(()),
    };
    // A stack of our own: how deep strangers nest directories must not matter.
    let mut pending = vec![root.to_path_buf()];
    while let Some(dir) = pending.last().cloned() {
        let entries = match storage.list(&dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(Error::io("list", &dir, e)),
        };
        let inner = pending.len();
        for entry in entries {
            let path = dir.join(&entry.name);
            match entry.kind {
                EntryKind::Directory => pending.push(path),
                EntryKind::File | EntryKind::Other => gone(storage.remove_file(&path), &path)?,
            }
        }
        if pending.len() == inner {
            gone(storage.remove_dir(&dir), &dir)?;
            pending.pop();
        }
    }
    Ok(())
}
