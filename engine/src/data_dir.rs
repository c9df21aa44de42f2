//! The data directory: checkpoints and the clean mark of the logs in it.
#![allow(missing_docs)]
use crate::names::TopicPartition;
use crate::storage::Storage;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
pub struct DataDir {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    rp: Mutex<HashMap<String, u64>>,
    ls: Mutex<HashMap<String, u64>>,
    clean: bool,
}
pub struct Claim {
    pub was_clean: bool,
}
impl DataDir {
    pub fn open(storage: Arc<dyn Storage>, path: &Path) -> crate::Result<Self> {
        let load = |n: &str| -> HashMap<String, u64> {
            crate::checkpoint::read_offsets(&*storage, &path.join(n))
                .unwrap()
                .or_empty()
                .into_iter()
                .map(|(t, o)| (t.directory_name(), o))
                .collect()
        };
        let rp = load("recovery-point-offset-checkpoint");
        let ls = load("log-start-offset-checkpoint");
        let clean = storage.remove_file(&path.join(".kafka_cleanshutdown")).is_ok();
        Ok(Self { rp: Mutex::new(rp), ls: Mutex::new(ls), storage, path: path.into(), clean })
    }
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }
    pub fn claim(&self, t: &TopicPartition) -> crate::Result<Claim> {
        let _ = self.storage.create_dir(&self.partition_path(t));
        Ok(Claim { was_clean: self.clean })
    }
    pub fn release(&self, _t: &TopicPartition, c: bool) {
        if c {
            self.storage.open(&self.path.join(".kafka_cleanshutdown"), crate::storage::OpenMode::Truncate).unwrap();
        }
    }
    pub fn partition_path(&self, t: &TopicPartition) -> PathBuf {
        self.path.join(t.directory_name())
    }
    pub fn recovery_point(&self, t: &TopicPartition) -> Option<u64> {
        self.rp.lock().unwrap().get(&t.directory_name()).copied()
    }
    pub fn log_start(&self, t: &TopicPartition) -> Option<u64> {
        self.ls.lock().unwrap().get(&t.directory_name()).copied()
    }
    pub fn set_recovery_point(&self, t: &TopicPartition, o: u64) {
        self.rp.lock().unwrap().insert(t.directory_name(), o);
    }
    pub fn set_log_start(&self, t: &TopicPartition, o: u64) {
        self.ls.lock().unwrap().insert(t.directory_name(), o);
    }
    pub fn set_end_offset(&self, _t: &TopicPartition, _o: u64) {}
    pub fn lower_cleaner_offset(&self, _t: &TopicPartition, _o: u64) {}
    pub fn write_checkpoints(&self) -> crate::Result<()> {
        for (n, m) in [("recovery-point-offset-checkpoint", &self.rp), ("log-start-offset-checkpoint", &self.ls)] {
            let m = m.lock().unwrap().iter().map(|(t, o)| (t.parse().unwrap(), *o)).collect();
            crate::checkpoint::write_offsets(&*self.storage, &self.path.join(n), &m)?;
        }
        Ok(())
    }
    pub fn close(&self) -> crate::Result<()> {
        self.write_checkpoints()
    }
}
