//! What happens to the partitions and files beneath: leaders change, logs are cleaned, snapshots are saved and spoiled, the
//! process ends and starts again.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use keeplog::inspect::storage::{MemoryStorage, OpenMode, Storage, read_exact_at, write_all_at};
use keeplog::{CONSUMER_OFFSETS, ErrorKind, Lead, LoadReport, OffsetAndMetadata};

use super::check::{check, same};
use super::model::{Partition, Served};
use super::run::{Done, Run, commit_options, log_options, open, partition_of};
use super::steps::{GROUPS, Leads, LoadIt, PARTITIONS, Rolls, Settings, Stop, TOPICS, Tampering};

fn snapshot_of(partition: u32) -> PathBuf {
    PathBuf::from(format!("/data/{CONSUMER_OFFSETS}-{partition}/offsets.keeplog-snapshot"))
}

fn read(disk: &MemoryStorage, path: &Path) -> Option<Vec<u8>> {
    let file = disk.open(path, OpenMode::Read).ok()?;
    let mut bytes = vec![0; file.len().unwrap() as usize];
    read_exact_at(&*file, &mut bytes, 0).unwrap();
    Some(bytes)
}

impl Run<'_> {
    pub(super) fn resign(&mut self, number: u32, above: Option<i32>) -> Done {
        let partition = &mut self.partitions[number as usize];
        let epoch = above.map(|above| partition.epoch.unwrap_or(0) + above);
        let counts = epoch.zip(partition.epoch).is_none_or(|(epoch, known)| epoch >= known);
        if counts {
            partition.epoch = epoch.or(partition.epoch);
            self.due.extend(partition.resign());
        }
        self.counts.note("resignations");
        same("resign", self.store().resign(number, epoch), Ok(counts))
    }

    pub(super) fn lead(&mut self, number: u32, above: i32, load: LoadIt) -> Done {
        let partition = &mut self.partitions[number as usize];
        let epoch = partition.epoch.unwrap_or(0) + above;
        let right = match partition.served {
            _ if partition.epoch.is_some_and(|known| known >= epoch) => Lead::Stale,
            Served::NotLed => Lead::Loads,
            Served::WaitsForLoad | Served::Yes => Lead::Led,
        };
        partition.epoch = partition.epoch.max(Some(epoch));
        if right == Lead::Loads {
            partition.served = Served::WaitsForLoad;
        }
        // The store over it loads whatever waits, the one beneath leaves it to whoever asks.
        let told = match load {
            LoadIt::AtOnce => self.store().lead(number, epoch),
            LoadIt::Later => self.store().deref().lead(number, epoch),
        };
        same("lead", told, Ok(right))?;
        if (right, load) == (Lead::Loads, LoadIt::AtOnce) {
            for partition in self.partitions.iter_mut().filter(|partition| partition.served == Served::WaitsForLoad) {
                self.due.extend(partition.load());
                self.counts.note("loads of what is led");
            }
        }
        Ok(())
    }

    pub(super) fn load_next(&mut self) -> Done {
        let waits = |partition: &&Partition| partition.served == Served::WaitsForLoad;
        let any_waits = self.partitions.iter().any(|partition| waits(&partition));
        same("whether a load waits", Ok(self.store().has_waiting_loads()), Ok(any_waits))?;
        let Some((number, loaded)) = self.store().load_next() else {
            return if any_waits { Err("nothing was loaded".into()) } else { Ok(()) };
        };
        let report = loaded.map_err(|error| format!("{error:?}"))?;
        let partition = self.partitions.get_mut(number as usize).filter(|partition| waits(&&**partition)).ok_or("it did not wait")?;
        self.due.extend(partition.load());
        self.counts.note("loads of what is led");
        self.note_load(&report);
        Ok(())
    }

    fn note_load(&mut self, report: &LoadReport) {
        if report.from_snapshot > 0 {
            self.counts.note("loads from snapshots");
            self.counts.add("loads from snapshots and what came after", u64::from(report.records > 0));
        }
    }

    pub(super) fn reload(&mut self) -> Done {
        let report = self.store().reload().map_err(|error| format!("{error:?}"))?;
        let mut right = (0, 0, 0);
        for partition in self.partitions.iter_mut().filter(|partition| partition.served != Served::NotLed) {
            self.due.extend(partition.load());
            let state = &partition.shown;
            right = (right.0 + state.committed().count(), right.1 + state.committing().len(), right.2 + state.open.len());
        }
        self.counts.note("reloads");
        let told = (report.entries, report.groups, report.open_transactions);
        same("reload", Ok(told), Ok((right.0 as u64, right.1 as u64, right.2 as u64)))
    }

    pub(super) fn clean(&mut self, partition: u32, rolls: Rolls) -> Done {
        let log = self.log(partition as usize);
        if rolls == Rolls::Before {
            log.roll().map_err(|error| format!("{error:?}"))?;
        }
        let report = self.store().store().clean(&log).map_err(|error| format!("{error:?}"))?;
        self.counts.note("passes of the cleaner");
        self.counts.add("records cleaned away", report.records_read - report.records_kept);
        Ok(())
    }

    pub(super) fn save(&mut self) -> Done {
        let saved = self.store().save_snapshots().map_err(|error| format!("{error:?}"))?;
        self.counts.add("snapshots saved", saved.partitions);
        self.keep_copies();
        Ok(())
    }

    fn keep_copies(&mut self) {
        for partition in 0..PARTITIONS {
            let copy = read(&self.disk, &snapshot_of(partition)).map(|bytes| (partition, bytes));
            self.copies.extend(copy.filter(|copy| !self.copies.contains(copy)));
        }
    }

    pub(super) fn tamper(&mut self, partition: u32, how: Tampering) -> Done {
        let path = snapshot_of(partition);
        let Some(mut bytes) = read(&self.disk, &path).filter(|bytes| !bytes.is_empty()) else { return Ok(()) };
        let (what, new) = match how {
            Tampering::Delete => ("snapshots deleted", None),
            Tampering::Older(which) => {
                let of_it: Vec<_> = self.copies.iter().filter(|(of, _)| *of == partition).collect();
                ("older snapshots put back", of_it.get(which % of_it.len().max(1)).map(|(_, bytes)| bytes.clone()))
            }
            Tampering::Foreign => ("snapshots of another log", read(&self.disk, &snapshot_of(PARTITIONS - 1 - partition))),
            Tampering::Flip(bit) => {
                let at = bit % (8 * bytes.len());
                bytes[at / 8] ^= 1 << (at % 8);
                ("snapshots with a wrong bit", Some(bytes))
            }
            Tampering::Cut(len) => {
                bytes.truncate(len % bytes.len());
                ("snapshots cut", Some(bytes))
            }
        };
        self.counts.note(what);
        self.disk.remove_file(&path).unwrap();
        if let Some(new) = new {
            write_all_at(&*self.disk.open(&path, OpenMode::CreateNew).unwrap(), &new, 0).unwrap();
        }
        Ok(())
    }

    pub(super) fn make_anew(&mut self, partition: u32) -> Done {
        self.counts.note("logs made anew");
        let store = self.store().store();
        store
            .delete_log(CONSUMER_OFFSETS, partition)
            .and_then(|()| store.log(CONSUMER_OFFSETS, partition))
            .map_err(|e| format!("{e:?}"))?;
        self.partitions[partition as usize] = Partition::new();
        self.restart(Stop::Kill, self.settings, Leads::All)
    }

    pub(super) fn set(&mut self, settings: Settings) -> Done {
        self.counts.note("settings changed");
        self.settings = settings;
        let set = self.store().set_options(commit_options(&settings));
        set.and_then(|()| self.store().store().set_log_options(CONSUMER_OFFSETS, &log_options(&settings)))
            .map_err(|error| format!("{error:?}"))
    }

    /// What a start would find now is all that was written, whatever it begins with.
    pub(super) fn look(&mut self) -> Done {
        let all: Vec<_> = self.partitions.iter().map(|partition| Ok(&partition.written)).collect();
        for snapshots in [true, false] {
            let image = Arc::new(self.disk.image());
            let has_snapshot = (0..PARTITIONS).any(|partition| read(&image, &snapshot_of(partition)).is_some());
            let store = open(&image, &Settings { snapshots, ..self.settings }, Leads::All)?;
            check(&store, &all).map_err(|why| format!("a start with snapshots {snapshots}: {why}"))?;
            let report = store.load_report();
            self.counts.note("looks");
            self.counts.add("snapshots refused", u64::from(snapshots && has_snapshot && report.from_snapshot == 0));
            self.counts.add("looks from snapshots", u64::from(report.from_snapshot > 0));
        }
        Ok(())
    }

    pub(super) fn restart(&mut self, stop: Stop, settings: Settings, leads: Leads) -> Done {
        match stop {
            Stop::Kill => {
                self.disk = Arc::new(self.disk.image());
                self.owed.clear();
            }
            Stop::Close => {
                self.store().close().map_err(|error| format!("it does not close: {error:?}"))?;
                self.show_everywhere();
                for group in GROUPS.into_iter().filter(|group| self.partitions[partition_of(group)].served == Served::Yes) {
                    let late = self.store().commit(group, &[(TOPICS[0], 0, OffsetAndMetadata::new(1))]);
                    same("a commit after the close", late, Err(ErrorKind::Closed))?;
                }
            }
            Stop::Drop => {
                self.store = None;
                self.show_everywhere();
            }
        }
        self.hear()?;
        self.store = None;
        self.keep_copies();
        self.settings = settings;
        self.counts.note(match (stop, leads) {
            (Stop::Kill, _) => "kills",
            (Stop::Close, _) => "closes",
            (Stop::Drop, _) => "drops",
        });
        self.store = Some(open(&self.disk, &settings, leads)?);
        for partition in &mut self.partitions {
            partition.epoch = None;
            match leads {
                Leads::All => _ = partition.load(),
                Leads::None => _ = partition.resign(),
            }
        }
        if leads == Leads::All {
            self.note_load(&self.store().load_report());
        } else {
            self.counts.note("starts that lead nothing");
        }
        Ok(())
    }
}
