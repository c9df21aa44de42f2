//! What is done about damage, and how it is told.

use keeplog_index::AbortedTxn;

use super::*;

/// Whether a transaction index tells at least what its log does. It may know more: where a transaction began of which the
/// cleaner has taken the first batches, and one of which it has taken all but the marker.
fn tells_as_much(known: &[u8], wanted: &[u8]) -> bool {
    let Ok(known) = TxnIndex::new(known).iter().collect::<std::result::Result<Vec<_>, _>>() else { return false };
    let is_known = |wanted: &AbortedTxn| {
        let same = |txn: &&AbortedTxn| (txn.producer_id, txn.last_offset) == (wanted.producer_id, wanted.last_offset);
        known.iter().find(same).is_some_and(|txn| txn.first_offset <= wanted.first_offset)
    };
    TxnIndex::new(wanted).iter().all(|wanted| wanted.is_ok_and(|wanted| is_known(&wanted)))
}

impl Recovery<'_> {
    /// What the indexes of a closed segment know of, and its log does not have, was cut off between two batches.
    pub(super) fn compare_end(&mut self, base: u64, size: u64, next_offset: u64, limit: u64) -> Result<()> {
        let Some(reach) = indexes_reach(self.place, self.options, base, size, limit).filter(|reach| *reach >= next_offset) else {
            return Ok(());
        };
        let file = file_name(base, FileKind::Log);
        let what = format!("the segment's indexes go up to offset {reach}, its log ends below {next_offset}");
        if self.input.clean || next_offset < self.input.recovery_point {
            let what = format!("{what}: its end was safe once, and is gone");
            if self.options.recovery_mode == RecoveryMode::Strict {
                let path = self.place.path(base, FileKind::Log, FileState::Live);
                return Err(Error::corrupt(OP, &path, size, what).offset_at(next_offset));
            }
            self.report.damage.push(Damage { file, position: size, offset: next_offset, what, in_place: false });
        } else {
            self.report.notes.push(format!("{file}: {what}"));
        }
        Ok(())
    }

    /// A transaction index that its log contradicts is told of like any other: nothing else shows that it was wrong, or gone.
    pub(super) fn note_txn_index(&mut self, base: u64, log_bytes: u64, indexes: &IndexBuilder) {
        let is_closed = self.place.exists(&self.place.path(base, FileKind::OffsetIndex, FileState::Live));
        if !is_closed || self.report.rebuilt.iter().any(|rebuilt| rebuilt.segment == base) {
            return;
        }
        let path = self.place.path(base, FileKind::TxnIndex, FileState::Live);
        let known = read_index(self.place, self.options, base, FileKind::TxnIndex, log_bytes);
        let wanted = indexes.txn.as_bytes();
        match known {
            Ok(known) if tells_as_much(&known, wanted) => {}
            Err(_) if wanted.is_empty() => {}
            Err(why) if self.place.exists(&path) => self.report.rebuilt.push(Rebuilt { segment: base, why }),
            // Perhaps rightly so: of what the cleaner has emptied, the log still has the batches.
            Ok(_) | Err(_) => {
                let file = file_name(base, FileKind::TxnIndex);
                self.report.notes.push(format!("{file} did not hold the aborted transactions of its log, and was made anew"));
            }
        }
    }

    /// Does what the table says about one broken batch; returns the size of the segment then.
    pub(super) fn act(&mut self, at: usize, found: &BrokenAt, size: u64) -> Result<u64> {
        let last = at + 1 == self.segments.len();
        let base = self.segments[at].segment.base_offset();
        let file = file_name(base, FileKind::Log);
        let location = if last { Location::Last } else { Location::Sealed };
        let zone = if found.offset < self.input.recovery_point { Zone::BelowRecoveryPoint } else { Zone::AboveRecoveryPoint };
        let action = decide(location, zone, &found.broken, found.sound_behind.is_none(), self.options.recovery_mode);
        let why = found.broken.describe();
        let path = self.place.path(base, FileKind::Log, FileState::Live);
        let in_place = matches!(action, Action::KeepAndGoOn | Action::KeepReadOnly);
        let damage = |what: String| Damage { file: file.clone(), position: found.position, offset: found.offset, what, in_place };
        match action {
            Action::Refuse => {
                let detail = format!("{why}; recovery mode Strict changes nothing: use `keeplog recover`, or another mode");
                return Err(Error::corrupt(OP, &path, found.position, detail).offset_at(found.offset));
            }
            Action::KeepAndGoOn => {
                self.report.damage.push(damage(format!("{why}; the bytes were left in place")));
                return Ok(size);
            }
            Action::KeepReadOnly => {
                self.report.damage.push(damage(format!("{why}; the bytes were left in place, and the log takes no appends")));
                self.report.read_only = true;
                return Ok(size);
            }
            Action::CutTailAndReport => {
                let point = self.input.recovery_point;
                let what = match (zone, found.sound_behind) {
                    (Zone::BelowRecoveryPoint, _) => {
                        format!("{why}; the log was cut here, below the recovery point {point}: it was safe once")
                    }
                    (_, Some(next)) => format!("{why}; the log was cut here, and batches that could be read from byte {next} on went too"),
                    (_, None) if last => format!("{why}; the log was cut here"),
                    (_, None) => format!("{why}; this end of the segment can't be read and was cut off, later segments were kept"),
                };
                self.report.damage.push(damage(what));
            }
            Action::CutAndDropLater => {
                self.report.damage.push(damage(format!("{why}; the log was cut here and all later segments were taken out")));
                self.drop_later(at)?;
            }
            Action::CutTail => {}
        }
        let kept_in = match action {
            Action::CutTail if !found.broken.is_whole() => None,
            _ => Some(aside::copy(self.place, base, found.position)?),
        };
        self.report.cuts.push(Cut { file, position: found.position, bytes: size - found.position, why, kept_in });
        Ok(found.position)
    }

    fn drop_later(&mut self, at: usize) -> Result<()> {
        for loaded in self.segments.drain(at + 1..).rev() {
            let base = loaded.segment.base_offset();
            let (file, bytes) = (file_name(base, FileKind::Log), loaded.segment.size_bytes());
            if bytes > 0 {
                let kept_in = Some(aside::rename(self.place, base)?);
                let why = "an earlier segment is damaged".into();
                self.report.cuts.push(Cut { file, position: 0, bytes, why, kept_in });
            } else {
                self.report.removed.push(file);
            }
            for kind in SEGMENT_FILES.into_iter().chain([FileKind::Snapshot]) {
                self.place.remove(&self.place.path(base, kind, FileState::Live))?;
            }
        }
        self.place.sync_dir()
    }
}
