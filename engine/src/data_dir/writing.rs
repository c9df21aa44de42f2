//! Writing the checkpoints and the mark of a clean close.

use super::*;

/// What the checkpoint files hold now.
#[derive(Debug)]
pub(super) struct Written {
    /// `None` if that is not known or not sound.
    files: [Option<OffsetMap>; 4],
    /// The version of the offsets in memory that all four hold: as long as it stands there is nothing to look at, however
    /// many partitions there are.
    as_of: Option<u64>,
}

impl Written {
    /// What an open found.
    pub(super) fn found(files: [Option<OffsetMap>; 4]) -> Self {
        Self { files, as_of: None }
    }

    /// Whether a file has an entry of this name.
    pub(super) fn names(&self, name: &TopicPartition) -> bool {
        self.files.iter().flatten().any(|offsets| offsets.contains_key(name))
    }
}

impl DataDir {
    pub(super) fn write_changed(&self, mut written: MutexGuard<'_, Written>) -> Result<()> {
        if self.alone.is_some() {
            return Ok(());
        }
        let (current, version) = {
            let state = self.state();
            if written.as_of == Some(state.version) {
                return Ok(());
            }
            (state.offsets.clone(), state.version)
        };
        let layout = Layout::read(&*self.storage, &self.path)?;
        for (which, mut offsets) in Checkpoint::ALL.into_iter().zip(current) {
            offsets.retain(|name, _| layout.keeps_offsets_of(name));
            let known = &mut written.files[which as usize];
            if known.as_ref() == Some(&offsets) {
                continue;
            }
            *known = None;
            checkpoint::write_offsets(&*self.storage, &self.path.join(which.file_name()), &offsets)?;
            *known = Some(offsets);
        }
        written.as_of = Some(version);
        Ok(())
    }

    pub(super) fn write_clean_mark(&self, partitions: &BTreeMap<TopicPartition, Use>) -> Result<bool> {
        if self.alone.is_some() {
            return Ok(false);
        }
        let layout = Layout::read(&*self.storage, &self.path)?;
        let unclean = layout.live.iter().find(|name| !self.is_clean(partitions.get(name).copied()));
        if let Some(unclean) = unclean.or(layout.aside.first().filter(|_| !self.was_clean)).filter(|_| !is_planted(Defect::MarkUnclean)) {
            tracing::info!(path = %self.path.display(), partition = %unclean, "closed without the clean mark");
            return Ok(false);
        }
        let path = self.path.join(CLEAN_MARK);
        let written = self.storage.open(&path, OpenMode::Truncate).and_then(|file| {
            write_all_at(&*file, CLEAN_MARK_CONTENT, 0)?;
            file.sync_data()?;
            self.storage.sync_dir(&self.path)
        });
        if let Err(cause) = written {
            let _ = self.storage.remove_file(&path); // the first failure counts
            return Err(Error::io("write the clean mark", &path, cause));
        }
        Ok(true)
    }
}
